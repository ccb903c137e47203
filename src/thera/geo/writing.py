"""Rasters out: tiled, compressed, with overviews, or as cloud-optimised GeoTIFF; whole or not at all."""

import errno
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError
from thera.field.grid import Box
from thera.files import partial_path
from thera.memory import human_bytes

from .frames import TILE
from .raster import Raster, gdal, sentence

Window = tuple[tuple[int, int], tuple[int, int]]  # rows, columns


@dataclass(frozen=True)
class Place:
    """Where an output lies: its size, and its way to the ground."""

    size: tuple[int, int]
    crs: Any
    transform: Any
    gcps: tuple[Sequence[Any], Any] = ((), None)
    rpcs: Any = None

    @classmethod
    def scaled(cls, raster: Raster, size: tuple[int, int]) -> "Place":
        """The same ground under `size` = (height, width) pixels."""
        from rasterio.control import GroundControlPoint

        down, across = (N / n for n, N in zip(raster.shape, size, strict=True))
        points = [
            GroundControlPoint(p.row * down, p.col * across, p.x, p.y, p.z, p.id, p.info)
            for p in raster.gcps[0]
        ]
        rpcs = None if raster.rpcs is None else _scaled_rpcs(raster.rpcs, down, across)
        to_input = np.diag([1 / across, 1 / down, 1.0])
        return cls(size, raster.crs, through(raster.transform, to_input), (points, raster.gcps[1]), rpcs)


def through(transform: Any, to_input: NDArray[np.float64]) -> Any:
    """The way to the ground of pixels (x, y) that an affine 3×3 matrix takes to those of `transform`."""
    from affine import Affine

    if transform.is_identity:  # there is no ground
        return transform
    matrix = np.array(tuple(transform)[:9]).reshape(3, 3) @ to_input
    return Affine(*(float(number) for number in matrix[:2].ravel()))


def _scaled_rpcs(rpcs: Any, down: float, across: float) -> Any:
    """Rational polynomials for pixels of another size, counted from the centre of the first."""
    scaled = copy(rpcs)
    scaled.line_off = (rpcs.line_off + 0.5) * down - 0.5
    scaled.samp_off = (rpcs.samp_off + 0.5) * across - 0.5
    scaled.line_scale = rpcs.line_scale * down
    scaled.samp_scale = rpcs.samp_scale * across
    return scaled


@contextmanager
def writing(
    path: Path, raster: Raster, place: Place, cog: bool = False, strip: bool = False
) -> Iterator["Written"]:
    """A dataset to write: `raster` with other pixels and another place. It becomes `path` when all went well.

    Everything unfinished lies in a folder beside it, which is removed whatever happens.
    """
    import rasterio
    from rasterio._err import CPLE_BaseError  # what GDAL says on closing a file comes out as it is
    from rasterio.errors import RasterioError

    folder = partial_path(path)
    try:
        folder.mkdir()
        with gdal():
            working = folder / "working.tif"
            with rasterio.open(working, "w", **_profile(raster, place)) as dataset:
                _describe(dataset, raster, place, strip)
                written = Written(dataset)
                yield written
            finished = _finish(working, folder / "finished.tif", cog)
            _check(finished, written)
        finished.replace(path)
    except (RasterioError, CPLE_BaseError, OSError) as error:
        raise ImageFileError(f"{path} could not be written: {_reason(error, path)}.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _profile(raster: Raster, place: Place) -> dict[str, Any]:
    height, width = place.size
    names = [colour.name for colour in raster.colours]
    profile = {
        "driver": "GTiff",
        "height": height,
        "width": width,
        "count": raster.count,
        "dtype": raster.dtype.name,
        "crs": place.crs,
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
    if not place.transform.is_identity:
        profile["transform"] = place.transform
    return profile


def _describe(dataset: Any, raster: Raster, place: Place, strip: bool) -> None:
    dataset.colorinterp = raster.colours
    dataset.descriptions = raster.descriptions
    dataset.units = [unit or "" for unit in raster.units]
    dataset.scales, dataset.offsets = raster.scales, raster.offsets
    points, crs = place.gcps
    if points:
        dataset.gcps = points, crs
    if place.rpcs is not None:
        dataset.rpcs = place.rpcs
    if strip:
        return
    for space, tags in raster.tags.items():
        dataset.update_tags(ns=space, **tags)
    for band, tags in enumerate(raster.band_tags, 1):
        dataset.update_tags(band, **tags)


def _finish(working: Path, finished: Path, cog: bool) -> Path:
    """Adds overviews: smaller copies, halved until one fits in a tile."""
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


def _check(path: Path, written: "Written") -> None:
    """Reads a finished file back: GDAL closes one without a word when the disk is full."""
    import rasterio

    with rasterio.open(path) as dataset:
        whole = bool(dataset.overviews(1)) == (max(dataset.shape) > TILE)
        whole &= all(_sum(dataset.read(window=window)) == known for window, known in written.sums)
        levels = len(dataset.overviews(1))
    for level in range(levels):
        with rasterio.open(path, overview_level=level) as dataset:
            for _, window in dataset.block_windows():
                dataset.read(window=window)
    if not whole:
        raise OSError(errno.ENOSPC, "the disk is full")


def _sum(samples: NDArray) -> int:
    return zlib.crc32(np.ascontiguousarray(samples).data)


class Written:
    """A dataset that is being written, and the checksums of what was."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.sums: list[tuple[Window, int]] = []

    def write(self, samples: NDArray, box: Box, mask: NDArray[np.bool_] | None = None) -> None:
        """Writes a box of samples, h×w×bands, and of the mask, where there is one."""
        window = (box[0], box[2]), (box[1], box[3])
        bands = np.ascontiguousarray(np.moveaxis(samples, -1, 0))
        self._dataset.write(bands, window=window)
        self.sums.append((window, _sum(bands)))
        if mask is not None:
            self._dataset.write_mask(mask, window=window)


def check_room(path: Path, pixel_bytes: int, size: tuple[int, int], cog: bool) -> None:
    """Refuses an output for which the disk has no room: pixels and overviews, and twice of it for a COG."""
    needed = pixel_bytes * size[0] * size[1] * (8 if cog else 4) // 3
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise ImageFileError(
            f"The output of {size[1]:,}×{size[0]:,} may take {human_bytes(needed)} on the way and"
            f" {path.parent} has {human_bytes(free)} free: make room or choose another folder."
        )


def _reason(error: Exception, path: Path) -> str:
    if getattr(error, "errno", None) == errno.ENOSPC or shutil.disk_usage(path.parent).free < 1 << 24:
        return "the disk is full"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return f"it came out incomplete ({sentence(error)})"
