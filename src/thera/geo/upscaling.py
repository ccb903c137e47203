"""Scales rasters frame by frame, each from the window of the input that it needs."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError, InvalidInput
from thera.field.grid import Axis, Box
from thera.files import check_place
from thera.imaging.files import check_disk
from thera.imaging.formats import FORMATS, Format, format_of
from thera.imaging.sizing import TargetSize
from thera.imaging.upscaling import fill
from thera.models import Model
from thera.tiled import Options, Plan, make_plan
from thera.tiled.plan import frames
from thera.values.bands import Group
from thera.values.planes import planes_of
from thera.values.ranges import Range, Stretch, depth_name, marked

from .raster import CACHE, Raster, describe
from .reading import Reader, open_reader, ranges
from .writing import TILE, GeoGrid, needed_room, open_writer

Part = tuple[slice, slice]  # rows and columns of a frame

#: Accept up to 5 % more encoding than with the best frame if it saves memory.
GOOD_ENOUGH = 1.05
#: The largest side of a frame, in tiles.
MOST_TILES = 8


@dataclass(frozen=True)
class RasterOptions:
    """How rasters are read and written.

    `stretch`: how to choose the values for 0 and 1; by default `Stretch.usual` of the sample type.
    `alpha`: "cover" if an alpha band says where the others are valid, "data" if it is an ordinary band.
    `strip`: drop the tags, but not the georeference, nodata and the bands' names.
    """

    stretch: Stretch | None = None
    cog: bool = False
    overwrite: bool = False
    strip: bool = False
    alpha: Literal["cover", "data"] = "cover"


class Frame:
    """The samples of one frame of the output, h×w×bands, filled in group by group."""

    def __init__(self, raster: Raster, valid: NDArray[np.bool_]) -> None:
        """`valid`: h×w×bands, which samples have a value."""
        self.raster = raster
        self.valid = valid
        self.samples = np.zeros(valid.shape, raster.dtype)

    def extent(self, group: Group, part: Part = (slice(None), slice(None))) -> Part | None:
        """The smallest part with all valid samples of a group; None if there are none."""
        valid = self.valid[part][..., list(group.bands)]
        rows, cols = (np.flatnonzero(valid.any(axis=axes)) for axes in ((1, 2), (0, 2)))
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


@dataclass(frozen=True)
class RasterJob(ABC):
    """A raster that is about to be written to a file, frame by frame: described and checked."""

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
    def written(self) -> Raster:
        """The description of the output's bands and tags."""
        return self.raster

    def run(self, progress: Callable[[int], object] = lambda pixels: None) -> None:
        """Writes the output, whole or not at all."""
        with (
            open_reader(self.raster) as reader,
            open_writer(self.output, self.written, self.grid, self.file.cog, self.file.strip) as writer,
        ):
            for box in frames(self.size, self.frame):
                frame = self._frame(reader, box, progress)
                writer.write(frame.finished(), box, frame.mask)

    @abstractmethod
    def _frame(self, reader: Reader, box: Box, progress: Callable[[int], object]) -> Frame:
        """The output pixels of a box."""


