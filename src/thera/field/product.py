"""The field as a matrix product.

With sin(w·x + φ) = cos φ · sin(w·x) + sin φ · cos(w·x), all cells that are read at the same offsets x share
one table of sin(w·x) and cos(w·x), filters and derivatives included, and

    Φ - I = Σₖ aₖ cos φₖ · table[k] + Σₖ aₖ sin φₖ · table[c + k]

is a product of [cells·channels × 2c] by [2c × offsets]: no sine and no network per output pixel. On a regular
grid of any scale the offsets of a cell are x = shift + j·step with a shift of the cell's own, and
w·x + φ = w·(j·step) + (φ + w·shift): a change of the cell's phase makes the offsets the same for all cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np

from thera.field.grid import Patches
from thera.field.threads import each

if TYPE_CHECKING:
    from thera.field.heatfield import HeatField

Array = Any
# Coefficients of one block of cells on a CPU: what fits its caches next to the products made of them.
CACHED_BYTES = 2 << 20


def oscillations(field: HeatField, features: Array, shift: Array | None, table: Array) -> Array:
    """Φ - I of P cells at the table's offsets: features (P, C), shift (P, c) or None, table (2c, offsets).

    Returns (P, channels, offsets). The head, c sines and cosines per cell, and two products.
    """
    xp = array_api_compat.array_namespace(features)
    amplitude, phase = field.coefficients(features)  # (P, channels, c), (P, c)
    if shift is not None:
        phase = phase + shift
    P, channels, c = amplitude.shape
    in_phase = xp.reshape(amplitude * xp.cos(phase)[:, None, :], (P * channels, c))
    out = in_phase @ table[:c, :]
    quadrature = xp.reshape(amplitude * xp.sin(phase)[:, None, :], (P * channels, c))
    out += quadrature @ table[c:, :]
    return xp.reshape(out, (P, channels, -1))


def product(
    field: HeatField, rows: Patches, cols: Patches, gain: np.ndarray, bias: bool, memory: int
) -> Array:
    """The field at every sample of rows × columns of patches, each component times its complex gain (c,).

    Returns (len(rows.cell)·rows.length, len(cols.cell)·cols.length, channels), in blocks of cells within
    `memory` bytes; `bias` says whether I is part of it.
    """
    xp = field.namespace
    w1, w2 = field.components
    shifted = np.ptp(rows.shift) > 1e-12 or np.ptp(cols.shift) > 1e-12
    y, x = rows.offsets, cols.offsets
    if not shifted:
        y, x = y + rows.shift[0], x + cols.shift[0]
    wave = gain[:, None, None] * np.exp(1j * (w1[:, None, None] * y[:, None] + w2[:, None, None] * x))
    wave = wave.reshape(len(gain), -1)
    table = send(field, np.concatenate([wave.imag, wave.real]))
    if shifted:
        row_shift = send(field, _wrap(np.outer(rows.shift, w1)))
        col_shift = send(field, _wrap(np.outer(cols.shift, w2)))

    n_rows, n_cols = len(rows.cell), len(cols.cell)
    shape = (n_rows, rows.length, n_cols, cols.length, field.channels)
    out = xp.empty(shape, dtype=xp.float32, device=field.device)

    def evaluate(cells: tuple[slice, slice]) -> None:
        i, j = cells
        block = select(xp, select(xp, field.features, rows.cell[i], 0), cols.cell[j], 1)
        shift = None
        if shifted:
            shift = xp.reshape(row_shift[i, None, :] + col_shift[None, j, :], (-1, len(gain)))
        values = oscillations(field, xp.reshape(block, (-1, block.shape[-1])), shift, table)
        if bias:
            pixels = select(xp, select(xp, field.pixels, rows.cell[i], 0), cols.cell[j], 1)
            values += xp.reshape(pixels, (-1, field.channels, 1))
        values = xp.reshape(values, (*block.shape[:2], field.channels, rows.length, cols.length))
        out[i, :, j, :, :] = xp.permute_dims(values, (0, 3, 1, 4, 2))

    cells = _block_cells(field, n_rows * n_cols, table.shape[1], memory)
    each(field.pixels, evaluate, _blocks(n_rows, n_cols, cells))
    return xp.reshape(out, (n_rows * rows.length, n_cols * cols.length, field.channels))


def select(xp: Any, array: Array, index: np.ndarray, axis: int) -> Array:
    """`array` at an ascending `index` along an axis: a view where the index is a range."""
    part = slice(int(index[0]), int(index[-1]) + 1)
    array = array[part] if axis == 0 else array[:, part]
    if array.shape[axis] == len(index) and np.all(np.diff(index) == 1):
        return array
    return xp.take(array, xp.asarray(index - index[0], device=array_api_compat.device(array)), axis=axis)


def send(field: HeatField, array: np.ndarray) -> Array:
    """A float32 array of the field's library, where the field is."""
    return field.namespace.asarray(np.ascontiguousarray(array, dtype=np.float32), device=field.device)


def _block_cells(field: HeatField, cells: int, offsets: int, memory: int) -> int:
    """How many of all cells to evaluate at once: in the caches of a CPU, and some blocks for each core."""
    c = field.components.shape[1]
    if field.on_cpu:
        numbers = max((field.channels + 1) * c, 2 * field.channels * offsets)
        return max(1, min(min(memory, CACHED_BYTES) // (4 * numbers), max(64, cells // 16)))
    return max(1, memory // (4 * max((4 * field.channels + 4) * c, 2 * field.channels * offsets)))


def _blocks(n_rows: int, n_cols: int, cells: int) -> list[tuple[slice, slice]]:
    """Rectangles of about `cells` cells that tile n_rows × n_cols, whole rows where they fit."""
    width = min(n_cols, cells)
    height = max(1, cells // width)
    return [
        (slice(i, min(i + height, n_rows)), slice(j, min(j + width, n_cols)))
        for i in range(0, n_rows, height)
        for j in range(0, n_cols, width)
    ]


def _wrap(angle: np.ndarray) -> np.ndarray:
    """The same angle in [-π, π]: reduced before it loses digits to float32."""
    return angle - 2 * np.pi * np.round(angle / (2 * np.pi))
