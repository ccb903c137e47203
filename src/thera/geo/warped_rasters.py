"""Warped rasters: values in their own units, and nodata outside the input."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from thera.errors import InvalidInput
from thera.field.grid import Box
from thera.imaging.files import check_disk
from thera.imaging.sizing import TargetSize
from thera.models import Model
from thera.tiled import Options
from thera.values.samples import Samples
from thera.warp.mappings import Mapping, Projective, View
from thera.warp.warping import FRAME, Warp

from .crs import Reprojection
from .jobs import Frame, RasterJob, check_raster_output
from .options import RasterOptions
from .raster import CACHE, Raster
from .reading import ranges
from .writing import GeoGrid, needed_room


@dataclass(frozen=True)
class WarpedRaster(RasterJob):
    """A raster that is about to be warped into a file: described and checked."""

    warp: Warp
    notes: tuple[str, ...]

    @property
    def written(self) -> Raster:
        """The output has nodata, an alpha, or a mask, for pixels outside the input."""
        raster = self.raster
        if raster.declared is not None or raster.bands.alpha is not None or raster.masked:
            return raster
        if raster.dtype.kind == "f":
            return replace(raster, nodata=(math.nan,) * raster.count)
        return replace(raster, masked=True)

    @property
    def work(self) -> tuple[float, float]:
        """About how many pixels are encoded, halos included, and sampled."""
        encoded, sampled = self.warp.work(self.size)
        return len(self.spans) * encoded, len(self.spans) * sampled

    def _frame(self, reader: Samples, box: Box, progress: Callable[[int], object]) -> Frame:
        samples, valid = self.warp.warped(reader, self.raster.bands, self.spans, box, progress)
        return Frame(self.written, samples, valid)


def prepare_warped_raster(
    raster: Raster,
    output: Path,
    model: Model,
    view: View | GeoGrid,
    options: Options | None = None,
    file: RasterOptions | None = None,
) -> WarpedRaster:
    """Checks everything that warping a raster needs.

    `view`: a grid in another coordinate system, from `thera.geo.crs.reprojected`, or a mapping of pixels.
    """
    options, file = options or Options(), file or RasterOptions()
    if file.resume:
        raise InvalidInput("A warp cannot be resumed: leave resume out.")
    check_raster_output(raster.path, output, file.overwrite)
    raster = replace(raster, covers=file.alpha == "cover")
    notes: tuple[str, ...] = ()
    mapping: Mapping
    if isinstance(view, GeoGrid):
        grid, mapping = view, Reprojection(raster, view)
    else:
        wanted, mapping = view(raster.shape)
        size = TargetSize(size=wanted).for_image(raster.shape)
        grid, notes = _warped_grid(raster, size, mapping)
    check_disk(output, grid.size, needed_room(raster, grid.size, file.cog))
    held = 3 * FRAME**2 * raster.count * raster.dtype.itemsize + CACHE
    warp = Warp(model, raster.shape, mapping, options, held)
    warp.check_sight(grid.size)
    return WarpedRaster(raster, ranges(raster, file.stretch), grid, output, FRAME, file, warp, notes)


def _warped_grid(raster: Raster, size: tuple[int, int], mapping: Mapping) -> tuple[GeoGrid, tuple[str, ...]]:
    """The grid of a warped raster, and a note if it has no georeference because the mapping is not affine."""
    from affine import Affine

    if raster.crs is None:
        return GeoGrid(size, None, Affine.identity()), ()
    if not (isinstance(mapping, Projective) and mapping.affine and not raster.transform.is_identity):
        note = "the output has no place on the ground: only an affine mapping keeps it"
        return GeoGrid(size, None, Affine.identity()), (note,)
    matrix = mapping.matrix[np.ix_([1, 0, 2], [1, 0, 2])] / mapping.matrix[2, 2]  # x before y
    return GeoGrid(size, raster.crs, raster.transform * Affine(*matrix[:2].ravel().tolist())), ()