@dataclass(frozen=True)
class RasterScaling(RasterJob):
    """A raster that is about to be scaled into a file: described, planned and checked."""

    model: Model
    options: Options

    @property
    def form(self) -> Format:
        return FORMATS["tiff"]

    @property
    def depth(self) -> str:
        return depth_name(self.raster.dtype)

    @property
    def tiles(self) -> int:
        return self.plan.tiles * len(list(frames(self.size, self.frame)))

    @property
    def work(self) -> tuple[float, float]:
        """Pixels to encode, halos included, and pixels to render."""
        times = len(self.spans) * self.options.rotations
        return times * self.plan.encoded * self.tiles / self.plan.tiles, times * math.prod(self.size)

    @property
    def disk(self) -> int:
        return needed_room(self.raster, self.size, self.file.cog)

    @property
    def notes(self) -> tuple[str, ...]:
        """The values that the network sees as black and white."""
        return tuple(
            f"{group}: {span.low:g} to {span.high:g} stand for black and white"
            for group, span in zip(self.raster.bands.groups, self.spans, strict=True)
            if not group.alpha
        )

    @property
    def plan(self) -> Plan:
        """The plan of a frame in the middle, which needs the most."""
        top, left = (max(0, N - self.frame) // 2 for N in self.size)
        bottom, right = (min(start + self.frame, N) for start, N in zip((top, left), self.size, strict=True))
        return self._plan((top, left, bottom, right))

    def _plan(self, box: Box) -> Plan:
        """The plan for the output pixels of a box."""
        raster = self.raster
        down, along = (slice(int(axis.cell[0]), int(axis.cell[-1]) + 1) for axis in self._axes(box))
        pixels = (box[2] - box[0]) * (box[3] - box[1])
        cells = (down.stop - down.start) * (along.stop - along.start)
        # Samples and validity, of the frame and of its cells; floats while invalid samples are filled in.
        held = 2 * (pixels + cells) * raster.count * (raster.dtype.itemsize + 1) + 64 * cells + CACHE
        inputs = self.model, raster.shape, self.size, self.options
        return make_plan(*inputs, held=held, part=(down, along), good_enough=GOOD_ENOUGH)

    def _axes(self, box: Box) -> tuple[Axis, Axis]:
        """The rows and columns of a box of output pixels."""
        (H, W), (rows, cols) = self.raster.shape, self.size
        return Axis.whole(H, rows, box[0], box[2]), Axis.whole(W, cols, box[1], box[3])

    def _frame(self, reader: Reader, box: Box, progress: Callable[[int], object]) -> Frame:
        rows, cols = self._axes(box)
        # An output pixel is valid if the input pixel under its centre is.
        top, left = int(rows.cell[0]), int(cols.cell[0])
        valid = reader.valid((top, left, int(rows.cell[-1]) + 1, int(cols.cell[-1]) + 1))
        frame = Frame(self.raster, valid[np.ix_(rows.cell - top, cols.cell - left)])
        area = len(rows) * len(cols)
        planes = planes_of(reader, self.raster.bands, self.spans, self.model.info.halo)
        for i, plane in enumerate(planes):
            part = frame.extent(plane.group)
            if part is not None:
                down, along = part
                inner = (box[0] + down.start, box[1] + along.start, box[0] + down.stop, box[1] + along.stop)
                grid = rows[down], cols[along]
                fill(self.model, plane, self._plan(inner), self.options, frame.samples[part], grid)
            progress(area * (i + 1) // len(planes) - area * i // len(planes))
        return frame


def prepare_raster(
    source: Path,
    output: Path,
    model: Model,
    target: TargetSize,
    options: Options | None = None,
    file: RasterOptions | None = None,
) -> RasterScaling:
    """Describes `source`, and checks everything that scaling it to the GeoTIFF `output` needs."""
    options, file = options or Options(), file or RasterOptions()
    check_raster_output(source, output, file.overwrite)
    raster = replace(describe(source), covers=file.alpha == "cover")
    size = target.for_image(raster.shape)
    check_disk(output, size, needed_room(raster, size, file.cog))
    grid = GeoGrid.scaled(raster, size)
    scaling = RasterScaling(raster, [], grid, output, TILE, file, model, options)
    scaling = replace(scaling, frame=_best_frame(scaling))
    return replace(scaling, spans=ranges(raster, file.stretch))


def check_raster_output(source: Path, output: Path, overwrite: bool) -> None:
    if format_of(output) is not FORMATS["tiff"]:
        raise ImageFileError(f"A raster is written as GeoTIFF: end the output {output.name!r} in .tif.")
    check_place(output, overwrite, source)


def _best_frame(scaling: RasterScaling) -> int:
    """The side of the frames with the least overlap that fits in memory."""
    plans: dict[int, Plan] = {}
    for tiles in range(1, MOST_TILES + 1):
        try:
            plans[tiles * TILE] = replace(scaling, frame=tiles * TILE).plan
        except InvalidInput:
            if not plans:
                raise
            break
        if tiles * TILE >= max(scaling.size):
            break
    best = min(plan.overlap for plan in plans.values())
    frugal = (side for side, plan in plans.items() if plan.overlap <= GOOD_ENOUGH * best)
    return min(frugal, key=lambda side: plans[side].memory)
