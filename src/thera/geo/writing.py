"""Writes rasters as tiled GeoTIFFs with overviews, or cloud-optimised; whole or not at all."""

import errno
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError, InvalidInput
from thera.field.grid import Box
from thera.files import held, partial_path, reason_of, remove_stale

from .raster import Raster, environment, first_line, gdal

#: The side of the tiles in an output file.
TILE = 512

Window = tuple[tuple[int, int], tuple[int, int]]  # rows, columns


@dataclass(frozen=True)
class GeoGrid:
    """The size of an output and its georeference."""

    size: tuple[int, int]
    crs: Any
    transform: Any
    gcps: tuple[Sequence[Any], Any] = ((), None)
    rpcs: Any = None

    def __post_init__(self) -> None:
        if self.crs is not None and self.crs.is_geographic and "+lon_0" in self.crs.to_wkt():
            raise InvalidInput(
                "A GeoTIFF cannot hold longitudes that are counted from +lon_0: use +pm (a prime meridian)"
                " instead, or degrees from Greenwich, which may be more than 180."
            )

    @classmethod
    def scaled(cls, raster: Raster, size: tuple[int, int]) -> "GeoGrid":
        """The raster's own area with `size` = (height, width) pixels."""
        from affine import Affine
        from rasterio.control import GroundControlPoint

        down, across = (N / n for n, N in zip(raster.shape, size, strict=True))
        points = [
            GroundControlPoint(p.row * down, p.col * across, p.x, p.y, p.z, p.id, p.info)
            for p in raster.gcps[0]
        ]
        rpcs = None if raster.rpcs is None else _scaled_rpcs(raster.rpcs, down, across)
        transform = raster.transform
        if not transform.is_identity:  # else there is no georeference
            transform = transform * Affine.scale(1 / across, 1 / down)
        return cls(size, raster.crs, transform, (points, raster.gcps[1]), rpcs)

    def part(self, box: Box) -> "GeoGrid":
        """The part of the grid in a box of its pixels."""
        from affine import Affine

        top, left, bottom, right = box
        moved = self.transform * Affine.translation(left, top)
        return GeoGrid((bottom - top, right - left), self.crs, moved)

    def box_of(self, bounds: Sequence[float]) -> Box:
        """The pixels that hold the bounds west, south, east, north."""
        west, south, east, north = bounds
        at = [~self.transform * corner for corner in product((west, east), (south, north))]
        low, high = np.min(at, axis=0) + 1e-6, np.max(at, axis=0) - 1e-6  # so much of a pixel is rounding
        (left, top), (right, bottom) = np.floor(low).astype(int), np.ceil(high).astype(int)
        box = max(0, top), max(0, left), min(self.size[0], bottom), min(self.size[1], right)
        if box[0] >= box[2] or box[1] >= box[3]:
            message = ",".join(f"{number:g}" for number in bounds)
            raise InvalidInput(f"Nothing of the raster lies within the bounds {message}.")
        return int(box[0]), int(box[1]), int(box[2]), int(box[3])


def checked_bounds(bounds: Sequence[float]) -> Sequence[float]:
    """The bounds, or an error that says what they should be."""
    if len(bounds) == 4 and np.all(np.isfinite(bounds)) and bounds[0] < bounds[2] and bounds[1] < bounds[3]:
        return bounds
    raise InvalidInput("Bounds are four finite numbers: west, south, east, north, the smaller ones first.")


def _scaled_rpcs(rpcs: Any, down: float, across: float) -> Any:
    """Rational polynomials for pixels of another size. They count pixels from the centre of the first."""
    scaled = copy(rpcs)
    scaled.line_off = (rpcs.line_off + 0.5) * down - 0.5
    scaled.samp_off = (rpcs.samp_off + 0.5) * across - 0.5
    scaled.line_scale = rpcs.line_scale * down
    scaled.samp_scale = rpcs.samp_scale * across
    return scaled


