"""Reprojection: the grid of a raster in another coordinate system, and the mapping back to its pixels."""

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
from thera.warp.mappings import MappedPoints, centres

from .raster import Raster
from .writing import GeoGrid

#: The extent of a raster in another system is found from a grid with this many points a side.
EXTENT_POINTS = 65
#: A step between two of them that is this many median steps long leaves the area where the system is valid.
LARGEST_STEP = 100


class Reprojection:
    """Maps the pixels of `grid` to those of a georeferenced raster in another system."""

    def __init__(self, raster: Raster, grid: GeoGrid) -> None:
        self._back = _transformer(grid.crs, raster.crs)
        self._out = grid.transform
        self._in = ~raster.transform

    def __call__(self, box: Box) -> MappedPoints:
        top, left, bottom, right = box
        # One pixel more on each side: the Jacobian is computed by differences.
        points = self.locate(centres((top - 1, left - 1, bottom + 1, right + 1)))
        down = (points[2:, 1:-1] - points[:-2, 1:-1]) / 2
        along = (points[1:-1, 2:] - points[1:-1, :-2]) / 2
        return points[1:-1, 1:-1], np.stack([down, along], axis=-1)

    def locate(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Output (row, column) to input (row, column), NaN where no transformation exists."""
        x, y = self._back.transform(*_apply(self._out, at))
        points = np.stack(_apply(self._in, np.stack([y, x], axis=-1))[::-1], axis=-1)
        points[~np.isfinite(points).all(axis=-1)] = np.nan
        return points


def reprojected(
    raster: Raster,
    to: str,
    *,
    resolution: float | None = None,
    size: tuple[int, int] | None = None,
    bounds: Sequence[float] | None = None,
) -> GeoGrid:
    """The grid of a raster in the coordinate system `to`, north up.

    It covers the whole raster, or `bounds` (west, south, east, north) in units of `to`. Its pixels have a
    side of `resolution` units, or there are `size` = (height, width) of them. By default they are about as
    large as the raster's.
    """
    from affine import Affine
    from rasterio.crs import CRS

    if raster.crs is None:
        raise InvalidInput(f"{raster.path} has no coordinate system: set one first (rio edit-info --crs).")
    if raster.transform.is_identity:
        how = "ground control points only" if raster.gcps[0] else "no geotransform"
        raise InvalidInput(
            f"{raster.path} has {how}, so not every pixel has coordinates: make it a grid first (gdalwarp)."
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
        across = down = _pixel_side(raster, forward) if resolution is None else resolution
        height, width = (max(1, math.ceil(n / down - 1e-6)) for n in (north - south, east - west))
    transform = Affine(across, 0, west, 0, -down, north)
    size = TargetSize(size=(height, width)).for_image(raster.shape)
    return GeoGrid(size, CRS.from_wkt(system.to_wkt()), transform)


def _crs(given: Any) -> Any:
    """A coordinate system of pyproj's, from one of rasterio's or from text."""
    pyproj = require("pyproj", "geo", "Another coordinate system")
    try:
        return pyproj.CRS.from_user_input(given)
    except pyproj.exceptions.CRSError as error:
        raise InvalidInput(
            f"{given!r} is not a known coordinate system: write it like EPSG:3857, or as WKT or PROJ."
        ) from error


def _transformer(source: Any, target: Any) -> Any:
    pyproj = require("pyproj", "geo", "Another coordinate system")
    return pyproj.Transformer.from_crs(_crs(source), _crs(target), always_xy=True)


def _apply(transform: Any, at: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b, c, d, e, f = tuple(transform)[:6]
    row, column = at[..., 0], at[..., 1]
    return a * column + b * row + c, d * column + e * row + f


def _extent(raster: Raster, forward: Any) -> tuple[float, float, float, float]:
    """The bounds in the other system of a grid of points over the raster, edges included."""
    rows, cols = (np.linspace(0, n, EXTENT_POINTS) for n in raster.shape)
    grid = np.stack(np.meshgrid(rows, cols, indexing="ij"), axis=-1)
    x, y = forward.transform(*_apply(raster.transform, grid))
    # In Mercator a pole has finite coordinates, but hundreds of steps from the next point.
    steps = np.hypot(*(np.diff(values, axis=0) for values in (x, y)))
    if not np.isfinite(x + y).all() or steps.max() > LARGEST_STEP * np.median(steps):
        raise InvalidInput(
            f"Parts of {raster.path} have no place in that coordinate system: say with --bounds (bounds=)"
            " which part of the system to make."
        )
    return float(x.min()), float(y.min()), float(x.max()), float(y.max())


def _bounds(bounds: Sequence[float]) -> Sequence[float]:
    if len(bounds) == 4 and np.all(np.isfinite(bounds)) and bounds[0] < bounds[2] and bounds[1] < bounds[3]:
        return bounds
    raise InvalidInput("Bounds are four finite numbers: west, south, east, north, the smaller ones first.")


def _pixel_side(raster: Raster, forward: Any) -> float:
    """The side of a square in the other system with the area of the raster's middle pixel."""
    H, W = raster.shape
    corners = np.array([[H / 2, W / 2], [H / 2 + 1, W / 2], [H / 2, W / 2 + 1]])
    at = np.array(forward.transform(*_apply(raster.transform, corners)))
    return float(np.sqrt(abs(np.linalg.det(at[:, 1:] - at[:, :1]))))
