"""Arrays on the grid of another coordinate system, lazily: each chunk from the window that it needs."""

import math
from dataclasses import dataclass
from itertools import pairwise

import dask.array as da
import numpy as np
from numpy.typing import NDArray

import dask
from thera.dask.arrays import Settings, channels_last, find_ranges_lazily
from thera.dask.clusters import check_current
from thera.dask.tasks import ModelName, loaded
from thera.errors import InvalidInput
from thera.field.grid import Box
from thera.field.needed import cells_needed_at, reach
from thera.field.threads import one_core
from thera.geo.crs import Reprojection
from thera.tiled import Options
from thera.values.bands import Bands
from thera.values.planes import fill_reach
from thera.values.ranges import Range, marked
from thera.values.samples import ArraySamples
from thera.values.survey import Survey
from thera.warp.warping import Warp

#: The side of the output's chunks, or of what they show of a finer input; and their least side.
CHUNK, LEAST_CHUNK = 1024, 128
#: The window of a chunk is found from points so many output pixels apart.
SPACING = 32


@dataclass(frozen=True)
class ChunkWarp:
    """All that the tasks of one warp have in common."""

    model: ModelName
    source: tuple[int, int]
    mapping: Reprojection
    bands: Bands
    options: Options

    def warp(self) -> Warp:
        return Warp(loaded(self.model), self.source, self.mapping, self.options)

    def window(self, box: Box) -> Box | None:
        """The part of the input that the output pixels of a box need; None if they show nothing of it."""
        top, left, bottom, right = box
        counts = [math.ceil(n / SPACING) + 1 for n in (bottom - top, right - left)]
        rows, cols = np.linspace(top, bottom, counts[0]), np.linspace(left, right, counts[1])
        points = self.mapping.locate(np.stack(np.meshgrid(rows, cols, indexing="ij"), axis=-1))
        if np.isfinite(points).all():
            strides = [np.linalg.norm(np.diff(points, axis=axis), axis=-1) for axis in (0, 1)]
            apart = max(float(stride.max()) for stride in strides)
            pixels = [n / (count - 1) for n, count in zip((bottom - top, right - left), counts, strict=True)]
            sizes = [stride / pixel for stride, pixel in zip(strides, pixels, strict=True)]
            low, high = points.min(axis=(0, 1)) - apart, points.max(axis=(0, 1)) + apart
        else:  # a horizon: every pixel is looked at
            every, jacobian = self.mapping(box)
            seen = np.isfinite(every).all(axis=-1) & np.isfinite(jacobian).all(axis=(-2, -1))
            seen &= ((every >= 0) & (every <= np.array(self.source))).all(axis=-1)
            if not seen.any():
                return None
            sizes = list(np.linalg.norm(jacobian[seen], axis=-2).T)
            low, high = every[seen].min(axis=0), every[seen].max(axis=0)
        if (high < 0).any() or (low > np.array(self.source)).any():
            return None
        least, most = min(float(size.min()) for size in sizes), max(float(size.max()) for size in sizes)
        return self._around(np.array([low, high]), least / 2, most * 1.5)

    def _around(self, corners: NDArray[np.float64], least: float, most: float) -> Box:
        """What is read for points between two corners, with output pixels of these sides at most."""
        warp = self.warp()
        info, psf = warp.model.info, warp.psf
        corners = np.clip(corners, 0, np.array(self.source))
        steps = np.array([[[most, 0], [0, least]], [[most, 0], [0, most]]])
        top, left, bottom, right = cells_needed_at(corners, steps, self.source, psf, info.kappa)
        depth = info.halo + info.alignment - 1
        if self.bands.partial:
            depth += fill_reach(max(info.halo, reach(psf, (most, most), info.kappa)))
        depth = max(depth, math.ceil(most * (psf.footprint or 1.0)) + 2)  # as `Plane.alpha_window` reads
        H, W = self.source
        return max(0, top - depth), max(0, left - depth), min(H, bottom + depth), min(W, right + depth)


def warp_chunks(
    array: da.Array, mapping: Reprojection, size: tuple[int, int], settings: Settings, channels: str = "last"
) -> da.Array:
    """A Dask array on another grid of `size` = (height, width) pixels."""
    model, options, meaning = settings
    image = channels_last(array, channels)
    count = image.shape[2]
    bands = meaning.bands(count, image.dtype)
    marks = bands.nodata or (None,) * count
    if bands.alpha is None and None in marks:
        raise InvalidInput(
            f"Pixels outside an array of {image.dtype} need a value: say which stands for no data (nodata=)."
        )
    check_current()
    ranges = find_ranges_lazily(image, Survey(bands, image.dtype, meaning.rule(count)))
    job = ChunkWarp(model, (image.shape[0], image.shape[1]), mapping, bands, options)
    job.warp().check_sight(size)
    common = dask.delayed(job, pure=True)

    def chunk(box: Box) -> da.Array:
        shape = (box[2] - box[0], box[3] - box[1], count)
        window = job.window(box)
        part = np.zeros((0, 0, count), image.dtype) if window is None else image[_slices(window)]
        origin = (0, 0) if window is None else window[:2]
        task = dask.delayed(warp_chunk, pure=True)(part, common, ranges, origin, box)
        return da.from_delayed(task, shape, image.dtype)

    finer = max(1.0, math.sqrt(math.prod(image.shape[:2]) / math.prod(size)))
    side = max(LEAST_CHUNK, round(CHUNK / finer))
    rows, cols = ([*pairwise((*range(0, n, side), n))] for n in size)
    result = da.block([[[chunk((top, left, bottom, right))] for left, right in cols] for top, bottom in rows])
    if array.ndim == 2:
        return result[..., 0]
    return da.moveaxis(result, 2, 0) if channels == "first" else result


def _slices(box: Box) -> tuple[slice, slice]:
    return slice(box[0], box[2]), slice(box[1], box[3])


def warp_chunk(
    part: NDArray, job: ChunkWarp, ranges: list[Range], origin: tuple[int, int], box: Box
) -> NDArray:
    """One chunk of the output. `part`: the window of the input at `origin` that it needs; empty if none."""
    bands = job.bands
    shape = (box[2] - box[0], box[3] - box[1], bands.count)
    out, valid = np.zeros(shape, part.dtype), np.zeros(shape, bool)
    if part.size:
        samples = ArraySamples(part, bands, job.source, origin)
        with one_core():
            out, valid = job.warp().warped(samples, bands, ranges, box)
    for band, mark in enumerate(bands.nodata):
        if mark is not None:
            out[..., band] = marked(out[..., band], valid[..., band], mark)
    return out
