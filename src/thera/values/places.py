"""Where output pixels lie in a picture, on a grid or at points, and what the pixels around them allow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from thera.field.grid import Axis, Box
from thera.values.alpha import ROUNDING, AlphaLimits

Limits = tuple[NDArray, NDArray]  # the lowest and the highest alpha of each output pixel


class Places(Protocol):
    """The places of output pixels. `box` is a window of the picture that holds all that they need."""

    @property
    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The row and the column of the cell of each output pixel, which broadcast."""

    @property
    def steps(self) -> tuple[float, float]:
        """The sides of the largest output pixel, in input pixels."""

    def interpolated(self, values: NDArray[np.float32], box: Box) -> NDArray[np.float32]:
        """The H×W×n values of a window, interpolated at the output pixels."""

    def limits(self, alpha: NDArray, box: Box) -> Limits:
        """Between which values the alpha of each output pixel may lie. `alpha`: that of a window, H×W."""


@dataclass(frozen=True)
class OnAxes:
    """Output pixels on the grid of two axes."""

    rows: Axis
    cols: Axis

    @property
    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self.rows.cell[:, None], self.cols.cell

    @property
    def steps(self) -> tuple[float, float]:
        return self.rows.step, self.cols.step

    def interpolated(self, values: NDArray[np.float32], box: Box) -> NDArray[np.float32]:
        return interpolated(values, *self._within(box))

    def limits(self, alpha: NDArray, box: Box) -> Limits:
        size = [n / step for n, step in zip(alpha.shape, self.steps, strict=True)]
        return AlphaLimits(alpha, size).at(*self._within(box))

    def _within(self, box: Box) -> tuple[Axis, Axis]:
        return self.rows.since(box[0]), self.cols.since(box[1])


@dataclass(frozen=True)
class AtPoints:
    """Output pixels at points (N, 2). `footprint`: the size of the largest of them, in input pixels."""

    points: NDArray[np.float64]
    footprint: float

    @property
    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows, cols = np.floor(self.points).astype(np.int64).T
        return rows, cols

    @property
    def steps(self) -> tuple[float, float]:
        return self.footprint, self.footprint

    def interpolated(self, values: NDArray[np.float32], box: Box) -> NDArray[np.float32]:
        return interpolated_at(values, self.points - box[:2], self.footprint)

    def limits(self, alpha: NDArray, box: Box) -> Limits:
        size = [n / max(self.footprint, ROUNDING) for n in alpha.shape]
        return AlphaLimits(alpha, size).near(self.points - box[:2])


def interpolated(values: NDArray[np.float32], rows: Axis, cols: Axis) -> NDArray[np.float32]:
    """H×W×n values at output pixels, linear between centres; averaged where an output pixel is larger.

    >>> interpolated(np.float32([[[0], [4]]]), Axis.whole(1, 1), Axis.whole(2, 4))[0, :, 0]
    array([0., 1., 3., 4.], dtype=float32)
    """
    for axis in (rows, cols):
        total = np.zeros((len(axis), *values.shape[1:]), np.float32)
        for cells, weight in _taps(axis.centre, axis.step, len(values)):
            total += weight.astype(np.float32)[:, None, None] * values[cells]
        values = np.moveaxis(total, 0, 1)
    return values


def interpolated_at(
    values: NDArray[np.float32], points: NDArray[np.float64], footprint: float
) -> NDArray[np.float32]:
    """H×W×n values at points (N, 2), each as large as `footprint`: N×n."""
    along = list(_taps(points[:, 1], footprint, values.shape[1]))
    total = np.zeros((len(points), values.shape[2]), np.float32)
    for row, down in _taps(points[:, 0], footprint, values.shape[0]):
        for col, across in along:
            total += (down * across).astype(np.float32)[:, None] * values[row, col]
    return total


def _taps(
    centre: NDArray[np.float64], step: float, length: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Linear interpolation at positions, tap by tap: the cell that each position reads, and its weight."""
    width = max(1.0, step)
    first = np.ceil(centre - width - 0.5).astype(np.int64)
    taps = [first + k for k in range(math.floor(2 * width) + 1)]
    weights = [np.maximum(0.0, 1 - np.abs(tap + 0.5 - centre) / width) for tap in taps]
    total = np.sum(weights, axis=0)
    for tap, weight in zip(taps, weights, strict=True):
        yield np.clip(tap, 0, length - 1), weight / total
