"""Where the pixels of xarray's arrays lie: rows and columns, their coordinates and a GeoTransform."""

import warnings
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from thera.errors import InvalidInput

if TYPE_CHECKING:
    from thera.geo.crs import Placed
    from thera.geo.writing import GeoGrid

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


def place_of(data: xr.DataArray | xr.Dataset, dims: Dims) -> "Placed":
    """Where the pixels of an array lie: its CRS, and its GeoTransform or evenly spaced coordinates."""
    from affine import Affine

    from thera.geo.crs import Placed

    shape = data.sizes[dims[0]], data.sizes[dims[1]]
    name = data.name if isinstance(data, xr.DataArray) and data.name is not None else "The array"
    mapping = _grid_mapping(data)
    attrs = {} if mapping is None else mapping.attrs
    system = attrs.get("crs_wkt") or attrs.get("spatial_ref") or data.attrs.get("crs")
    if system is None:
        raise InvalidInput(
            f"{name} has no coordinate system: say which with .rio.write_crs of rioxarray, or in the"
            " attribute crs_wkt of a coordinate spatial_ref."
        )
    lines = [_line(data, dim) for dim in dims]
    if None not in lines:
        (y, down), (x, along) = lines  # type: ignore[misc]
        return Placed(name, shape, system, Affine(along, 0, x - along / 2, 0, down, y - down / 2))
    if scaled_transform(attrs.get("GeoTransform", ""), (1, 1)) is None:
        raise InvalidInput(
            f"{name} has neither evenly spaced coordinates along {dims[0]!r} and {dims[1]!r} nor a"
            " GeoTransform: give it one of them."
        )
    numbers = [float(number) for number in attrs["GeoTransform"].split()]
    return Placed(name, shape, system, Affine.from_gdal(*numbers))


def _grid_mapping(data: xr.DataArray | xr.Dataset) -> xr.DataArray | None:
    """The variable that describes the coordinate system: the one that is named as it, or as usual."""
    images = [data, *data.data_vars.values()] if isinstance(data, xr.Dataset) else [data]
    named = [place.get("grid_mapping") for each in images for place in (each.encoding, each.attrs)]
    known = {*data.coords, *(data.data_vars if isinstance(data, xr.Dataset) else ())}
    return next((data[name] for name in (*named, "spatial_ref", "crs") if name in known), None)


def _line(data: xr.DataArray | xr.Dataset, dim: Hashable) -> tuple[float, float] | None:
    """The first coordinate along a dimension and the step between them; None if they are not even."""
    if dim not in data.coords or data[dim].dtype.kind not in "uif" or data.sizes[dim] < 2:
        return None
    values = data[dim].values.astype(np.float64)
    step = (values[-1] - values[0]) / (len(values) - 1)
    even = np.abs(values - values[0] - step * np.arange(len(values))).max() <= 1e-3 * abs(step)
    return (float(values[0]), float(step)) if step and even else None


def on_grid(
    warped: xr.DataArray, array: xr.DataArray, dims: Dims, grid: "GeoGrid", nodata: float | None
) -> xr.DataArray:
    """`warped` with the coordinates and the CRS of a grid, and what `array` has beside its own."""
    from thera.geo.crs import known_crs

    system = known_crs(grid.crs)
    # Metres are no latitudes.
    names = dims if system.is_geographic or dims not in SPATIAL[1:3] else SPATIAL[0]
    axes = {axis.get("axis"): axis for axis in system.cs_to_cf()}
    lengths = zip(names, ("Y", "X"), (grid.transform.f, grid.transform.c), strict=True)
    steps = dict(zip(names, (grid.transform.e, grid.transform.a), strict=True))
    coords: dict[Hashable, Any] = {
        name: each.variable for name, each in array.coords.items() if not set(dims) & set(each.dims)
    }
    warped = warped.rename(dict(zip(dims, names, strict=True)))
    for name, axis, start in lengths:
        centres = start + steps[name] * (np.arange(warped.sizes[name]) + 0.5)
        coords[name] = xr.Variable((name,), centres, axes.get(axis, {}))
    mapping = _grid_mapping(array)
    label = "spatial_ref" if mapping is None else mapping.name
    transform = " ".join(map(repr, grid.transform.to_gdal()))
    coords[label] = ((), 0, system.to_cf() | {"spatial_ref": system.to_wkt(), "GeoTransform": transform})
    warped = warped.assign_coords(coords)
    warped.encoding = {key: value for key, value in array.encoding.items() if key not in OF_CHUNKS}
    if "grid_mapping" not in array.attrs:
        warped.encoding["grid_mapping"] = label
    declared = {*array.attrs, *array.encoding} & {"_FillValue", "missing_value", "nodata"}
    if nodata is not None and not np.isnan(nodata) and not declared:
        warped.attrs["_FillValue"] = warped.dtype.type(nodata)
    return warped.transpose(*(dict(zip(dims, names, strict=True)).get(dim, dim) for dim in array.dims))
