"""`.thera.upscale(...)` on xarray's arrays and datasets.

>>> import numpy as np, xarray as xr
>>> import thera.xarray
>>> scene = xr.DataArray(np.zeros((8, 6), np.uint8), dims=("y", "x"), coords={"x": np.arange(6) * 10.0 + 5})
>>> scene.thera.upscale(2, model="edsr-air").x.values
array([ 2.5,  7.5, 12.5, 17.5, 22.5, 27.5, 32.5, 37.5, 42.5, 47.5, 52.5,
       57.5])
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from thera.errors import InvalidInput
from thera.optional import require

require("xarray", "dask", "thera.xarray")

import dask.array as da  # noqa: E402
import xarray as xr  # noqa: E402

from thera.dask.arrays import Settings, scale_chunks  # noqa: E402
from thera.dask.coordinates import Dims, georeferenced, placed, spatial_dims  # noqa: E402
from thera.imaging import DEFAULT_MODEL  # noqa: E402
from thera.imaging.sizing import TargetSize  # noqa: E402
from thera.values.meaning import AlphaUse, Groups, Meaning, Nodata, ValueRange, flattened  # noqa: E402
from thera.values.ranges import Stretch, holds  # noqa: E402

Data = TypeVar("Data", xr.DataArray, xr.Dataset)

#: What the dimension of the bands is called, where there is more than one beside rows and columns.
BANDS = ("band", "bands", "channel", "channels", "wavelength")
#: What says which value stands for no data, in the order in which it is looked for.
NO_DATA = ("_FillValue", "missing_value", "nodata")


class Accessor(Generic[Data]):
    """The methods of `array.thera` and `dataset.thera`."""

    def __init__(self, data: Data) -> None:
        self._data: Data = data

    def upscale(
        self,
        scale: float | None = None,
        model: str | Path = DEFAULT_MODEL,
        *,
        size: Sequence[int] | None = None,
        dims: Dims | None = None,
        value_range: ValueRange | None = None,
        groups: Groups | None = None,
        nodata: Nodata | None = None,
        alpha: AlphaUse | None = None,
        **options: Any,
    ) -> Data:
        """The array at another scale, or of another `size` = (height, width), with its coordinates and CRS.
        Of a dataset every variable that has rows and columns is scaled, and the others are kept.

        `dims` are the rows and columns, ("y", "x") or another usual pair unless given. Coordinates along them
        and a GeoTransform are those of the new pixels. An array of Dask chunks stays lazy.

        The other `options` are those of `thera.dask.upscale`. By default, values are understood as those of
        raster files are in the program:

        - `groups`: arrays along other dimensions (bands, dates, depths) are seen one by one. Three bands are
          a colour if their coordinate calls them red, green and blue, or if `groups` names them, by their
          coordinate or else by position: [("B04", "B03", "B02")].
        - `value_range`: bytes span their type ("dtype"), other samples what they hold ("extent").
        - `nodata`: what attributes or encoding declare (_FillValue, missing_value, nodata); in floats NaN.
        - `alpha`: the last band covers if it is called alpha.
        """
        settings = Settings.of(model, Meaning(value_range, groups, nodata, alpha), **options)
        if isinstance(self._data, xr.Dataset):
            return scale_dataset(self._data, TargetSize(scale, size), settings, dims)
        return scale_data_array(self._data, TargetSize(scale, size), settings, dims)


xr.register_dataarray_accessor("thera")(Accessor)
xr.register_dataset_accessor("thera")(Accessor)


def scale_data_array(
    array: xr.DataArray, target: TargetSize, settings: Settings, dims: Dims | None = None
) -> xr.DataArray:
    """What `array.thera.upscale` gives."""
    meaning = settings.meaning
    rows, cols = spatial_dims(array, dims)
    if rows not in array.dims or cols not in array.dims:
        raise InvalidInput(
            f"The dimensions {tuple(array.dims)} were given: expected {rows!r} and {cols!r} among them."
        )
    others = [dim for dim in array.dims if dim not in (rows, cols)]
    band = _band_dim(others)
    if meaning.value_range is None:
        meaning = replace(meaning, value_range=Stretch.usual(array.dtype))
    if band is not None:
        meaning = meaning.named(_names(array, band, meaning.groups))
    elif meaning.groups is not None and others:
        raise InvalidInput(
            f"groups={meaning.groups!r} was given, but none of the dimensions {others} is known to be that of"
            f" the bands: rename it to {BANDS[0]!r}."
        )
    bands = [] if band is None else [band]
    ordered = array.transpose(*(dim for dim in others if dim != band), *bands, rows, cols)
    samples, nodata = _samples(ordered)
    if meaning.nodata is None:
        meaning = replace(meaning, nodata=nodata)
    settings = settings._replace(meaning=meaning)

    def scaled(part: da.Array) -> da.Array:
        if part.ndim > len(bands) + 2:
            return da.stack([scaled(each) for each in part])
        return scale_chunks(part, target, settings, "first" if bands else "last")

    lazy = scaled(samples)
    data = lazy if array.chunks is not None else lazy.compute()
    result = xr.DataArray(data, dims=ordered.dims, name=array.name, attrs=array.attrs)
    return placed(result, array, (rows, cols)).transpose(*array.dims)


def scale_dataset(
    dataset: xr.Dataset, target: TargetSize, settings: Settings, dims: Dims | None = None
) -> xr.Dataset:
    """What `dataset.thera.upscale` gives."""
    rows, cols = spatial_dims(dataset, dims)
    images = {
        name: scale_data_array(variable, target, settings, (rows, cols))
        for name, variable in dataset.data_vars.items()
        if rows in variable.dims and cols in variable.dims
    }
    if not images:
        raise InvalidInput(f"The dataset has no variable of dimensions {rows!r} and {cols!r} to scale.")
    left = [
        name
        for name, variable in dataset.data_vars.items()
        if name not in images and (rows in variable.dims or cols in variable.dims)
    ]
    if left:
        raise InvalidInput(
            f"The variables {left} have {rows!r} or {cols!r} but not both, and cannot be scaled: drop them"
            " with .drop_vars."
        )
    sizes = next(iter(images.values())).sizes
    steps = [dataset.sizes[dim] / sizes[dim] for dim in (rows, cols)]
    kept = dataset.drop_dims((rows, cols))
    # The CRS is a variable of its own where it was not read as a coordinate.
    kept = kept.assign({name: georeferenced(kept[name].variable, steps) for name in kept.data_vars})
    kept = kept.assign_coords({name: georeferenced(kept[name].variable, steps) for name in kept.coords})
    return kept.assign(images)


def _band_dim(others: Sequence[Hashable]) -> Hashable | None:
    """The dimension of the bands: the only one beside rows and columns, or the one that is called so."""
    if len(others) == 1:
        return others[0]
    return next((dim for dim in others if str(dim).lower() in BANDS), None)


def _names(array: xr.DataArray, band: Hashable, groups: Groups | None) -> list[Hashable]:
    """The names of the bands: `long_name` as rioxarray reads it, their coordinate, or their positions."""
    labels = array[band].values.tolist() if band in array.coords else list(range(array.sizes[band]))
    described = array.attrs.get("long_name")
    if groups is None or not isinstance(described, tuple | list) or len(described) != len(labels):
        return labels  # as the program does, which does not go by descriptions
    by_label = groups is not None and all(name in labels for name in flattened(groups))
    return labels if by_label else list(described)


def _samples(array: xr.DataArray) -> tuple[da.Array, float | None]:
    """The samples of an array, and the value that stands for no data in them."""
    samples = da.asarray(array.data)
    if samples.dtype.kind not in "uif":  # they are refused later
        return samples, None
    declared = [
        value
        for place in (array.attrs, array.encoding)
        for attribute in NO_DATA
        for value in np.ravel(place.get(attribute, ()))
        # What is decoded as a float has NaN where its file has the value.
        if holds(samples.dtype, value) and not (place is array.encoding and samples.dtype.kind == "f")
    ]
    if not declared:
        return samples, np.nan if samples.dtype.kind == "f" else None
    mark, *others = declared
    for other in others:
        if not (other == mark or np.isnan(other)):
            samples = da.where(samples == samples.dtype.type(other), samples.dtype.type(mark), samples)
    return samples, float(mark)
