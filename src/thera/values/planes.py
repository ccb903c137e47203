"""From a group of bands to what a network sees, three colours in [0, 1], and back to samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from thera.field.grid import Axis, Box
from thera.values.alpha import ROUNDING, AlphaLimits, fill_invalid
from thera.values.bands import Bands, Group
from thera.values.ranges import Range


class Samples(Protocol):
    """The samples of a picture of any size, read in windows."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> np.dtype: ...
    def read(self, box: Box, bands: Sequence[int]) -> tuple[NDArray, NDArray[np.bool_] | None]:
        """Samples h×w×n of some bands in a window, and which of them are valid; None if all are."""


@dataclass(frozen=True)
class ArraySamples:
    """Samples in memory of a whole picture, or of a part at `origin` in a picture of shape `whole`."""

    array: NDArray  # h×w×bands
    bands: Bands
    whole: tuple[int, int] | None = None
    origin: tuple[int, int] = (0, 0)

    @property
    def shape(self) -> tuple[int, int]:
        return self.whole or (self.array.shape[0], self.array.shape[1])

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    def read(self, box: Box, bands: Sequence[int]) -> tuple[NDArray, NDArray[np.bool_] | None]:
        rows, cols = (
            slice(low - start, high - start)
            for low, high, start in zip(box[:2], box[2:], self.origin, strict=True)
        )
        window = self.array[rows, cols]
        # A view where bands are neighbours, as they mostly are.
        neighbours = list(bands) == list(range(bands[0], bands[-1] + 1))
        samples = window[..., bands[0] : bands[-1] + 1] if neighbours else window[..., list(bands)]
        alpha = None if self.bands.alpha is None else window[..., self.bands.alpha]
        return samples, self.bands.valid(samples, bands, alpha)


