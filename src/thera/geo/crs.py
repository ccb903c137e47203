"""Reprojection: the grid of a raster in another coordinate system, and the mapping back to its pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.field.grid import Box
from thera.imaging.sizing import TargetSize
from thera.optional import require
from thera.warp.mappings import MappedPoints, centres

from .raster import Raster
from .writing import GeoGrid, checked_bounds

#: The extent of a raster in another system is found from a grid with this many points a side.
EXTENT_POINTS = 65
#: A step between two of them that is this many median steps long leaves the area where the system is valid.
LARGEST_STEP = 100


class Placed(NamedTuple):
    """Pixels with a place on the ground that are no file: a `path` is only what messages call them."""

    path: object
    shape: tuple[int, int]
    crs: Any
    transform: Any
    gcps: tuple[Sequence[Any], Any] = ((), None)


class Reprojection:
    """Maps the pixels of `grid` to those of a georeferenced raster in another system."""

    def __init__(self, raster: Raster | Placed, grid: GeoGrid) -> None:
        self._back = _transformer(grid.crs, raster.crs)
        self._out, self._in = grid.transform, ~raster.transform
        self._turn = _full_turn(raster.crs)
        x = _apply(raster.transform, np.array([[0, 0], [0, 1], [1, 0], [1, 1]]) * raster.shape)[0]
        self._west, self._east = x.min(), x.max()

    def __call__(self, box: Box) -> MappedPoints:
        top, left, bottom, right = box
        # One pixel more on each side: the Jacobian is computed by differences.
        ground = self._ground(centres((top - 1, left - 1, bottom + 1, right + 1)))
        down = ground[2:, 1:-1] - ground[:-2, 1:-1]
        along = ground[1:-1, 2:] - ground[1:-1, :-2]
        steps = np.stack([down, along], axis=-1) / 2
        steps[..., 0, :] = _shortest(steps[..., 0, :], self._turn / 2)
        a, b, _, d, e, _ = tuple(self._in)[:6]
        return self._pixels(ground[1:-1, 1:-1]), np.array([[d, e], [a, b]]) @ steps

    def locate(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Output (row, column) to input (row, column), NaN where no transformation exists."""
        return self._pixels(self._ground(at))

    def _ground(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Output (row, column) to the raster's own x and y."""
        x, y = self._back.transform(*_apply(self._out, at))
        # Longitudes come back from -180° to 180°, and the raster may count them from 0° or beyond 180°.
        if np.isfinite(self._turn):
            beyond = np.isfinite(x) & ((x < self._west) | (x > self._east))
            x[beyond] = self._west + np.mod(x[beyond] - self._west, self._turn)
        ground = np.stack([x, y], axis=-1)
        ground[~np.isfinite(ground).all(axis=-1)] = np.nan
        return ground

    def _pixels(self, ground: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack(_apply(self._in, ground[..., ::-1])[::-1], axis=-1)


def reprojected(
    raster: Raster | Placed,
    to: object,
    *,
    resolution: float | None = None,
    size: Sequence[int] | None = None,
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
    system = known_crs(to)
    forward = _transformer(raster.crs, system)
    west, south, east, north = checked_bounds(bounds) if bounds is not None else _extent(raster, forward)
    if size is not None:
        height, width = size
        across, down = (east - west) / width, (north - south) / height
    else:
        across = down = _pixel_side(raster, forward) if resolution is None else resolution
        height, width = (max(1, math.ceil(n / down - 1e-6)) for n in (north - south, east - west))
    transform = Affine(across, 0, west, 0, -down, north)
    size = TargetSize(size=(height, width)).for_image(raster.shape)
    return GeoGrid(size, CRS.from_wkt(system.to_wkt()), transform)


def known_crs(given: Any) -> Any:
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
    systems = known_crs(source), known_crs(target)
    try:
        return pyproj.Transformer.from_crs(*systems, always_xy=True)
    except pyproj.exceptions.ProjError as error:  # from one planet to another
        names = " to ".join(system.name for system in systems)
        raise InvalidInput(f"There is no way from the coordinate system {names}: choose another.") from error


def _full_turn(crs: Any) -> float:
    """A full turn in units of a system of longitudes; infinite for other systems."""
    system = known_crs(crs)
    return 2 * math.pi / system.axis_info[0].unit_conversion_factor if system.is_geographic else math.inf


def _shortest(steps: NDArray[np.float64], turn: float) -> NDArray[np.float64]:
    """Differences of longitudes, the short way round; those of systems without a turn as they are."""
    return steps if math.isinf(turn) else (steps + turn / 2) % turn - turn / 2


def _apply(transform: Any, at: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b, c, d, e, f = tuple(transform)[:6]
    row, column = at[..., 0], at[..., 1]
    return a * column + b * row + c, d * column + e * row + f


def _extent(raster: Raster | Placed, forward: Any) -> tuple[float, float, float, float]:
    """The bounds in the other system of a grid of points over the raster, edges included.

    Points without a place there are left out, like the sky around a full disk.
    """
    for points in (EXTENT_POINTS, 16 * EXTENT_POINTS):  # more of them for a horizon
        rows, cols = (np.linspace(0, n, points) for n in raster.shape)
        grid = np.stack(np.meshgrid(rows, cols, indexing="ij"), axis=-1)
        x, y = forward.transform(*_apply(raster.transform, grid))
        there = np.isfinite(x) & np.isfinite(y)
        if there.all():
            break
    x, y = np.where(there, x, np.nan), np.where(there, y, np.nan)
    turn = _full_turn(forward.target_crs)
    # In Mercator a pole has finite coordinates, but hundreds of steps from the next point.
    steps = np.hypot(np.diff(x, axis=0), np.diff(y, axis=0))
    steps = steps[np.isfinite(steps)]
    far = len(steps) and math.isinf(turn) and steps.max() > LARGEST_STEP * np.median(steps)
    if far or not there.any():
        raise InvalidInput(
            f"Parts of {raster.path} have no place in that coordinate system: say with --bounds (bounds=)"
            " which part of the system to make."
        )
    x, y = x[there], y[there]
    if math.isfinite(turn):
        eastward = np.where(x < 0, x + turn, x)  # as one piece across 180°
        x = eastward if np.ptp(eastward) < np.ptp(x) - 1e-9 * turn else x
        for pole in (-turn / 4, turn / 4):
            place = np.array(forward.transform(0.0, pole, direction="INVERSE"))
            if not np.isfinite(place).all():
                continue
            row, col = (float(each) for each in _apply(~raster.transform, place[::-1])[::-1])
            if 0 <= row <= raster.shape[0] and 0 <= col <= raster.shape[1]:
                x, y = np.array([-turn / 2, turn / 2]), np.append(y, pole)
    return float(x.min()), float(y.min()), float(x.max()), float(y.max())


def _pixel_side(raster: Raster | Placed, forward: Any) -> float:
    """The side of a square in the other system with the area of the raster's middle pixel."""
    H, W = raster.shape
    corners = np.array([[H / 2, W / 2], [H / 2 + 1, W / 2], [H / 2, W / 2 + 1]])
    at = np.array(forward.transform(*_apply(raster.transform, corners)))
    steps = at[:, 1:] - at[:, :1]
    steps[0] = _shortest(steps[0], _full_turn(forward.target_crs))
    side = float(np.sqrt(abs(np.linalg.det(steps))))
    if not (math.isfinite(side) and side > 0):
        raise InvalidInput(
            f"The middle of {raster.path} has no place in that coordinate system: say with --resolution"
            " (resolution=) how large pixels shall be."
        )
    return side
