"""Rendering onto a regular grid, band by band: any scale, region, filter and derivative."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from thera.errors import InvalidInput
from thera.field.grid import LARGEST_PATCH, Axis, AxisSampling, BlendTaps, Patches, Taps, sample_axis
from thera.field.namespace import array_namespace
from thera.field.psf import Box, Butterworth, Covariance, Filter, Gaussian, Ideal, Lanczos, Point, Seamless
from thera.field.tables import Pick, Tables, send

if TYPE_CHECKING:
    from thera.field.heatfield import HeatField

Array = Any
# The largest factor of a table: float32's 3e38, with room for sums over components and amplitudes.
MAX_FACTOR = 1e32
# Filters that give the same result at every call. A user's function need not.
DETERMINISTIC = (Gaussian, Seamless, Covariance, Lanczos, Box, Butterworth, Ideal, Point)


class Average(NamedTuple):
    """Weighted sums of samples along an axis, computed tap by tap for all output pixels."""

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
    """One sample per output pixel along an axis; some output pixels blend in a second one."""

    index: Array
    at: Array
    other: Array
    share: Array

    @classmethod
    def of(cls, field: HeatField, overlap: BlendTaps, order: np.ndarray | None) -> Blend:
        """`order`: the position of each sample, if they are not consecutive."""
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
    """Precomputed, image-independent data for the output rows [start, stop)."""

    start: int
    stop: int
    tables: Tables
    steps: list[tuple[int, Pick | Average | Blend]]  # (axis, how its samples become output pixels)

    def render(self, field: HeatField) -> Array:
        samples = self.tables.evaluate(field)
        for axis, step in self.steps:
            samples = step.take(samples, axis)
        return samples

    @property
    def nbytes(self) -> int:
        return self.tables.nbytes + sum(step.nbytes for _, step in self.steps)


def plan(
    field: HeatField, rows: Axis, cols: Axis, psf: Filter, derivative: tuple[int, int], memory: int
) -> Iterator[Band]:
    """The bands of a rendering from top to bottom, each rendered within about `memory` bytes.

    They depend on the head, the grid and the filter, so all fields of the same head and shape can use them.
    """
    orders = _orders(derivative)
    planned: BandPlan | None = None

    def make() -> Band:
        nonlocal planned
        planned = planned or BandPlan.of(field, rows, cols, psf, orders, memory)
        return planned.band(field, start)

    key: Hashable | None = None
    if deterministic(psf):
        key = field.head.place, field.shape, _contents(rows), _contents(cols), psf, orders, memory
    start = 0
    while start < len(rows):
        band = field.head.tables.get_or_make(key and (start, key), make)
        yield band
        start = band.stop


def whole(field: HeatField, size: tuple[int, int], plan: Iterable[Band]) -> Array:
    """All bands of a plan in one array, (H', W', channels)."""
    xp, out = field.namespace, None
    for band in plan:
        values = band.render(field)
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


def deterministic(psf: Filter) -> bool:
    """True if the filter is deterministic, so that its tables can be cached."""
    try:
        return type(psf) in DETERMINISTIC and hash(psf) is not None
    except TypeError:  # one of its numbers is an array
        return False


def _contents(axis: Axis) -> tuple[bytes, bytes, float]:
    return axis.cell.tobytes(), axis.offset.tobytes(), axis.step


@dataclass(frozen=True)
class BandPlan:
    """How a grid is cut into bands, and what their tables are computed from. All of it is on the host."""

    down: AxisSampling
    along: AxisSampling
    columns: Patches
    gain: np.ndarray  # (c,)
    bias: bool
    height: int  # output rows of a band
    largest: int  # the most samples of a patch down the rows
    memory: int

    @classmethod
    def of(
        cls, field: HeatField, rows: Axis, cols: Axis, psf: Filter, orders: tuple[int, int], memory: int
    ) -> BandPlan:
        down, along = (
            sample_axis(axis, cells, psf, field.kappa, order)
            for axis, cells, order in zip((rows, cols), field.shape, orders, strict=True)
        )
        # Where samples are averaged across cells, the derivative is that of their weights, which includes the
        # jumps between cells. Elsewhere it is that of each sinusoid, (iw)^order.
        local = tuple(0 if way.taps else order for way, order in zip((down, along), orders, strict=True))
        w1, w2 = field.components
        gain = psf.transfer(field.components, np.diag([down.step, along.step]), field.kappa)
        gain = gain * (1j * w1) ** local[0] * (1j * w2) ** local[1]
        weights = [way.taps.weight for way in (down, along) if isinstance(way.taps, Taps)]
        product = math.prod(float(np.abs(factor).max()) for factor in (gain, *weights))
        if any(orders) and not product < MAX_FACTOR:
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
            if isinstance(taps, BlendTaps):
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
            f"derivative={derivative!r} is not valid; give two whole orders of at least 0: (rows, columns)."
        )
    return m, n


def _band_height(down: AxisSampling, samples: int) -> tuple[int, int]:
    """Output rows of a band with at most `samples` rows of samples, and the largest length of its patches."""
    if down.taps is None:
        per_cell = 1 / down.axis.step
        largest = int(min(LARGEST_PATCH, max(1, samples)))
        # A band holds whole cells, so that no cell's coefficients are computed twice.
        cells = max(1, int(samples / (per_cell + 1)))
        return max(1, int(cells * per_cell) if per_cell < samples else samples), largest
    fine_per_output = max(1.0, len(down.axis) / len(down))
    reach = down.taps.index[0].size
    return max(1, int((samples - reach) / fine_per_output)), LARGEST_PATCH
