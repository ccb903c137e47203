"""The field on a grid as a matrix product.

On a regular grid the offsets of a cell are x = shift + j·step, with a shift of its own, and
w·x + φ = w·(j·step) + (φ + w·shift). Adding w·shift to the cell's phase makes the offsets j·step the same for
all cells, so that one table serves them all (`Head.oscillations`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from thera.field.grid import Patches
from thera.field.head import Shift
from thera.field.namespace import array_namespace
from thera.field.threads import map_blocks

if TYPE_CHECKING:
    from thera.field.heatfield import HeatField

Array = Any
# Bytes of one block's coefficients on a CPU, so that they fit its caches together with their products.
CACHED_BYTES = 2 << 20


class Pick(NamedTuple):
    """Ascending positions along an axis: all of a range, or some within it."""

    part: slice
    within: Array | None

    @classmethod
    def of(cls, field: HeatField, index: np.ndarray) -> Pick:
        first, last = int(index[0]), int(index[-1])
        part = slice(first, last + 1)
        if last + 1 - first == len(index) and np.all(np.diff(index) == 1):
            return cls(part, None)
        return cls(part, field.namespace.asarray(index - first, device=field.device))

    def take(self, array: Array, axis: int) -> Array:
        """`array` at these positions along an axis. It is a view if they are a range."""
        array = array[self.part] if axis == 0 else array[:, self.part]
        if self.within is None:
            return array
        return array_namespace(array).take(array, self.within, axis=axis)

    @property
    def nbytes(self) -> int:
        return 0 if self.within is None else self.within.nbytes


class Block(NamedTuple):
    """A rectangle of patches that is evaluated at once, and their cells."""

    rows: slice
    cols: slice
    row_cells: Pick
    col_cells: Pick

    def take(self, array: Array) -> Array:
        return self.col_cells.take(self.row_cells.take(array, 0), 1)


@dataclass(frozen=True)
class Tables:
    """Image-independent tables for evaluating a field at every sample of rows × columns of patches."""

    table: Array  # (2c, offsets): sin(w·x) and cos(w·x), times the gain
    shift: Shift | None
    blocks: list[Block]
    shape: tuple[int, int, int, int]  # patches and samples of each, down the rows; then along the columns
    bias: bool  # True if the pixels I are added

    @classmethod
    def of(
        cls, field: HeatField, rows: Patches, cols: Patches, gain: np.ndarray, bias: bool, memory: int
    ) -> Tables:
        """The tables for a complex gain (c,) of the components, evaluated in blocks within `memory` bytes."""
        w1, w2 = field.components
        y, x = rows.offsets, cols.offsets
        shift = None
        if np.ptp(rows.shift) > 1e-12 or np.ptp(cols.shift) > 1e-12:
            down, along = _wrap(np.outer(rows.shift, w1)), _wrap(np.outer(cols.shift, w2))
            shift = send(field, down), send(field, along)
        else:
            y, x = y + rows.shift[0], x + cols.shift[0]
        wave = gain[:, None, None] * np.exp(1j * (w1[:, None, None] * y[:, None] + w2[:, None, None] * x))
        wave = wave.reshape(len(gain), -1)
        shape = len(rows.cell), rows.length, len(cols.cell), cols.length
        cells = _block_cells(field, shape[0] * shape[2], wave.shape[1], memory)
        down_picks, along_picks = (
            [(part, Pick.of(field, patches.cell[part])) for part in parts]
            for patches, parts in zip((rows, cols), _blocks(shape[0], shape[2], cells), strict=True)
        )
        return cls(
            send(field, np.concatenate([wave.imag, wave.real])),
            shift,
            [Block(i, j, down, along) for i, down in down_picks for j, along in along_picks],
            shape,
            bias,
        )

    def evaluate(self, field: HeatField) -> Array:
        """The field at every sample: (rows, columns, channels)."""
        xp = field.namespace
        n_rows, height, n_cols, width = self.shape
        out = xp.empty((*self.shape, field.channels), dtype=xp.float32, device=field.device)

        def evaluate_block(block: Block) -> None:
            i, j = block.rows, block.cols
            features = block.take(field.features)
            shift = None if self.shift is None else (self.shift[0][i], self.shift[1][j])
            values = field.head.oscillations(features, shift, self.table)
            if self.bias:
                values += xp.reshape(block.take(field.pixels), (-1, field.channels, 1))
            values = xp.reshape(values, (*features.shape[:2], field.channels, height, width))
            out[i, :, j, :, :] = xp.permute_dims(values, (0, 3, 1, 4, 2))

        map_blocks(field.pixels, evaluate_block, self.blocks)
        return xp.reshape(out, (n_rows * height, n_cols * width, field.channels))

    @property
    def nbytes(self) -> int:
        picks = {id(pick): pick for block in self.blocks for pick in (block.row_cells, block.col_cells)}
        shifts = 0 if self.shift is None else self.shift[0].nbytes + self.shift[1].nbytes
        return self.table.nbytes + shifts + sum(pick.nbytes for pick in picks.values())


def send(field: HeatField, array: np.ndarray) -> Array:
    """The array as float32 in the field's library and on its device."""
    return field.namespace.asarray(np.ascontiguousarray(array, dtype=np.float32), device=field.device)


def _block_cells(field: HeatField, cells: int, offsets: int, memory: int) -> int:
    """Cells to evaluate at once: few enough for a CPU's caches, and for several blocks per core."""
    c = field.components.shape[1]
    if field.on_cpu:
        numbers = max((field.channels + 1) * c, 2 * field.channels * offsets)
        return max(1, min(min(memory, CACHED_BYTES) // (4 * numbers), max(64, cells // 16)))
    stored = 0 if field.head.fused else (4 * field.channels + 4) * c
    return max(1, memory // (4 * max(stored, 2 * field.channels * offsets)))


def _blocks(n_rows: int, n_cols: int, cells: int) -> tuple[list[slice], list[slice]]:
    """Rows and columns of the rectangles, of about `cells` cells each, that cover n_rows × n_cols."""
    width = min(n_cols, cells)  # whole rows where they fit
    height = max(1, cells // width)
    rows, cols = (
        [slice(start, min(start + step, n)) for start in range(0, n, step)]
        for n, step in ((n_rows, height), (n_cols, width))
    )
    return rows, cols


def _wrap(angle: np.ndarray) -> np.ndarray:
    """The same angle in [-π, π], so that float32 keeps more of its digits."""
    return angle - 2 * np.pi * np.round(angle / (2 * np.pi))
