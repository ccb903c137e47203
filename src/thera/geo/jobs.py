"""A raster that is made frame by frame: what scaling and warping share."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError
from thera.field.grid import Box
from thera.files import check_place
from thera.imaging.formats import FORMATS, Format, format_of
from thera.tiled.plan import frames
from thera.values.bands import Group
from thera.values.ranges import Range, depth_name, marked
from thera.values.samples import Samples

from .behind import Behind
from .options import RasterOptions
from .raster import Raster
from .reading import Ahead, open_reader, reading_ahead
from .resuming import keeping
from .writing import GeoGrid, open_writer

Part = tuple[slice, slice]  # rows and columns of a frame


class Frame:
    """The samples of one frame of the output, h×w×bands, filled in group by group."""

    def __init__(self, raster: Raster, samples: NDArray, valid: NDArray[np.bool_] | None) -> None:
        """`valid`: h×w×bands, which samples have a value; None if all have."""
        self.raster = raster
        self.samples = samples
        self.valid = valid

    def extent(self, group: Group) -> Part | None:
        """The smallest part that holds all valid samples of a group; None if there are none."""
        if self.valid is None:
            return slice(0, self.samples.shape[0]), slice(0, self.samples.shape[1])
        valid = self.valid[..., list(group.bands)]
        rows, cols = (np.flatnonzero(valid.any(axis=axes)) for axes in ((1, 2), (0, 2)))
        if not len(rows):
            return None
        return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(cols[0]), int(cols[-1]) + 1)

    def finished(self) -> NDArray:
        """All samples, with nodata at the invalid ones, or NaN or 0 if the raster has no nodata value."""
        if self.raster.declared is not None:
            return marked(self.samples, True if self.valid is None else self.valid, self.raster.declared)
        if self.valid is None:
            return self.samples
        nothing = self.raster.dtype.type(np.nan if self.raster.dtype.kind == "f" else 0)
        return np.where(self.valid, self.samples, nothing)

    @property
    def mask(self) -> NDArray[np.bool_] | None:
        """Where some band is valid, if the raster has a mask."""
        if not self.raster.masked:
            return None
        return np.ones(self.samples.shape[:2], bool) if self.valid is None else np.any(self.valid, axis=-1)


@dataclass(frozen=True)
class RasterJob(ABC):
    """A raster that is described and checked, ready to be written to a file frame by frame."""

    raster: Raster
    spans: list[Range]  # the range of each of the raster's groups of bands
    grid: GeoGrid
    output: Path
    frame: int  # the side of the frames
    file: RasterOptions

    @property
    def size(self) -> tuple[int, int]:
        return self.grid.size

    @property
    def form(self) -> Format:
        return FORMATS["tiff"]

    @property
    def depth(self) -> str:
        return depth_name(self.raster.dtype)

    @property
    def written(self) -> Raster:
        """The description of the output's bands and tags."""
        return self.raster

    def run(self, progress: Callable[[int], object] = lambda pixels: None) -> None:
        """Writes the output, whole or not at all.

        While a frame is computed, the one before is written and the next one is read, in other threads.
        """
        keep = keeping(self.output, self.facts) if self.file.resume else nullcontext()
        with (
            keep as kept,
            open_reader(self.raster) as reader,
            open_writer(self.output, self.written, self.grid, self.file.cog, self.file.strip) as writer,
            Behind(1, pending=1) as behind,
            reading_ahead(self.raster) as ahead,
        ):
            boxes = list(frames(self.size, self.frame))
            ahead.ask(self._window(boxes[0]))
            for box, then in pairwise((*boxes, None)):
                assert box is not None
                window = ahead.take()
                ahead.ask(None if then is None else self._window(then))
                pixels = None if kept is None else kept.get(box)
                if pixels is None:
                    frame = self._frame(reader if window is None else Ahead(reader, *window), box, progress)
                    pixels = frame.finished(), frame.mask
                    if kept is not None:
                        kept.put(box, pixels)
                else:
                    progress((box[2] - box[0]) * (box[3] - box[1]))
                behind(writer.write, pixels[0], box, pixels[1])

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that the pixels of frames depend on, by names that an error can show (see `keeping`)."""
        return {}

    def _window(self, box: Box) -> Box | None:
        """The window of the input that a box of output pixels needs; None if only reading can tell."""
        return None

    @abstractmethod
    def _frame(self, reader: Samples, box: Box, progress: Callable[[int], object]) -> Frame:
        """The output pixels of a box."""


def check_raster_output(source: Path, output: Path, overwrite: bool) -> None:
    if format_of(output) is not FORMATS["tiff"]:
        raise ImageFileError(f"A raster is written as GeoTIFF: end the output {output.name!r} in .tif.")
    check_place(output, overwrite, source)
