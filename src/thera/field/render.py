"""Rendering onto a regular grid, band by band: any scale up or down, any region, filter and derivative."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from thera.errors import InvalidInput
from thera.field.grid import LARGEST_PATCH, Axis, Patches, Reading, Taps, reading
from thera.field.product import product, select, send
from thera.field.psf import Filter

if TYPE_CHECKING:
    from thera.field.heatfield import HeatField

Array = Any


def bands(
    field: HeatField, rows: Axis, cols: Axis, psf: Filter, derivative: tuple[int, int], memory: int
) -> Iterator[tuple[int, Array]]:
    """(first row, band) after band from top to bottom, working within about `memory` bytes."""
    orders = _orders(derivative)
    down, along = (
        reading(axis, cells, psf, field.kappa, order)
        for axis, cells, order in zip((rows, cols), field.shape, orders, strict=True)
    )
    # Where samples are averaged across cells, it is their weights that are differentiated: the jumps between
    # cells are part of the derivative there. Elsewhere each sinusoid is, by (iw)^order.
    local = tuple(0 if way.taps else order for way, order in zip((down, along), orders, strict=True))
    w1, w2 = field.components
    gain = psf.transfer(field.components, np.diag([down.step, along.step]), field.kappa)
    gain = gain * (1j * w1) ** local[0] * (1j * w2) ** local[1]
    bias = local == (0, 0)

    columns = Patches.of(along.axis)
    row_bytes = 4 * field.channels * (2 * len(columns.cell) * columns.length + len(along))
    height, largest = _band_height(down, memory // 2 // row_bytes)
    for start in range(0, len(down), height):
        part = down.band(start, min(start + height, len(down)))
        patches = Patches.of(part.axis, largest)
        band = product(field, patches, columns, gain, bias, memory // 2)
        if columns.index is not None:
            band = select(field.namespace, band, columns.index, 1)
        if along.taps is not None:
            band = _average(field, band, along.taps, 1)
        if patches.index is not None:
            band = select(field.namespace, band, patches.index, 0)
        if part.taps is not None:
            band = _average(field, band, part.taps, 0)
        yield start, band


def _orders(derivative: tuple[int, int]) -> tuple[int, int]:
    try:
        m, n = (int(order) for order in derivative)
        valid = (m, n) == tuple(derivative) and min(m, n) >= 0
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise InvalidInput(
            f"derivative={derivative!r} is none; give the orders along (rows, columns), whole and at least 0."
        )
    return m, n


def _band_height(down: Reading, samples: int) -> tuple[int, int]:
    """The output rows of a band of at most `samples` rows of samples, and its patches' largest length."""
    if down.taps is None:
        per_cell = 1 / down.axis.step
        largest = int(min(LARGEST_PATCH, max(1, samples)))
        # Whole cells to a band, lest a cell's coefficients be computed twice.
        cells = max(1, int(samples / (per_cell + 1)))
        return max(1, int(cells * per_cell) if per_cell < samples else samples), largest
    fine_per_output = max(1.0, len(down.axis) / len(down))
    reach = down.taps.index.shape[1]
    return max(1, int((samples - reach) / fine_per_output)), LARGEST_PATCH


def _average(field: HeatField, samples: Array, taps: Taps, axis: int) -> Array:
    """Weighted sums of samples along an axis, one tap of all output pixels after the other."""
    xp = field.namespace
    total: Array = 0.0
    shape = (-1, 1, 1) if axis == 0 else (-1, 1)
    for index, weight in zip(taps.index.T, taps.weight.T, strict=True):
        total = total + select(xp, samples, index, axis) * xp.reshape(send(field, weight), shape)
    return total
