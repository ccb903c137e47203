"""Where output pixels lie: sizes, scales, regions, and the cells their centres fall in.

Positions are in input pixels from the top left corner: input pixel p spans [p, p + 1), its centre is p + ½.
Output pixel i of N over an axis of n input pixels has its centre at (i + ½)·n/N (align_corners=False).
All of it is small, computed once per rendering on the host in float64 or exact integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thera.errors import InvalidInput
from thera.field.psf import Filter

# A cell magnified more than this is evaluated in parts, so that the table of offsets stays small.
LARGEST_PATCH = 40
# Samples per footprint that make an average over samples an accurate integral. A footprint of a few pixels
# has two to each of them besides: there is detail in a field that is finer than its pixels, and would alias.
SAMPLES_PER_FOOTPRINT, FEW_PIXELS = 3, 6
# A scale or a size that asks for more, 100 gigapixels, is taken for a slip.
MOST_PIXELS = 10**11
# Where cells can be seen, they give way to each other so many input pixels before and behind a border:
# their fields were learnt one by one, and differ there by a grey level or two.
OVERLAP = 0.1


Box = tuple[int, int, int, int]  # top, left, bottom, right: cells [top, bottom) × [left, right)


@dataclass(frozen=True)
class Axis:
    """The centres of output pixels along one axis: the cell each falls in and its offset in [-½, ½] there."""

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

    def since(self, cell: int) -> Axis:
        """The same output pixels, with cells counted from `cell` on."""
        return Axis(self.cell - cell, self.offset, self.step)

    def within(self, low: int, high: int) -> slice:
        """The output pixels whose centres lie in the cells [low, high)."""
        first, last = np.searchsorted(self.cell, [low, high])
        return slice(int(first), int(last))

    @classmethod
    def whole(cls, cells: int, size: int, start: int = 0, stop: int | None = None) -> Axis:
        """Output pixels [start, stop) of `size` over all cells, exact also where a centre is on a border."""
        i = np.arange(start, size if stop is None else stop, dtype=np.int64)
        cell, rest = np.divmod((2 * i + 1) * cells, 2 * size)
        return cls(cell, rest / (2 * size) - 0.5, cells / size)

    @classmethod
    def part(cls, cells: int, size: int, low: float, high: float) -> Axis:
        """`size` output pixels over [low, high]; the same numbers as `whole` gives where they coincide."""
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
    """The row and column axes of a rendering of an image of `shape`, from what the user asked for."""
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
        # The scale that holds is the one the whole output's size gives, also for a region of it.
        sizes = [max(1, round((b - a) * N / n)) for a, b, N, n in zip(low, high, whole, shape, strict=True)]
    rows, cols = (Axis.part(n, N, a, b) for n, N, a, b in zip(shape, sizes, low, high, strict=True))
    return rows, cols


def output_size(size: Sequence[int]) -> tuple[int, int]:
    """(H', W') as whole numbers of at least 1."""
    sizes = _pair("size", size)
    if np.ndim(size) == 0 or any(s != int(s) or s < 1 for s in sizes):
        raise InvalidInput(f"size={size!r} is no output size; give two whole numbers of at least 1.")
    _check_pixels(*sizes)
    return int(sizes[0]), int(sizes[1])


def _check_pixels(rows: float, cols: float) -> None:
    if rows * cols > MOST_PIXELS:
        raise InvalidInput(
            f"An output of {cols:.6g}×{rows:.6g} has {rows * cols:.3g} pixels, more than the {MOST_PIXELS:,} "
            "that are rendered; ask for fewer, or for a region."
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
            f"region={region!r} is no part of an image of {shape[0]}×{shape[1]}; "
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
    """An axis as patches of equally spaced offsets, `length` each: patch u reads cell[u] from shift[u] on.

    Equal spacing is what makes one matrix product of any scale: x = shift[u] + j·step for j < length, and the
    shift is a change of phase.
    """

    cell: np.ndarray
    shift: np.ndarray
    length: int
    step: float
    index: np.ndarray | None  # where each output pixel lies among the patches' samples; None if in order

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
    """For each output pixel, which fine samples it averages and with which weights, both (size, taps)."""

    index: np.ndarray
    weight: np.ndarray

    def __len__(self) -> int:
        return len(self.index)

    def band(self, start: int, stop: int) -> tuple[slice, Taps]:
        """The samples that output pixels [start, stop) take, and how those take them."""
        index, weight = self.index[start:stop], self.weight[start:stop]
        first = int(index.min())
        return slice(first, int(index.max()) + 1), Taps(index - first, weight)


@dataclass(frozen=True)
class Overlap:
    """For each output pixel the sample of its own cell; for those `at` some places that of another, and how
    much of it."""

    index: np.ndarray  # (size,)
    at: np.ndarray
    other: np.ndarray
    share: np.ndarray

    def __len__(self) -> int:
        return len(self.index)

    def band(self, start: int, stop: int) -> tuple[slice, Overlap]:
        """As of `Taps`."""
        index, some = self.index[start:stop], slice(*np.searchsorted(self.at, (start, stop)))
        taken = np.concatenate([index, self.other[some]])
        first = int(taken.min())
        part = Overlap(index - first, self.at[some] - start, self.other[some] - first, self.share[some])
        return slice(first, int(taken.max()) + 1), part


@dataclass(frozen=True)
class Reading:
    """How one axis is read: samples of the field, each through a footprint of `step` input pixels, and, where
    an output pixel takes several of them, across cells, what it makes of them (`taps`)."""

    axis: Axis
    step: float
    taps: Taps | Overlap | None = None

    def band(self, start: int, stop: int) -> Reading:
        """The reading of output pixels [start, stop) alone."""
        if self.taps is None:
            return Reading(self.axis[start:stop], self.step)
        part, taps = self.taps.band(start, stop)
        return Reading(self.axis[part], self.step, taps)

    def __len__(self) -> int:
        return len(self.axis if self.taps is None else self.taps)


def reading(axis: Axis, cells: int, psf: Filter, kappa: float, order: int) -> Reading:
    """Read an axis directly, or, where the footprint exceeds a cell, through finer samples across cells; or,
    where output pixels are finer than the filter is made for, as of that size, and without seams.

    A local field ends with its cell, so damping its components cannot average neighbouring pixels: that takes
    samples of several cells. They lie 1/m apart, enough of them in a footprint, and each has passed the
    filter at a footprint of 1/m already. Weights are normalised over the image, so borders stay unbiased.
    """
    footprint = psf.footprint
    if axis.step < psf.finest:
        return Reading(axis, psf.finest) if order else overlapping(axis, cells, psf.finest)
    if footprint is None or footprint * axis.step <= 1:
        return Reading(axis, axis.step)
    size = footprint * axis.step
    m = max(math.ceil(SAMPLES_PER_FOOTPRINT / size), 2 if size < FEW_PIXELS else 1)
    radius = psf.radius(size, 1 / m, kappa) * m
    centre = axis.centre * m - 0.5
    index = np.floor(centre - radius).astype(np.int64)[:, None] + np.arange(math.ceil(2 * radius) + 2)
    inside = (index >= 0) & (index < cells * m)
    distance = (index - centre[:, None]) / m
    # u = g / Σg and its derivatives by the product rule (u·Σg)' = g', so that constants have none.
    g = [weight * inside for weight in psf.spread(distance, size, 1 / m, kappa, order)]
    u: list[np.ndarray] = []
    for k in range(order + 1):
        known = sum(math.comb(k, j) * u[j] * g[k - j].sum(1, keepdims=True) for j in range(k))
        u.append((g[k] - known) / g[0].sum(1, keepdims=True))
    used = np.any(u[order] != 0, axis=0)
    index = np.clip(index[:, used], 0, cells * m - 1)
    fine = Reading(Axis.whole(cells, cells * m), 1 / (m * footprint), Taps(index, u[order][:, used]))
    return fine.band(0, len(axis))


def overlapping(axis: Axis, cells: int, step: float) -> Reading:
    """Read an axis where every cell reaches beyond its borders, and gives way there to the next, linearly."""
    centre = axis.centre
    cell = np.arange(max(axis.cell[0] - 1, 0), min(axis.cell[-1] + 2, cells))
    reach = 1.001 * OVERLAP  # what is read has to contain what is needed, however that is rounded
    begin, end = np.searchsorted(centre, cell - reach), np.searchsorted(centre, cell + 1 + reach)
    first = np.cumsum(end - begin) - end  # output pixel i in cell p is sample first[p] + i
    output = np.arange(np.sum(end - begin)) - np.repeat(first, end - begin)
    owner = np.repeat(cell, end - begin)
    samples = Axis(owner, centre[output] - owner - 0.5, axis.step)

    own = axis.cell - cell[0]
    ahead = np.where(axis.offset > 0, 1, -1)  # to the nearest border, and the cell behind it
    gap = 0.5 - np.abs(axis.offset)
    inside = (axis.cell + ahead >= 0) & (axis.cell + ahead < cells)
    at = np.flatnonzero((gap < OVERLAP) & inside)
    number = np.arange(len(axis))
    taps = Overlap(
        first[own] + number, at, (first[own + ahead * inside] + number)[at], 0.5 - gap[at] / (2 * OVERLAP)
    )
    return Reading(samples, step, taps)
