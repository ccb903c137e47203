"""The samples of a picture, read in windows, and which of them are valid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from thera.field.grid import Axis, Box, cells_below
from thera.values.bands import Bands


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
        if min(rows.start, cols.start) < 0 or window.shape[:2] != (box[2] - box[0], box[3] - box[1]):
            raise IndexError(f"The window {box} is not in the part of shape {self.array.shape[:2]}.")
        # A view where bands are neighbours, as they mostly are.
        neighbours = list(bands) == list(range(bands[0], bands[-1] + 1))
        samples = window[..., bands[0] : bands[-1] + 1] if neighbours else window[..., list(bands)]
        if not self.bands.partial:
            return samples, None
        alpha = None if self.bands.alpha is None else window[..., self.bands.alpha]
        return samples, self.bands.valid(samples, bands, alpha)


def valid_below(samples: Samples, bands: Bands, box: Box) -> NDArray[np.bool_] | None:
    """Which samples of a window are valid whatever their alpha, h×w×bands; None if all are.

    An output pixel is valid if the input pixel under its centre is, and if `Bands.hide` leaves it.
    """
    every = range(bands.count)
    given, valid = samples.read(box, every)
    return valid if bands.alpha is None else bands.valid(given, every)


def valid_on_axes(samples: Samples, bands: Bands, rows: Axis, cols: Axis) -> NDArray[np.bool_] | None:
    """Which samples of output pixels are valid whatever their alpha, h×w×bands; None if all are."""
    valid = valid_below(samples, bands, cells_below(rows, cols))
    if valid is None:
        return None
    return valid[np.ix_(rows.cell - rows.cells.start, cols.cell - cols.cells.start)]