@dataclass(frozen=True)
class Plane:
    """A group of bands as the source of a `TiledField`: cells are h×w×3 floats in [0, 1].

    `span` holds the sample values that become 0 and 1. Invalid samples are filled in from valid ones around
    them, about as far as `reach`. The filling depends only on blocks of side 2 to the power of `levels`,
    never on the window. Farther away from all that is valid, samples that are hidden stay as they are, and
    nodata is the middle of `span`.
    """

    samples: Samples
    group: Group
    span: Range
    reach: int
    has_nodata: bool = False

    @property
    def levels(self) -> int:
        return fill_levels(self.reach)

    @property
    def shape(self) -> tuple[int, int]:
        return self.samples.shape

    def cells(self, box: Box) -> NDArray[np.float32]:
        """The pixels of a window as the network sees them."""
        samples, valid = self.samples.read(box, self.group.bands)
        if valid is None:
            values = self.span.normalise(samples)
        else:
            wide = self._around(box)
            samples, valid = self.samples.read(wide, self.group.bands)
            values = self.span.normalise(samples)
            if valid is not None:
                keep = np.isfinite(values) & (not self.has_nodata)
                far = np.where(keep, values, np.float32(0.5))
                values = fill_invalid(np.where(valid, values, np.float32(0)), valid, self.levels, far)
            top, left = box[0] - wide[0], box[1] - wide[1]
            values = values[top : top + box[2] - box[0], left : left + box[3] - box[1]]
        if self.group.inks:
            values = 1 - values
        return values if values.shape[2] == 3 else np.repeat(values, 3, axis=2)

    def reaching(self, cells: int) -> Plane:
        """The same plane, with invalid samples filled in as far as a filter reaches."""
        return replace(self, reach=max(self.reach, cells))

    def _around(self, box: Box) -> Box:
        """The window that invalid samples of a box are filled in from: three blocks more on each side."""
        block = 2**self.levels
        top, left = (max(0, low // block - 3) * block for low in box[:2])
        bottom, right = (
            min(n, (-(-high // block) + 3) * block) for n, high in zip(self.shape, box[2:], strict=True)
        )
        return top, left, bottom, right

    def constant(self, box: Box) -> NDArray | None:
        """The alpha of a window if it is the same everywhere; None if not, or if the group is no alpha."""
        if not self.group.alpha:
            return None
        alpha = self.samples.read(box, self.group.bands)[0]
        return alpha[0, 0, 0] if alpha.min() == alpha.max() else None

    def put(self, values: NDArray[np.float32], rows: Axis, cols: Axis, out: NDArray) -> None:
        """Stores n×W'×3 values in the group's bands of `out`, n×W'×bands samples at these output pixels."""
        limits = None
        if self.group.alpha:
            box = self.alpha_window((rows.cell, cols.cell), (rows.step, cols.step))
            alpha = self.samples.read(box, self.group.bands)[0][..., 0]
            size = [n / axis.step for n, axis in zip(alpha.shape, (rows, cols), strict=True)]
            limits = AlphaLimits(alpha, size).at(rows.since(box[0]), cols.since(box[1]))
        self.store(values, out, limits)

    def put_at(
        self, values: NDArray[np.float32], points: NDArray[np.float64], footprint: float, out: NDArray
    ) -> None:
        """Stores N×3 values in the group's bands of `out`, N×bands samples at points (N, 2).

        `footprint`: the size of the largest output pixel among them, in input pixels.
        """
        limits = None
        if self.group.alpha:
            box = self.alpha_window(list(np.floor(points).astype(np.int64).T), (footprint, footprint))
            alpha = self.samples.read(box, self.group.bands)[0][..., 0]
            size = [n / max(footprint, ROUNDING) for n in alpha.shape]
            limits = AlphaLimits(alpha, size).near(points - box[:2])
        self.store(values, out, limits)

    def alpha_window(self, cells: Sequence[NDArray[np.int64]], steps: Sequence[float]) -> Box:
        """The window whose alpha limits the alpha of output pixels in these rows and columns of cells."""
        margins = [math.ceil(step) + 1 for step in steps]
        top, left = (max(0, int(c.min()) - margin) for c, margin in zip(cells, margins, strict=True))
        bottom, right = (
            min(n, int(c.max()) + 1 + margin) for n, c, margin in zip(self.shape, cells, margins, strict=True)
        )
        return top, left, bottom, right

    def store(
        self, values: NDArray[np.float32], out: NDArray, limits: tuple[NDArray, NDArray] | None = None
    ) -> None:
        """Stores …×3 values in the group's bands of `out`. `limits`: the lowest and highest samples."""
        bands = self.group.bands
        if len(bands) == 1:
            values = values.mean(axis=-1, keepdims=True)
        if self.group.inks:
            values = 1 - values
        if limits is not None:
            low, high = (self.span.normalise(limit) for limit in limits)
            values = np.clip(values, low[..., None], high[..., None])
        # A format that cannot hold the input's type gets another one, which samples span wholly.
        span = self.span if out.dtype == self.samples.dtype else Range.of(np.zeros(1, out.dtype))
        samples = span.restore(values, out.dtype)
        for i, band in enumerate(bands):
            out[..., band] = samples[..., i]


def fill_levels(halo: int) -> int:
    """Halvings of a picture after which one cell is as wide as what is seen on one side of it."""
    return max(1, (halo - 1).bit_length())


def fill_reach(halo: int) -> int:
    """How far from a window samples are read at most, where some of its own are invalid."""
    return 4 * 2 ** fill_levels(halo) - 1  # to the edge of a block, and three blocks more


def planes_of(samples: Samples, bands: Bands, spans: Sequence[Range], halo: int) -> list[Plane]:
    """One plane per group, colours before alpha. `halo`: how far the network sees."""
    nodata = any(value is not None for value in bands.nodata)
    return [
        Plane(samples, group, span, halo, nodata) for group, span in zip(bands.groups, spans, strict=True)
    ]
