"""Outputs in frames: rectangles of whole tiles, computed and written one after the other."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from thera.field.grid import Box
from thera.models import Model
from thera.values.bands import Group
from thera.values.ranges import Range, marked

from .raster import Raster

#: A side of the tiles of an output.
TILE = 512

Part = tuple[slice, slice]  # rows and columns of a frame
WHOLE: Part = (slice(None), slice(None))


def frames(size: tuple[int, int], side: int) -> Iterator[Box]:
    """Squares of `side`, less at the right and below, that cover an output row by row.

    >>> list(frames((3, 5), 4))
    [(0, 0, 3, 4), (0, 4, 3, 5)]
    """
    for top in range(0, size[0], side):
        for left in range(0, size[1], side):
            yield top, left, min(top + side, size[0]), min(left + side, size[1])


def fill_levels(model: Model) -> int:
    """Halvings of the picture after which one cell is as wide as what the network sees on one side of it."""
    return max(1, (model.info.halo - 1).bit_length())


class Frame:
    """The samples of one frame, h×w×bands: group after group put in, then finished."""

    def __init__(self, raster: Raster, valid: NDArray[np.bool_]) -> None:
        """`valid`: h×w×bands, which of the samples there shall be."""
        self.raster = raster
        self.valid = valid
        self.samples = np.zeros(valid.shape, raster.dtype)

    def needs(self, group: Group, part: Part) -> bool:
        """Whether there is a valid sample of a group in a part of the frame."""
        return any(bool(self.valid[(*part, band - 1)].any()) for band in group.bands)

    def extent(self, group: Group) -> Part | None:
        """The least part of the frame that holds all valid samples of a group; None if there are none."""
        valid = np.any(self.valid[..., [band - 1 for band in group.bands]], axis=-1)
        rows, cols = (np.flatnonzero(np.any(valid, axis=axis)) for axis in (1, 0))
        if not len(rows):
            return None
        return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(cols[0]), int(cols[-1]) + 1)

    def put(self, group: Group, span: Range, values: NDArray[np.float32], part: Part = WHOLE) -> None:
        """Stores h×w×3 floats, 0 and 1 being `span`, in the units of the raster, in a part of the frame."""
        if len(group.bands) == 1:
            values = values.mean(axis=2, keepdims=True)
        for i, band in enumerate(group.bands):
            self.samples[(*part, band - 1)] = span.restore(values[..., i], self.raster.dtype)

    def finished(self) -> NDArray:
        """All samples, and nodata (NaN or 0 where the raster has none) at those that are not valid."""
        if self.raster.declared is not None:
            return marked(self.samples, self.valid, self.raster.declared)
        nothing = self.raster.dtype.type(np.nan if self.raster.dtype.kind == "f" else 0)
        return np.where(self.valid, self.samples, nothing)

    @property
    def mask(self) -> NDArray[np.bool_] | None:
        """Where the raster's mask shows anything, if it has one."""
        return np.any(self.valid, axis=-1) if self.raster.masked else None
