"""`.thera.upscale(...)` on xarray's arrays and datasets; importing this module adds it.

>>> import numpy as np, xarray as xr
>>> import thera.xarray
>>> scene = xr.DataArray(np.zeros((8, 6), np.uint8), dims=("y", "x"), coords={"x": np.arange(6) * 10.0 + 5})
>>> scene.thera.upscale(2, model="edsr-air").x.values
array([ 2.5,  7.5, 12.5, 17.5, 22.5, 27.5, 32.5, 37.5, 42.5, 47.5, 52.5,
       57.5])
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from thera.errors import InvalidInput
from thera.optional import require

require("xarray", "dask", "thera.xarray")

import dask.array as da  # noqa: E402
import xarray as xr  # noqa: E402

from thera.dask import upscale  # noqa: E402

#: What rows and columns are called, in the order in which they are looked for.
SPATIAL = (("y", "x"), ("latitude", "longitude"), ("lat", "lon"), ("Y", "X"), ("row", "col"))
#: What says, of samples that were read as they are stored, which value stands for none.
NO_DATA = ("_FillValue", "missing_value")
#: What the file that an array came from says of its chunks, which are not those of the result.
OF_CHUNKS = ("chunks", "preferred_chunks", "shards", "chunksizes", "contiguous", "original_shape", "source")


@xr.register_dataarray_accessor("thera")
class ArrayAccessor:
    """Scaling of a data array. Its methods are those of `array.thera`."""

    def __init__(self, array: xr.DataArray) -> None:
        self._array = array

    def upscale(
        self,
        scale: float | None = None,
        *,
        size: Sequence[int] | None = None,
        dims: tuple[Hashable, Hashable] | None = None,
        **options: Any,
    ) -> xr.DataArray:
        """The array at another scale, or of another `size` = (height, width), with its coordinates and CRS.

        `dims` are the rows and columns, ("y", "x") or another usual pair unless given. A third dimension is
        that of the bands. Coordinates along rows and columns are those of the new pixels' centres; a
        GeoTransform, as rioxarray keeps one, is scaled with them; everything else is kept.

        An array of Dask chunks stays lazy, another is computed at once. The `options` are those of
        `thera.dask.upscale`.
        """
        array = self._array
        rows, cols = spatial_dims(array, dims)
        others = [dim for dim in array.dims if dim not in (rows, cols)]
        if rows not in array.dims or cols not in array.dims or len(others) > 1:
            raise InvalidInput(
                f"An array of dimensions {tuple(array.dims)} was given: expected {rows!r}, {cols!r} and at"
                " most one more, of bands; select one of the others with .isel."
            )
        ordered = array.transpose(*others, rows, cols)
        lazy = upscale(_samples(ordered), scale, size=size, channels="first" if others else "last", **options)
        data = lazy if array.chunks is not None else lazy.compute()
        scaled = xr.DataArray(data, dims=ordered.dims, name=array.name, attrs=array.attrs)
        return _placed(scaled, array, (rows, cols)).transpose(*array.dims)


@xr.register_dataset_accessor("thera")
class DatasetAccessor:
    """Scaling of a dataset. Its methods are those of `dataset.thera`."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def upscale(
        self,
        scale: float | None = None,
        *,
        size: Sequence[int] | None = None,
        dims: tuple[Hashable, Hashable] | None = None,
        **options: Any,
    ) -> xr.Dataset:
        """Every variable that has rows and columns at another scale, the others as they are."""
        rows, cols = spatial_dims(self._dataset, dims)
        images = {
            name: variable.thera.upscale(scale, size=size, dims=(rows, cols), **options)
            for name, variable in self._dataset.data_vars.items()
            if rows in variable.dims and cols in variable.dims
        }
        if not images:
            raise InvalidInput(f"The dataset has no variable of dimensions {rows!r} and {cols!r} to scale.")
        left = [
            name
            for name, variable in self._dataset.data_vars.items()
            if name not in images and (rows in variable.dims or cols in variable.dims)
        ]
        if left:
            raise InvalidInput(
                f"The variables {left} have {rows!r} or {cols!r} but not both, and cannot be scaled: drop"
                " them with .drop_vars."
            )
        sizes = next(iter(images.values())).sizes
        steps = [self._dataset.sizes[dim] / sizes[dim] for dim in (rows, cols)]
        kept = self._dataset.drop_dims((rows, cols))
        # Where it was not read as a coordinate, what says the CRS is a variable of its own.
        kept = kept.assign({name: _georeferenced(kept[name].variable, steps) for name in kept.data_vars})
        kept = kept.assign_coords({name: _georeferenced(kept[name].variable, steps) for name in kept.coords})
        return kept.assign(images)


def spatial_dims(
    array: xr.DataArray | xr.Dataset, dims: tuple[Hashable, Hashable] | None = None
) -> tuple[Hashable, Hashable]:
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


def _samples(array: xr.DataArray) -> da.Array:
    """The samples of an array, which are refused when they are read if some of them stand for no data."""
    samples = da.asarray(array.data)
    for attribute in NO_DATA:
        for value in np.ravel(array.attrs.get(attribute, ())):
            named = "The array" if array.name is None else f"The array {array.name!r}"
            told = f"{named} holds {value}, its {attribute}, which stands for no data"
            samples = samples.map_blocks(_without, value, told, dtype=samples.dtype, meta=samples._meta)
    return samples


def _without(block: np.ndarray, value: np.generic, told: str) -> np.ndarray:
    # A float is marked by what became of the value there: 1e20 is another number in float32.
    if (block == (value.astype(block.dtype) if block.dtype.kind == "f" else value)).any():
        raise InvalidInput(f"{told}: replace it before it is scaled, or drop that attribute if it is data.")
    return block


def _placed(scaled: xr.DataArray, array: xr.DataArray, dims: tuple[Hashable, Hashable]) -> xr.DataArray:
    """`scaled` with the coordinates of `array`, those along rows and columns at the new pixels' centres."""
    coords: dict[Hashable, Any] = {}
    for name, coordinate in array.coords.items():
        variable = coordinate.variable
        for dim in dims:
            if dim in variable.dims:
                variable = _resampled(name, variable, dim, scaled.sizes[dim])
        coords[name] = variable
    steps = [array.sizes[dim] / scaled.sizes[dim] for dim in dims]
    scaled = scaled.assign_coords({name: _georeferenced(each, steps) for name, each in coords.items()})
    scaled.encoding = {key: value for key, value in array.encoding.items() if key not in OF_CHUNKS}
    return scaled


def _georeferenced(variable: xr.Variable, steps: Sequence[float]) -> xr.Variable:
    """A variable whose GeoTransform, if it has one, is that of pixels of another size."""
    transform = variable.attrs.get("GeoTransform")
    if transform is None:
        return variable
    attrs = {**variable.attrs, "GeoTransform": scaled_transform(transform, steps)}
    return xr.Variable(variable.dims, variable.data, attrs, variable.encoding)


def scaled_transform(text: str, steps: Sequence[float]) -> str:
    """GDAL's GeoTransform of an image whose pixels are now so many of the old ones high and wide.

    >>> scaled_transform("500000 10 0 4600000 0 -10", (0.5, 0.25))
    '500000.0 2.5 0.0 4600000.0 0.0 -5.0'
    """
    try:
        x, x_by_col, x_by_row, y, y_by_col, y_by_row = (float(number) for number in text.split())
    except (AttributeError, ValueError) as error:
        raise InvalidInput(
            f"The GeoTransform {text!r} was given: expected a text of six numbers; mend or delete it."
        ) from error
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
