"""Rendering onto a regular grid, band by band: any scale up or down, any region, filter and derivative."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from thera.errors import InvalidInput
from thera.field.grid import LARGEST_PATCH, Axis, Overlap, Patches, Reading, Taps, reading
from thera.field.namespace import array_namespace
from thera.field.psf import Box, Butterworth, Covariance, Filter, Gaussian, Ideal, Lanczos, Point, Seamless
from thera.field.tables import Pick, Tables, send

if TYPE_CHECKING:
    from thera.field.heatfield import HeatField

Array = Any
# Of a table's factors: below float32's 3e38 by more than components and amplitudes add up to.
LARGEST = 1e32
OURS = (Gaussian, Seamless, Covariance, Lanczos, Box, Butterworth, Ideal, Point)


class Average(NamedTuple):
    """Weighted sums of samples along an axis, one tap of all output pixels after the other."""

    taps: list[tuple[Pick, Array]]

    @classmethod
    def of(cls, field: HeatField, taps: Taps) -> Average:
        pairs = zip(taps.index.T, taps.weight.T, strict=True)
        return cls([(Pick.of(field, index), send(field, weight)[:, None, None]) for index, weight in pairs])

    def take(self, samples: Array, axis: int) -> Array:
        total: Array = 0.0
        for pick, weight in self.taps:
            total = total + pick.take(samples, axis) * (weight if axis == 0 else weight[:, 0])
        return total

    @property
    def nbytes(self) -> int:
        return sum(pick.nbytes + weight.nbytes for pick, weight in self.taps)


class Blend(NamedTuple):
    """One sample for each output pixel along an axis, and at some of them a share of another."""

    index: Array
    at: Array
    other: Array
    share: Array

    @classmethod
    def of(cls, field: HeatField, overlap: Overlap, order: np.ndarray | None) -> Blend:
        """`order`: where the samples lie, if not one after the other."""
        places = [overlap.index, overlap.at, overlap.other]
        if order is not None:
            places = [order[overlap.index], overlap.at, order[overlap.other]]
        index, at, other = (field.namespace.asarray(place, device=field.device) for place in places)
        return cls(index, at, other, send(field, overlap.share)[:, None, None])

    def take(self, samples: Array, axis: int) -> Array:
        xp = array_namespace(samples)
        out, other = (xp.take(samples, index, axis=axis) for index in (self.index, self.other))
        at, share = (self.at, self.share) if axis == 0 else ((slice(None), self.at), self.share[:, 0])
        out[at] += share * (other - out[at])
        return out

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self)


@dataclass(frozen=True)
class Band:
    """Output rows [start, stop) of a rendering: the samples it takes and what they are put together by, with
    all that can be known of it before the image is."""

    start: int
    stop: int
    tables: Tables
    steps: list[tuple[int, Pick | Average | Blend]]  # by axis, in turn

    def read(self, field: HeatField) -> Array:
        samples = self.tables.product(field)
        for axis, step in self.steps:
            samples = step.take(samples, axis)
        return samples

    @property
    def nbytes(self) -> int:
        return self.tables.nbytes + sum(step.nbytes for _, step in self.steps)


def plan(
    field: HeatField, rows: Axis, cols: Axis, psf: Filter, derivative: tuple[int, int], memory: int
) -> Iterator[Band]:
    """Band after band from top to bottom, each to be read within about `memory` bytes.

    They belong to the head, the grid and the filter: fields of the same head and shape can be read by them.
    """
    orders = _orders(derivative)
    layout: Layout | None = None

    def make() -> Band:
        nonlocal layout
        layout = layout or Layout.of(field, rows, cols, psf, orders, memory)
        return layout.band(field, start)

    key: Hashable | None = None
    if constant(psf):
        key = field.head.place, field.shape, _contents(rows), _contents(cols), psf, orders, memory
    start = 0
    while start < len(rows):
        band = field.head.tables.get_or_make(key and (start, key), make)
        yield band
        start = band.stop


def bands(
    field: HeatField, rows: Axis, cols: Axis, psf: Filter, derivative: tuple[int, int], memory: int
) -> Iterator[tuple[int, Array]]:
    """(first row, band) after band from top to bottom, working within about `memory` bytes."""
    for band in plan(field, rows, cols, psf, derivative, memory):
        yield band.start, band.read(field)


def whole(field: HeatField, size: tuple[int, int], plan: Iterable[Band]) -> Array:
    """All bands of a plan as one array, (H', W', channels)."""
    xp, out = field.namespace, None
    for band in plan:
        values = band.read(field)
        if band.stop - band.start == size[0]:
            return values
        if out is None:
            try:
                out = xp.empty((*size, field.channels), dtype=xp.float32, device=field.device)
            except MemoryError:
                raise InvalidInput(
                    f"{size[1]}×{size[0]} pixels do not fit in memory; render a region, or with render_bands."
                ) from None
        out[band.start : band.stop, :, :] = values
    return out


def constant(psf: Filter) -> bool:
    """Whether a filter answers the same whenever it is asked, as ours do and a user's function need not."""
    try:
        return type(psf) in OURS and hash(psf) is not None
    except TypeError:  # one of its numbers is an array
        return False


