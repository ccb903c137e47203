"""Rasters in another coordinate reference system: the grid they get there, and the way back from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.field.grid import Box
from thera.imaging.sizing import TargetSize
from thera.optional import require
from thera.warp.mappings import Places, centres

from .raster import Raster
from .writing import Place

#: Points a side of the grid by which the extent of a raster is found in another system.
EXTENT_POINTS = 65
#: A step from one of them to the next, in median ones, that leads out of what the system can show.
FARTHEST = 100


class Reprojection:
    """From the pixels of `place` to those of a georeferenced raster, through the two systems."""

    def __init__(self, raster: Raster, place: Place) -> None:
        self._back = _transformer(place.crs, raster.crs)
        self._out = place.transform
        self._in = ~raster.transform

    def __call__(self, box: Box) -> Places:
        top, left, bottom, right = box
        # One pixel more on each side, for the differences that are the Jacobian.
        points = self.locate(centres((top - 1, left - 1, bottom + 1, right + 1)))
        down = (points[2:, 1:-1] - points[:-2, 1:-1]) / 2
        along = (points[1:-1, 2:] - points[1:-1, :-2]) / 2
        return points[1:-1, 1:-1], np.stack([down, along], axis=-1)

    def locate(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Output (row, column) to input (row, column), NaN where the systems have no way between them."""
        x, y = _apply(self._out, at)
        x, y = self._back.transform(x, y)
        finite = np.isfinite(x) & np.isfinite(y)
        x, y = np.where(finite, x, np.nan), np.where(finite, y, np.nan)
        a, b, c, d, e, f = tuple(self._in)[:6]
        return np.stack([d * x + e * y + f, a * x + b * y + c], axis=-1)


def reprojected(
    raster: Raster,
    to: str,
    *,
    resolution: float | None = None,
    size: tuple[int, int] | None = None,
    bounds: Sequence[float] | None = None,
) -> Place:
    """The grid of a raster in the system `to`: north up, over all of it or over `bounds` (west, south, east,
    north, in that system's units), with pixels of `resolution` of those units, or `size` = (height, width) of
    them, or about as large as they are.
    """
    from affine import Affine
    from rasterio.crs import CRS

    if raster.crs is None:
        raise InvalidInput(
            f"{raster.path} does not say what its coordinates are: tell it first (rio edit-info --crs)."
        )
    if raster.transform.is_identity:
        how = "ground control points only" if raster.gcps[0] else "no geotransform"
        raise InvalidInput(
            f"{raster.path} has {how}, which does not place every pixel: make it a grid first (gdalwarp)."
        )
    if resolution is not None and not (math.isfinite(resolution) and resolution > 0):
        raise InvalidInput(f"A resolution of {resolution:g} makes no grid: give a number above 0.")
    if resolution is not None and size is not None:
        raise InvalidInput("Give a resolution or a size, not both.")
    if size is not None:
        TargetSize(size=size).check()
    system = _crs(to)
    forward = _transformer(raster.crs, system)
    west, south, east, north = _bounds(bounds) if bounds is not None else _extent(raster, forward)
    if size is not None:
        height, width = size
        across, down = (east - west) / width, (north - south) / height
    else:
        across = down = _ground(raster, forward) if resolution is None else resolution
        height, width = (max(1, math.ceil(n / down - 1e-6)) for n in (north - south, east - west))
    transform = Affine(across, 0, west, 0, -down, north)
    size = TargetSize(size=(height, width)).for_image(raster.shape)
    return Place(size, CRS.from_wkt(system.to_wkt()), transform)


def _crs(text: Any) -> Any:
    pyproj = require("pyproj", "geo", "Another coordinate system")
    try:
        return pyproj.CRS.from_user_input(text)
    except pyproj.exceptions.CRSError as error:
        raise InvalidInput(
            f"{text!r} is no coordinate system that is known: write it like EPSG:3857, or as WKT or PROJ."
        ) from error


def _transformer(source: Any, target: Any) -> Any:
    pyproj = require("pyproj", "geo", "Another coordinate system")
    systems = [
        crs if isinstance(crs, pyproj.CRS) else pyproj.CRS.from_wkt(crs.to_wkt()) for crs in (source, target)
    ]
    return pyproj.Transformer.from_crs(*systems, always_xy=True)


def _apply(transform: Any, at: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b, c, d, e, f = tuple(transform)[:6]
    row, column = at[..., 0], at[..., 1]
    return a * column + b * row + c, d * column + e * row + f


def _extent(raster: Raster, forward: Any) -> tuple[float, float, float, float]:
    """All that points over the raster, its edges among them, reach in the other system."""
    rows, cols = (np.linspace(0, n, EXTENT_POINTS) for n in raster.shape)
    grid = np.stack(np.meshgrid(rows, cols, indexing="ij"), axis=-1)
    x, y = (np.asarray(values) for values in forward.transform(*_apply(raster.transform, grid)))
    # A pole of Mercator's is a finite number after all, hundreds of steps from the next point.
    steps = np.hypot(*(np.diff(values, axis=0) for values in (x, y)))
    if not np.isfinite(x + y).all() or steps.max() > FARTHEST * np.median(steps):
        raise InvalidInput(
            f"Parts of {raster.path} have no place in the coordinate system asked for: say with --bounds"
            " (bounds=) which part of that system to make."
        )
    return float(x.min()), float(y.min()), float(x.max()), float(y.max())


def _bounds(bounds: Sequence[float]) -> Sequence[float]:
    if len(bounds) == 4 and np.all(np.isfinite(bounds)) and bounds[0] < bounds[2] and bounds[1] < bounds[3]:
        return bounds
    raise InvalidInput("Bounds are four numbers: west, south, east and north, the smaller ones first.")


def _ground(raster: Raster, forward: Any) -> float:
    """The side of a square pixel in the other system that covers what one in the raster's middle does."""
    H, W = raster.shape
    corners = np.array([[H / 2, W / 2], [H / 2 + 1, W / 2], [H / 2, W / 2 + 1]])
    x, y = (np.asarray(values) for values in forward.transform(*_apply(raster.transform, corners)))
    down, along = (np.array([x[i] - x[0], y[i] - y[0]]) for i in (1, 2))
    return float(np.sqrt(abs(down[0] * along[1] - down[1] * along[0])))
