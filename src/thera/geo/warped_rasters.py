"""Rasters through a mapping: in their own units, nodata where there is nothing to see."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thera.field import Filter
from thera.field.grid import Box
from thera.imaging.sizing import TargetSize
from thera.models import Model
from thera.values.bands import Group
from thera.values.ranges import Range, Stretch

from .crs import Reprojection
from .frames import Frame, fill_levels, frames
from .mappings import Mapping, Projective, View
from .raster import CACHE, Raster
from .reading import Reader, ranges, reading
from .upscaling import check_raster_output
from .warping import FRAME, LANCZOS, Look, Warp, confine
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
    cog: bool
    strip: bool
    notes: tuple[str, ...]

    @property
    def size(self) -> tuple[int, int]:
        return self.place.size

    def run(self, progress: Callable[[int], object] = lambda pixels: None) -> None:
        """Writes the output, whole or not at all."""
        with (
            reading(self.raster) as reader,
            writing(self.output, self.written, self.place, cog=self.cog, strip=self.strip) as written,
        ):
            for box in frames(self.size, FRAME):
                frame = self._frame(reader, box, progress)
                written.write(frame.finished(), box, frame.mask)

    def _frame(self, reader: Reader, box: Box, progress: Callable[[int], object]) -> Frame:
        shape = (box[2] - box[0], box[3] - box[1])
        frame = Frame(self.written, np.zeros((*shape, self.raster.count), bool))
        for look in self.warp.looks(box):
            part = look.part_of(box)
            if look.seen.any():
                # A pixel is valid where the input pixel is in whose cell its centre lies.
                frame.valid[part] = self._valid(reader, look)
                for group, span in zip(self.raster.groups, self.spans, strict=True):
                    if frame.needs(group, part):
                        frame.put(group, span, self._values(reader, look, group, span), part)
            progress(look.seen.size)
        return frame

    def _valid(self, reader: Reader, look: Look) -> NDArray[np.bool_]:
        cells = np.floor(look.points[look.seen]).astype(np.int64)
        cells = np.clip(cells, 0, np.array(self.raster.shape) - 1)
        (top, left), (bottom, right) = cells.min(axis=0), cells.max(axis=0) + 1
        _, valid = reader.read((int(top), int(left), int(bottom), int(right)))
        found = np.zeros((*look.seen.shape, self.raster.count), bool)
        found[look.seen] = valid[cells[:, 0] - top, cells[:, 1] - left]
        return found

    def _values(self, reader: Reader, look: Look, group: Group, span: Range) -> NDArray[np.float32]:
        values = self.warp.values(look, reader.source(group, span, fill_levels(self.warp.model)))
        if group.alpha:
            alpha, _ = reader.read(look.window, group.bands)
            confine(values, span.normalise(alpha[..., 0]), look)
        return values


def prepare_warped_raster(
    raster: Raster,
    output: Path,
    model: Model,
    view: View | Place,
    *,
    stretch: Stretch | None = None,
    ensemble: bool = False,
    psf: Filter = LANCZOS,
    memory: int | None = None,
    overwrite: bool = False,
    strip: bool = False,
    alpha: Literal["cover", "data"] = "cover",
    cog: bool = False,
) -> WarpedRaster:
    """Checks all that warping a raster needs.

    `view`: a grid in another coordinate system, from `thera.geo.crs.reprojected`, or a mapping of pixels.
    """
    check_raster_output(raster.path, output, overwrite)
    raster = replace(raster, covers=alpha == "cover")
    notes: tuple[str, ...] = ()
    mapping: Mapping
    if isinstance(view, Place):
        place, mapping = view, Reprojection(raster, view)
    else:
        wanted, mapping = view(raster.shape)
        size = TargetSize(size=wanted).for_image(raster.shape)
        place, notes = _moved(raster, size, mapping)
    check_room(output, raster.count * raster.dtype.itemsize, place.size, cog)
    held = 3 * FRAME**2 * raster.count * raster.dtype.itemsize + CACHE
    warp = Warp(model, raster.shape, mapping, psf, ensemble, memory, held)
    spans = ranges(raster, stretch or Stretch.usual(raster.dtype))
    return WarpedRaster(warp, raster, _marking(raster), spans, place, output, cog, strip, notes)


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
    if raster.declared is not None or raster.alpha is not None or raster.masked:
        return raster
    if raster.dtype.kind == "f":
        return replace(raster, nodata=(math.nan,) * raster.count)
    return replace(raster, masked=True)