def _contents(axis: Axis) -> tuple[bytes, bytes, float]:
    return axis.cell.tobytes(), axis.offset.tobytes(), axis.step


@dataclass(frozen=True)
class Layout:
    """How a grid is read, on the host: where bands begin and what their tables are made of."""

    down: Reading
    along: Reading
    columns: Patches
    gain: np.ndarray  # (c,)
    bias: bool
    height: int  # output rows of a band
    largest: int  # samples of a patch along the columns
    memory: int

    @classmethod
    def of(
        cls, field: HeatField, rows: Axis, cols: Axis, psf: Filter, orders: tuple[int, int], memory: int
    ) -> Layout:
        down, along = (
            reading(axis, cells, psf, field.kappa, order)
            for axis, cells, order in zip((rows, cols), field.shape, orders, strict=True)
        )
        # Where samples are averaged across cells, it is their weights that are differentiated: the jumps
        # between cells are part of the derivative there. Elsewhere each sinusoid is, by (iw)^order.
        local = tuple(0 if way.taps else order for way, order in zip((down, along), orders, strict=True))
        w1, w2 = field.components
        gain = psf.transfer(field.components, np.diag([down.step, along.step]), field.kappa)
        gain = gain * (1j * w1) ** local[0] * (1j * w2) ** local[1]
        weights = [way.taps.weight for way in (down, along) if isinstance(way.taps, Taps)]
        product = math.prod(float(np.abs(factor).max()) for factor in (gain, *weights))
        if any(orders) and not product < LARGEST:
            raise InvalidInput(
                f"derivative={orders} gives numbers that float32 cannot hold; ask for a lower order."
            )
        columns = Patches.of(along.axis)
        row_bytes = 4 * field.channels * (2 * len(columns.cell) * columns.length + len(along))
        height, largest = _band_height(down, memory // 2 // row_bytes)
        return cls(down, along, columns, gain, local == (0, 0), height, largest, memory)

    def band(self, field: HeatField, start: int) -> Band:
        stop = min(start + self.height, len(self.down))
        part = self.down.band(start, stop)
        patches = Patches.of(part.axis, self.largest)
        tables = Tables.of(field, patches, self.columns, self.gain, self.bias, self.memory // 2)
        steps: list[tuple[int, Pick | Average | Blend]] = []
        for axis, samples, taps in ((1, self.columns, self.along.taps), (0, patches, part.taps)):
            if isinstance(taps, Overlap):
                steps.append((axis, Blend.of(field, taps, samples.index)))
                continue
            if samples.index is not None:
                steps.append((axis, Pick.of(field, samples.index)))
            if taps is not None:
                steps.append((axis, Average.of(field, taps)))
        return Band(start, stop, tables, steps)


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
    reach = down.taps.index[0].size
    return max(1, int((samples - reach) / fine_per_output)), LARGEST_PATCH
