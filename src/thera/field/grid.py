"""Where output pixels lie: sizes, scales, regions, and the cell that each centre falls in.

Positions are in input pixels from the top left corner: input pixel p spans [p, p + 1), its centre is p + ½.
Output pixel i of N over an axis of n input pixels has its centre at (i + ½)·n/N (align_corners=False).
These arrays are small. The host computes them once per rendering, in float64 or exact integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thera.errors import InvalidInput
from thera.field.psf import Filter
from thera.memory import MOST_PIXELS

# A cell with more output pixels than this along an axis is evaluated in parts, to keep its table small.
LARGEST_PATCH = 40
# An average over samples is an accurate integral with three samples or more per footprint. A footprint of
# less than six pixels also takes two per pixel: a field has detail finer than its pixels, which would alias.
SAMPLES_PER_FOOTPRINT, SMALL_FOOTPRINT = 3, 6
# At high magnification neighbouring cells are blended up to this distance (in input pixels) from their
# border. Each cell's field was learnt by itself, and at a border two of them differ by a grey level or two.
BLEND_REACH = 0.1


Box = tuple[int, int, int, int]  # top, left, bottom, right: cells [top, bottom) × [left, right)


@dataclass(frozen=True)
class Axis:
    """Centres of output pixels along one axis: the cell of each, and its offset in [-½, ½] in that cell."""

    cell: np.ndarray
    offset: np.ndarray
    step: float  # input pixels per output pixel

    def __len__(self) -> int:
        return len(self.cell)

    def __getitem__(self, part: slice) -> Axis:
        return Axis(self.cell[part], self.offset[part], self.step)

    @property
    def centre(self) -> np.ndarray:
        return self.cell + self.offset + 0.5

    @property
    def cells(self) -> slice:
        """The cells from that of the first output pixel to that of the last."""
        return slice(int(self.cell[0]), int(self.cell[-1]) + 1)

    def since(self, cell: int) -> Axis:
        """The same output pixels in a field whose first cell is `cell`."""
        return Axis(self.cell - cell, self.offset, self.step)

    def within(self, low: int, high: int) -> slice:
        """The output pixels whose centres lie in the cells [low, high)."""
        first, last = np.searchsorted(self.cell, [low, high])
        return slice(int(first), int(last))

    @classmethod
    def whole(cls, cells: int, size: int, start: int = 0, stop: int | None = None) -> Axis:
        """Output pixels [start, stop) of `size` over all cells, exact even for a centre on a border."""
        i = np.arange(start, size if stop is None else stop, dtype=np.int64)
        cell, rest = np.divmod((2 * i + 1) * cells, 2 * size)
        return cls(cell, rest / (2 * size) - 0.5, cells / size)

    @classmethod
    def part(cls, cells: int, size: int, low: float, high: float) -> Axis:
        """`size` output pixels over [low, high], with the numbers of `whole` where the two grids coincide."""
        step = (high - low) / size
        whole, start = cells / step, low / step
        if abs(whole - round(whole)) < 1e-6 and abs(start - round(start)) < 1e-6:
            return cls.whole(cells, round(whole), round(start), round(start) + size)
        centre = low + (np.arange(size) + 0.5) * step
        cell = np.clip(np.floor(centre), 0, cells - 1).astype(np.int64)
        return cls(cell, centre - cell - 0.5, step)


def axes(
    shape: tuple[int, int],
    scale: float | Sequence[float] | None,
    size: Sequence[int] | None,
    region: Sequence[float] | None,
) -> tuple[Axis, Axis]:
    """The row and column axes of an output, from what the user asked of an image of `shape`."""
    if (scale is None) == (size is None):
        raise InvalidInput("Rendering needs either a scale or a size; give exactly one of the two.")
    low, high = _region(shape, region)
    sizes: Sequence[int]
    if size is not None:
        sizes = output_size(size)
    else:
        scales = _pair("scale", scale)
        if any(s <= 0 for s in scales):
            raise InvalidInput(f"scale={scale!r} cannot be rendered; a scale must be above 0.")
        _check_pixels(*((b - a) * s for a, b, s in zip(low, high, scales, strict=True)))
        whole = [round(n * s) for n, s in zip(shape, scales, strict=True)]
        if min(whole) < 1:
            raise InvalidInput(
                f"scale={scale!r} leaves no pixel of an image of {shape[0]}×{shape[1]}; use a larger scale."
            )
        # The whole output has a whole number of pixels. A region uses the scale that this gives.
        sizes = [max(1, round((b - a) * N / n)) for a, b, N, n in zip(low, high, whole, shape, strict=True)]
    rows, cols = (Axis.part(n, N, a, b) for n, N, a, b in zip(shape, sizes, low, high, strict=True))
    return rows, cols


def cells_below(rows: Axis, cols: Axis) -> Box:
    """The cells that the output pixels of two axes lie in."""
    down, along = rows.cells, cols.cells
    return down.start, along.start, down.stop, along.stop


def window_around(cells: Sequence[np.ndarray], margins: Sequence[int], shape: tuple[int, int]) -> Box:
    """The smallest window that holds cells (their rows and their columns) and margins, cut to the picture."""
    top, left = (max(0, int(cell.min()) - margin) for cell, margin in zip(cells, margins, strict=True))
    bottom, right = (
        min(n, int(cell.max()) + 1 + margin) for n, cell, margin in zip(shape, cells, margins, strict=True)
    )
    return top, left, bottom, right


def output_size(size: Sequence[int]) -> tuple[int, int]:
    """(H', W') as whole numbers of at least 1."""
    sizes = _pair("size", size)
    if np.ndim(size) == 0 or any(s != int(s) or s < 1 for s in sizes):
        raise InvalidInput(f"size={size!r} is not an output size; give two whole numbers of at least 1.")
    _check_pixels(*sizes)
    return int(sizes[0]), int(sizes[1])


def _check_pixels(rows: float, cols: float) -> None:
    if rows * cols > MOST_PIXELS:
        raise InvalidInput(
            f"An output of {cols:.6g}×{rows:.6g} has {rows * cols:.3g} pixels, more than the {MOST_PIXELS:,} "
            "that can be rendered; ask for fewer, or for a region."
        )


def _region(shape: tuple[int, int], region: Sequence[float] | None) -> tuple[list[float], list[float]]:
    if region is None:
        return [0.0, 0.0], [float(n) for n in shape]
    try:
        top, left, bottom, right = (float(edge) for edge in region)
    except (TypeError, ValueError):
        top = math.nan
    if not (math.isfinite(top) and 0 <= top < bottom <= shape[0] and 0 <= left < right <= shape[1]):
        raise InvalidInput(
            f"region={region!r} is not a part of an image of {shape[0]}×{shape[1]}; "
            "give (top, left, bottom, right) in input pixels, within the image and not empty."
        )
    return [top, left], [bottom, right]


def _pair(name: str, value: Any) -> list[float]:
    """Two finite numbers, from a number or a pair."""
    try:
        pair = [float(item) for item in (value if np.ndim(value) else (value, value))]
    except (TypeError, ValueError):
        pair = []
    if len(pair) != 2 or not all(math.isfinite(item) for item in pair):
        raise InvalidInput(f"{name}={value!r} cannot be used; give a finite number, or two: (rows, columns).")
    return pair


@dataclass(frozen=True)
class Patches:
    """An axis cut into patches of `length` equally spaced samples.

    Patch u samples cell[u] at the offsets x = shift[u] + j·step for j < length. All patches have the same
    spacing, and a shift only changes the phase, so that one matrix product evaluates them at any scale.
    """

    cell: np.ndarray
    shift: np.ndarray
    length: int
    step: float
    index: np.ndarray | None  # the sample of each output pixel; None if they are in order

    @classmethod
    def of(cls, axis: Axis, largest: int = LARGEST_PATCH) -> Patches:
        position = np.arange(len(axis))
        starts = np.flatnonzero(np.diff(axis.cell, prepend=-1))
        run = np.searchsorted(starts, position, side="right") - 1
        within = position - starts[run]
        longest = int(within.max()) + 1
        length = math.ceil(longest / math.ceil(longest / largest))
        first = within % length == 0
        patch = np.cumsum(first) - 1
        index = patch * length + within % length
        in_order = len(index) == (patch[-1] + 1) * length
        return cls(axis.cell[first], axis.offset[first], length, axis.step, None if in_order else index)

    @property
    def offsets(self) -> np.ndarray:
        return np.arange(self.length) * self.step


@dataclass(frozen=True)
class Taps:
    """The samples that each output pixel averages, and their weights, both (size, taps)."""

    index: np.ndarray
    weight: np.ndarray

    def __len__(self) -> int:
        return len(self.index)

    def band(self, start: int, stop: int) -> tuple[slice, Taps]:
        """The range of samples that output pixels [start, stop) use, and their taps within it."""
        index, weight = self.index[start:stop], self.weight[start:stop]
        first = int(index.min())
        return slice(first, int(index.max()) + 1), Taps(index - first, weight)


@dataclass(frozen=True)
class BlendTaps:
    """The sample of each output pixel in its own cell. The pixels `at` lie near a border and blend in the
    sample `other` of the neighbouring cell, weighted by `share`."""

    index: np.ndarray  # (size,)
    at: np.ndarray
    other: np.ndarray
    share: np.ndarray

    def __len__(self) -> int:
        return len(self.index)

    def band(self, start: int, stop: int) -> tuple[slice, BlendTaps]:
        """As in `Taps`."""
        index, some = self.index[start:stop], slice(*np.searchsorted(self.at, (start, stop)))
        taken = np.concatenate([index, self.other[some]])
        first = int(taken.min())
        part = BlendTaps(index - first, self.at[some] - start, self.other[some] - first, self.share[some])
        return slice(first, int(taken.max()) + 1), part


@dataclass(frozen=True)
class AxisSampling:
    """How output pixels sample the field along one axis.

    Each sample of `axis` has a footprint of `step` input pixels. `taps` combine samples of several cells into
    an output pixel; without them every sample is an output pixel.
    """

    axis: Axis
    step: float
    taps: Taps | BlendTaps | None = None

    def band(self, start: int, stop: int) -> AxisSampling:
        """The sampling of output pixels [start, stop) alone."""
        if self.taps is None:
            return AxisSampling(self.axis[start:stop], self.step)
        part, taps = self.taps.band(start, stop)
        return AxisSampling(self.axis[part], self.step, taps)

    def __len__(self) -> int:
        return len(self.axis if self.taps is None else self.taps)


def sample_axis(axis: Axis, cells: int, psf: Filter, kappa: float, order: int) -> AxisSampling:
    """Choose the samples of an axis: one per output pixel, or several where the footprint exceeds a cell.

    Output pixels smaller than `psf.finest` use that size, and cells are blended at their borders.

    A local field ends with its cell, so damping its components cannot average neighbouring pixels. That takes
    samples of several cells, 1/m apart, each already filtered with a footprint of 1/m. Weights are normalised
    over the image, so that its borders stay unbiased.
    """
    footprint = psf.footprint
    if axis.step < psf.finest:
        return AxisSampling(axis, psf.finest) if order else blend_cells(axis, cells, psf.finest)
    if footprint is None or footprint * axis.step <= 1:
        return AxisSampling(axis, axis.step)
    size = footprint * axis.step
    m = max(math.ceil(SAMPLES_PER_FOOTPRINT / size), 2 if size < SMALL_FOOTPRINT else 1)
    radius = psf.radius(size, 1 / m, kappa) * m
    centre = axis.centre * m - 0.5
    index = np.floor(centre - radius).astype(np.int64)[:, None] + np.arange(math.ceil(2 * radius) + 2)
    inside = (index >= 0) & (index < cells * m)
    distance = (index - centre[:, None]) / m
    # u = g / Σg, with derivatives by the product rule (u·Σg)' = g': those of a constant are 0.
    g = [weight * inside for weight in psf.spread(distance, size, 1 / m, kappa, order)]
    u: list[np.ndarray] = []
    for k in range(order + 1):
        known = sum(math.comb(k, j) * u[j] * g[k - j].sum(1, keepdims=True) for j in range(k))
        u.append((g[k] - known) / g[0].sum(1, keepdims=True))
    used = np.any(u[order] != 0, axis=0)
    index = np.clip(index[:, used], 0, cells * m - 1)
    fine = AxisSampling(Axis.whole(cells, cells * m), 1 / (m * footprint), Taps(index, u[order][:, used]))
    return fine.band(0, len(axis))


def blend_cells(axis: Axis, cells: int, step: float) -> AxisSampling:
    """Sample an axis so that neighbouring cells are blended linearly at their common border."""
    centre = axis.centre
    cell = np.arange(max(axis.cell[0] - 1, 0), min(axis.cell[-1] + 2, cells))
    reach = 1.001 * BLEND_REACH  # a little more, so that rounding never leaves out a sample that is needed
    begin, end = np.searchsorted(centre, cell - reach), np.searchsorted(centre, cell + 1 + reach)
    first = np.cumsum(end - begin) - end  # output pixel i in cell p is sample first[p] + i
    output = np.arange(np.sum(end - begin)) - np.repeat(first, end - begin)
    owner = np.repeat(cell, end - begin)
    samples = Axis(owner, centre[output] - owner - 0.5, axis.step)

    own = axis.cell - cell[0]
    ahead = np.where(axis.offset > 0, 1, -1)  # the cell across the nearest border
    gap = 0.5 - np.abs(axis.offset)
    inside = (axis.cell + ahead >= 0) & (axis.cell + ahead < cells)
    at = np.flatnonzero((gap < BLEND_REACH) & inside)
    number = np.arange(len(axis))
    taps = BlendTaps(
        first[own] + number, at, (first[own + ahead * inside] + number)[at], 0.5 - gap[at] / (2 * BLEND_REACH)
    )
    return AxisSampling(samples, step, taps)