@contextmanager
def open_writer(
    path: Path, raster: Raster, grid: GeoGrid, cog: bool = False, strip: bool = False
) -> Iterator["Writer"]:
    """A writer of a file with the bands and tags of `raster` on another grid.

    The file becomes `path` when it is complete. Until then it lies in a hidden folder beside `path`, because
    GDAL may put more files beside it. The folder is removed in any case.
    """
    import rasterio
    from rasterio._err import CPLE_BaseError  # rasterio does not convert GDAL's errors on closing a file
    from rasterio.errors import RasterioError

    remove_stale(path)
    folder = partial_path(path)
    try:
        folder.mkdir()
        with gdal(), held(folder):
            working = folder / "working.tif"
            with rasterio.open(working, "w", **_profile(raster, grid)) as dataset:
                _describe(dataset, raster, grid, strip)
                writer = Writer(dataset)
                yield writer
            finished = _finish(working, folder / "finished.tif", cog)
            _check(finished, writer)
        # GDAL keeps there what a TIFF cannot hold, like a coordinate system with three axes.
        beside, own = (file.with_name(f"{file.name}.aux.xml") for file in (finished, path))
        beside.replace(own) if beside.exists() else own.unlink(missing_ok=True)
        finished.replace(path)
    except (RasterioError, CPLE_BaseError, OSError) as error:
        raise ImageFileError(f"{path} could not be written: {_reason(error, path)}.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _profile(raster: Raster, grid: GeoGrid) -> dict[str, Any]:
    height, width = grid.size
    names = [colour.name for colour in raster.colours]
    profile = {
        "driver": "GTiff",
        "height": height,
        "width": width,
        "count": raster.count,
        "dtype": raster.dtype.name,
        "crs": grid.crs,
        "nodata": raster.declared,
        "photometric": "RGB" if names[:3] == ["red", "green", "blue"] else "MINISBLACK",
        "tiled": True,
        "blockxsize": TILE,
        "blockysize": TILE,
        "interleave": "pixel",
        "compress": "deflate",
        "predictor": 3 if raster.dtype.kind == "f" else 2,
        "bigtiff": "if_safer",
    }
    if not grid.transform.is_identity:
        profile["transform"] = grid.transform
    return profile


def _describe(dataset: Any, raster: Raster, grid: GeoGrid, strip: bool) -> None:
    from rasterio.crs import CRS

    dataset.colorinterp = raster.colours
    dataset.descriptions = raster.descriptions
    dataset.units = [unit or "" for unit in raster.units]
    dataset.scales, dataset.offsets = raster.scales, raster.offsets
    points, crs = grid.gcps
    if points and grid.transform.is_identity:  # a GeoTIFF holds one of both
        dataset.gcps = points, crs or CRS()
    if grid.rpcs is not None:
        dataset.rpcs = grid.rpcs
    if strip:
        return
    for space, tags in raster.tags.items():
        dataset.update_tags(ns=space, **tags)
    for band, tags in enumerate(raster.band_tags, 1):
        dataset.update_tags(band, **tags)


def _finish(working: Path, finished: Path, cog: bool) -> Path:
    """Adds overviews, each half as large as the last, until one fits in a tile."""
    import rasterio
    from rasterio.enums import Resampling
    from rasterio.shutil import copy as copy_raster

    if cog:
        options = {"compress": "deflate", "predictor": "yes", "blocksize": TILE, "resampling": "average"}
        copy_raster(working, finished, driver="COG", bigtiff="if_safer", **options)
        return finished
    with rasterio.open(working, "r+") as dataset:
        factors = [2**k for k in range(1, 32) if max(dataset.shape) > TILE * 2 ** (k - 1)]
        if factors:
            dataset.build_overviews(factors, Resampling.average)
    return working


def _check(path: Path, writer: "Writer") -> None:
    """Reads a finished file back, because GDAL closes a file without an error when the disk is full."""
    import rasterio

    with rasterio.open(path) as dataset:
        whole = bool(dataset.overviews(1)) == (max(dataset.shape) > TILE)
        whole &= all(_sum(dataset.read(window=window)) == known for window, known in writer.sums)
        levels = len(dataset.overviews(1))
    for level in range(levels):
        with rasterio.open(path, overview_level=level) as dataset:
            for _, window in dataset.block_windows():
                dataset.read(window=window)
    if not whole:
        raise OSError(errno.ENOSPC, "the disk is full")


def _sum(samples: NDArray) -> int:
    return zlib.crc32(np.ascontiguousarray(samples).data)


class Writer:
    """An open output, with the checksums of what was written."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.sums: list[tuple[Window, int]] = []

    def write(self, samples: NDArray, box: Box, mask: NDArray[np.bool_] | None = None) -> None:
        """Writes a box of samples, h×w×bands, and of the mask if there is one: from one thread at a time."""
        with environment():
            self._write(samples, box, mask)

    def _write(self, samples: NDArray, box: Box, mask: NDArray[np.bool_] | None) -> None:
        window = (box[0], box[2]), (box[1], box[3])
        bands = np.ascontiguousarray(np.moveaxis(samples, -1, 0))
        self._dataset.write(bands, window=window)
        self.sums.append((window, _sum(bands)))
        if mask is not None:
            self._dataset.write_mask(mask, window=window)


def needed_room(raster: Raster, size: tuple[int, int], cog: bool) -> int:
    """Bytes of the pixels and overviews of an output, twice for a COG while it is written."""
    return raster.count * raster.dtype.itemsize * size[0] * size[1] * (8 if cog else 4) // 3


def _reason(error: Exception, path: Path) -> str:
    if getattr(error, "errno", None) == errno.ENOSPC or shutil.disk_usage(path.parent).free < 1 << 24:
        return "the disk is full"
    if isinstance(error, OSError) and error.strerror:
        return reason_of(error)
    return f"it is incomplete ({first_line(error)})"
