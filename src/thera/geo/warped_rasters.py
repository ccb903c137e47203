"""Rasters through a mapping: in their own units, nodata where there is nothing to see."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from thera.field.grid import Box
from thera.imaging.sizing import TargetSize
from thera.models import Model
from thera.tiled import Options
from thera.tiled.plan import frames
from thera.values.planes import planes_of
from thera.values.ranges import Range
from thera.warp.mappings import Mapping, Projective, View
from thera.warp.warping import FRAME, Look, Warp

from .crs import Reprojection
from .frames import Frame
from .raster import CACHE, Raster
from .reading import Reader, reading
from .upscaling import RasterOptions, check_raster_output
from .writing import Place, check_room, through, writing


@dataclass(frozen=True)
class WarpedRaster:
    """A raster that is about to be warped into a file: described and checked."""

    warp: Warp
    raster: Raster
    written: Raster  # with a way to say that nothing is seen
    spans: list[Range]
    place: Place
    output: Path
    file: RasterOptions
    notes: tuple[str, ...]

    @property
    def size(self) -> tuple[int, int]:
        return self.place.size

    def run(self, progress: Callable[[int], object] = lambda pixels: None) -> None:
        """Writes the output, whole or not at all."""
        with (
            reading(self.raster) as reader,
            writing(self.output, self.written, self.place, self.file.cog, self.file.strip) as written,
        ):
            for box in frames(self.size, FRAME):
                frame = self._frame(reader, box, progress)
                written.write(frame.finished(), box, frame.mask)

    def _frame(self, reader: Reader, box: Box, progress: Callable[[int], object]) -> Frame:
        shape = (box[2] - box[0], box[3] - box[1])
        frame = Frame(self.written, np.zeros((*shape, self.raster.count), bool))
        planes = planes_of(reader, self.raster.bands, self.spans, self.warp.model.info.halo)
        for look in self.warp.looks(box):
            part = look.part_of(box)
            if look.seen.any():
                frame.valid[part] = self._valid(reader, look)
                wanted = [plane for plane in planes if frame.extent(plane.group, part)]
                self.warp.put(look, wanted, frame.samples[part])
            progress(look.seen.size)
        return frame

    def _valid(self, reader: Reader, look: Look) -> NDArray[np.bool_]:
        """A pixel is valid where the input pixel is in whose cell its centre lies."""
        cells = np.floor(look.points[look.seen]).astype(np.int64)
        cells = np.clip(cells, 0, np.array(self.raster.shape) - 1)
        (top, left), (bottom, right) = cells.min(axis=0), cells.max(axis=0) + 1
        valid = reader.valid((int(top), int(left), int(bottom), int(right)))
        found = np.zeros((*look.seen.shape, self.raster.count), bool)
        found[look.seen] = valid[cells[:, 0] - top, cells[:, 1] - left]
        return found


def prepare_warped_raster(
    raster: Raster,
    output: Path,
    model: Model,
    view: View | Place,
    options: Options | None = None,
    file: RasterOptions | None = None,
) -> WarpedRaster:
    """Checks all that warping a raster needs.

    `view`: a grid in another coordinate system, from `thera.geo.crs.reprojected`, or a mapping of pixels.
    """
    options, file = options or Options(), file or RasterOptions()
    check_raster_output(raster.path, output, file.overwrite)
    raster = replace(raster, covers=file.alpha == "cover")
    notes: tuple[str, ...] = ()
    mapping: Mapping
    if isinstance(view, Place):
        place, mapping = view, Reprojection(raster, view)
    else:
        wanted, mapping = view(raster.shape)
        size = TargetSize(size=wanted).for_image(raster.shape)
        place, notes = _moved(raster, size, mapping)
    check_room(output, raster.count * raster.dtype.itemsize, place.size, file.cog)
    held = 3 * FRAME**2 * raster.count * raster.dtype.itemsize + CACHE
    warp = Warp(model, raster.shape, mapping, options, held)
    return WarpedRaster(warp, raster, _marking(raster), file.ranges(raster), place, output, file, notes)


def _moved(raster: Raster, size: tuple[int, int], mapping: Mapping) -> tuple[Place, tuple[str, ...]]:
    """Where the output of a mapping lies: known if it is affine."""
    from affine import Affine

    if raster.crs is None:
        return Place(size, None, Affine.identity()), ()
    if not (isinstance(mapping, Projective) and mapping.affine and raster.georeferenced):
        note = "the output has no place on the ground: this mapping leaves no affine way to it"
        return Place(size, None, Affine.identity()), (note,)
    matrix = mapping.matrix[np.ix_([1, 0, 2], [1, 0, 2])] / mapping.matrix[2, 2]  # x before y
    return Place(size, raster.crs, through(raster.transform, matrix)), ()


def _marking(raster: Raster) -> Raster:
    """The raster as it is written: where nothing is seen it has nodata, an alpha of 0, NaN, or a mask."""
    if raster.declared is not None or raster.bands.alpha is not None or raster.masked:
        return raster
    if raster.dtype.kind == "f":
        return replace(raster, nodata=(math.nan,) * raster.count)
    return replace(raster, masked=True)
