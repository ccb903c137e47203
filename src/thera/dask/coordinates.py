"""Where the pixels of xarray's arrays lie: rows and columns, their coordinates and a GeoTransform."""

import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from thera.errors import InvalidInput

Dims = tuple[Hashable, Hashable]  # the names of rows and columns

#: What rows and columns are called, in the order in which they are looked for.
SPATIAL = (("y", "x"), ("latitude", "longitude"), ("lat", "lon"), ("Y", "X"), ("row", "col"))
#: Parts of an encoding that describe the chunks of the input, not those of the result.
OF_CHUNKS = ("chunks", "preferred_chunks", "shards", "chunksizes", "contiguous", "original_shape", "source")


def spatial_dims(array: xr.DataArray | xr.Dataset, dims: Dims | None = None) -> Dims:
    """The dimensions that are rows and columns: those given, or by their names."""
    if dims is not None:
        if not isinstance(dims, tuple | list) or len(dims) != 2 or dims[0] == dims[1]:
            raise InvalidInput(
                f'dims={dims!r} was given: expected the names of rows and columns, as in ("north", "east").'
            )
        return dims[0], dims[1]
    for rows, cols in SPATIAL:
        if rows in array.dims and cols in array.dims:
            return rows, cols
    raise InvalidInput(
        f"None of the dimensions {tuple(array.dims)} are known to be rows and columns: rename those that are"
        ' to y and x or, in Python, say which are, as in dims=("north", "east").'
    )


def placed(scaled: xr.DataArray, array: xr.DataArray, dims: Dims) -> xr.DataArray:
    """`scaled` with the coordinates of `array`, those along rows and columns at the new pixels' centres."""
    coords: dict[Hashable, Any] = {}
    for name, coordinate in array.coords.items():
        variable = coordinate.variable
        for dim in dims:
            if dim in variable.dims:
                variable = _resampled(name, variable, dim, scaled.sizes[dim])
        coords[name] = variable
    steps = [array.sizes[dim] / scaled.sizes[dim] for dim in dims]
    scaled = scaled.assign_coords({name: georeferenced(each, steps) for name, each in coords.items()})
    scaled.encoding = {key: value for key, value in array.encoding.items() if key not in OF_CHUNKS}
    return scaled


def georeferenced(variable: xr.Variable, steps: Sequence[float]) -> xr.Variable:
    """A variable whose GeoTransform, if it has one, is that of pixels of another size."""
    transform = variable.attrs.get("GeoTransform")
    if transform is None:
        return variable
    attrs = {**variable.attrs, "GeoTransform": scaled_transform(transform, steps)}
    if attrs["GeoTransform"] is None:  # gridMET's has five numbers; coordinates say where pixels lie
        warnings.warn(f"The GeoTransform {transform!r} is not six numbers: it is left out.", stacklevel=2)
        del attrs["GeoTransform"]
    return xr.Variable(variable.dims, variable.data, attrs, variable.encoding)


def scaled_transform(text: str, steps: Sequence[float]) -> str | None:
    """GDAL's GeoTransform of an image whose pixels are now so many of the old ones high and wide.

    It is None for a text that is none.

    >>> scaled_transform("500000 10 0 4600000 0 -10", (0.5, 0.25))
    '500000.0 2.5 0.0 4600000.0 0.0 -5.0'
    """
    try:
        x, x_by_col, x_by_row, y, y_by_col, y_by_row = (float(number) for number in text.split())
    except (AttributeError, ValueError):
        return None
    down, along = steps
    numbers = (x, x_by_col * along, x_by_row * down, y, y_by_col * along, y_by_row * down)
    return " ".join(map(repr, numbers))


def _resampled(name: Hashable, variable: xr.Variable, dim: Hashable, size: int) -> xr.Variable:
    """A coordinate at the centres of `size` pixels along `dim`: on lines through the old ones."""
    length = variable.sizes[dim]
    if size == length:
        return variable
    if variable.dtype.kind not in "uif" or length < 2:
        raise InvalidInput(
            f"The coordinate {name!r} of {length} {variable.dtype} values along {dim!r} cannot be put between"
            " pixels: drop it with .drop_vars."
        )
    centre = (np.arange(size) + 0.5) * (length / size) - 0.5
    before = np.clip(np.floor(centre).astype(int), 0, length - 2)
    share = xr.Variable((dim,), centre - before)
    values = variable.astype(np.float64)
    low, high = values.isel({dim: before}), values.isel({dim: before + 1})
    result = (low + (high - low) * share).transpose(*variable.dims)
    return xr.Variable(result.dims, result.data, variable.attrs)
