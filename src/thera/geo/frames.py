"""A frame of the output: its samples, and which of them are valid."""

import numpy as np
from numpy.typing import NDArray

from thera.values.bands import Group
from thera.values.ranges import marked

from .raster import Raster

#: The side of the tiles in an output file.
TILE = 512

Part = tuple[slice, slice]  # rows and columns of a frame


class Frame:
    """The samples of one frame, h×w×bands, filled in group by group."""

    def __init__(self, raster: Raster, valid: NDArray[np.bool_]) -> None:
        """`valid`: h×w×bands, which samples have a value."""
        self.raster = raster
        self.valid = valid
        self.samples = np.zeros(valid.shape, raster.dtype)

    def extent(self, group: Group, part: Part = (slice(None), slice(None))) -> Part | None:
        """The smallest part with all valid samples of a group; None if there are none."""
        valid = np.any(self.valid[part][..., list(group.bands)], axis=-1)
        rows, cols = (np.flatnonzero(np.any(valid, axis=axis)) for axis in (1, 0))
        if not len(rows):
            return None
        return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(cols[0]), int(cols[-1]) + 1)

    def finished(self) -> NDArray:
        """All samples, with nodata at the invalid ones, or NaN or 0 if the raster has no nodata value."""
        if self.raster.declared is not None:
            return marked(self.samples, self.valid, self.raster.declared)
        nothing = self.raster.dtype.type(np.nan if self.raster.dtype.kind == "f" else 0)
        return np.where(self.valid, self.samples, nothing)

    @property
    def mask(self) -> NDArray[np.bool_] | None:
        """Where some band is valid, if the raster has a mask."""
        return np.any(self.valid, axis=-1) if self.raster.masked else None
