"""Transparent pixels and nodata: filling them in for the network, and keeping alpha exactly empty or full.

A file may store anything under a transparent pixel, mostly black, and nodata is no value at all. Both would
make a network draw dark fringes along every edge, so they are filled in from visible values around them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thera.field.grid import Axis

#: Positions closer than this, in input pixels, are the same.
ROUNDING = 1e-6


def fill_invalid(
    values: NDArray[np.float32],
    known: NDArray[np.bool_],
    levels: int,
    default: float | NDArray[np.float32] = 0.5,
) -> NDArray[np.float32]:
    """H×W×C values, with those that are not `known` (H×W×C) filled in.

    Each unknown value becomes the mean of the known values in the smallest block around it that has any,
    blended with its neighbours' means. The largest blocks have a side of 2 to the power of `levels`. Where
    even these hold no known value, the result is `default`.

    >>> fill_invalid(np.float32([[[3], [0], [0]]]), np.array([[[True], [False], [False]]]), 2)[0, :, 0]
    array([3., 3., 3.], dtype=float32)
    """
    filled, reached = _filled(values, known, levels)
    return np.where(reached, filled, np.asarray(default, np.float32))


def _filled(
    values: NDArray[np.float32], known: NDArray[np.bool_], levels: int
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The values, filled in where a block holds known ones, and where they are known or filled in."""
    if levels == 0 or known.all() or not known.any():
        return values, known
    coarse, there = _filled(*_halved(values, known), levels - 1)
    fill, weight = (_doubled(each, known.shape[:2]) for each in (coarse * there, there.astype(np.float32)))
    np.divide(fill, weight, out=fill, where=weight > 0)
    return np.where(known, values, fill), known | (weight > 0)


def _halved(values: NDArray, known: NDArray[np.bool_]) -> tuple[NDArray, NDArray[np.bool_]]:
    """The mean of the known values of each 2×2 block, and which blocks have any."""
    H, W = -(-values.shape[0] // 2), -(-values.shape[1] // 2)
    total = np.zeros((H, W, values.shape[2]), np.result_type(values.dtype, np.float32))
    count = np.zeros((H, W, known.shape[2]), np.float32)
    for i in (0, 1):
        for j in (0, 1):
            part, there = values[i::2, j::2], known[i::2, j::2]
            h, w = part.shape[:2]
            total[:h, :w] += np.where(there, part, 0)
            count[:h, :w] += there
    return np.divide(total, count, out=total, where=count > 0), count > 0


def _doubled(coarse: NDArray, shape: tuple[int, int]) -> NDArray:
    """`coarse`, interpolated linearly between its centres to an image of `shape`."""

    def between(axis: int) -> tuple[NDArray, NDArray, NDArray[np.float32]]:
        position = (np.arange(shape[axis]) + 0.5) / 2 - 0.5
        low = np.floor(position).astype(int)
        last = coarse.shape[axis] - 1
        return np.clip(low, 0, last), np.clip(low + 1, 0, last), (position - low).astype(np.float32)

    a, b, f = between(0)
    lines = coarse[a] * (1 - f)[:, None, None] + coarse[b] * f[:, None, None]
    a, b, f = between(1)
    return lines[:, a] * (1 - f)[:, None] + lines[:, b] * f[:, None]


class AlphaLimits:
    """Limits alpha at each output pixel to the range of the input pixels around it.

    Opaque areas stay exactly opaque, and transparent ones transparent. Otherwise the network's ripple of half
    a percent would leave a veil, and its ringing along hard edges a row of dots. No edge is lost, because
    even the sharpest one lies within that range.
    """

    def __init__(self, alpha: NDArray, size: Sequence[float]) -> None:
        """`size`: the size that the whole output of this alpha would have."""
        self.steps = [n / N for n, N in zip(alpha.shape, size, strict=True)]
        self.low = self.high = alpha
        if max(self.steps) > 1:  # an output pixel covers several input pixels, and may reach one farther
            reach = tuple(round(step / 2) for step in self.steps)
            self.low, self.high = (extreme(alpha, reach, pick) for pick in (np.minimum, np.maximum))

    def at(self, rows: Axis, cols: Axis) -> tuple[NDArray, NDArray]:
        """The lowest and highest alpha of the output pixels at these rows and columns."""
        return self._among([np.ix_(r, c) for r in self._between(rows, 0) for c in self._between(cols, 1)])

    def near(self, points: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
        """The lowest and highest alpha of output pixels at points (..., 2): row and column of each."""
        cells = np.floor(points).astype(np.int64)
        rows, cols = (Axis(cells[..., i], points[..., i] - cells[..., i] - 0.5, 1.0) for i in (0, 1))
        return self._among([(r, c) for r in self._between(rows, 0) for c in self._between(cols, 1)])

    def _among(self, corners: list[tuple[NDArray, ...]]) -> tuple[NDArray, NDArray]:
        low, high = (plane[corners[0]] for plane in (self.low, self.high))
        for corner in corners[1:]:
            np.minimum(low, self.low[corner], out=low)
            np.maximum(high, self.high[corner], out=high)
        return low, high

    def _between(self, axis: Axis, which: int) -> list[NDArray[np.int64]]:
        """The two cells between whose centres each output pixel lies; on a centre, that cell twice."""
        last = self.low.shape[which] - 1
        other = axis.cell + np.where(axis.offset < 0, -1, 1)
        if self.steps[which] > 1 - ROUNDING:
            other = np.where(np.abs(axis.offset) < ROUNDING, axis.cell, other)
        return [np.clip(cell, 0, last) for cell in (axis.cell, other)]


def extreme(plane: NDArray, reach: tuple[int, ...], pick: np.ufunc) -> NDArray:
    """The smallest or largest value within `reach` pixels, along rows and then columns."""
    for axis in (0, 1):
        plane = _over(2 * reach[axis] + 1, plane, axis, reach[axis], pick, mode="edge")
    return plane


def uniform(cells: NDArray, reach: tuple[int, int]) -> NDArray[np.bool_]:
    """Which cells of an image h×w×n equal all others within `reach` rows and columns (≥ 1) of them: h×w.

    >>> uniform(np.array([[[1], [1], [1], [2], [2]]]), (1, 1))
    array([[ True,  True, False, False,  True]])
    """
    below = _equal(cells[:-1], cells[1:])
    beside = _equal(cells[:, :-1], cells[:, 1:])
    everywhere = partial(_over, pick=np.logical_and, constant_values=True)
    column = everywhere(2 * reach[0], below, 0, reach[0])  # from the first to the last row in reach
    row = everywhere(2 * reach[1], beside, 1, reach[1])
    return row & everywhere(2 * reach[1] + 1, column, 1, reach[1])


def _over(count: int, plane: NDArray, axis: int, margin: int, pick: np.ufunc, **padding: Any) -> NDArray:
    """Applies `pick` to each `count` neighbours along an axis, after `np.pad` has added a margin to it."""
    edges = [(margin, margin) if i == axis else (0, 0) for i in range(plane.ndim)]
    padded = np.moveaxis(np.pad(plane, edges, **padding), axis, 0)
    result = padded[: len(padded) - count + 1].copy()
    for shift in range(1, count):
        pick(result, padded[shift : shift + len(result)], out=result)
    return np.moveaxis(result, 0, axis)


def _equal(a: NDArray, b: NDArray) -> NDArray[np.bool_]:
    """Where all values of two images are the same. Bands are compared one by one, for `all` is slow."""
    same = np.ones(a.shape[:2], bool)
    for band in range(a.shape[2]):
        same &= a[..., band] == b[..., band]
    return same
