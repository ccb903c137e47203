"""`.thera.upscale(...)`, `.reduce(...)` and `.warp(...)` on xarray's arrays and datasets.

>>> import numpy as np, xarray as xr
>>> import thera.xarray
>>> scene = xr.DataArray(np.zeros((8, 6), np.uint8), dims=("y", "x"), coords={"x": np.arange(6) * 10.0 + 5})
>>> scene.thera.upscale(2, model="edsr-air").x.values
array([ 2.5,  7.5, 12.5, 17.5, 22.5, 27.5, 32.5, 37.5, 42.5, 47.5, 52.5,
       57.5])
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from thera.errors import InvalidInput
from thera.optional import require

require("xarray", "dask", "thera.xarray")

import dask.array as da  # noqa: E402
import xarray as xr  # noqa: E402

from thera.dask.arrays import Settings, scale_chunks  # noqa: E402
from thera.dask.coordinates import Dims, georeferenced, on_grid, place_of, placed, spatial_dims  # noqa: E402
from thera.field import Lanczos  # noqa: E402
from thera.imaging import DEFAULT_MODEL  # noqa: E402
from thera.imaging.sizing import TargetSize  # noqa: E402
from thera.values.meaning import AlphaUse, Groups, Meaning, Nodata, ValueRange, flattened  # noqa: E402
from thera.values.ranges import Stretch, holds  # noqa: E402

if TYPE_CHECKING:
    from thera.geo.crs import Placed

Data = TypeVar("Data", xr.DataArray, xr.Dataset)
#: Makes of an image in chunks another one; the last argument says whether its bands are "first" or "last".
MakeChunks = Callable[[da.Array, Settings, str], da.Array]

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

    def reduce(
        self,
        factor: float | None = None,
        model: str | Path = DEFAULT_MODEL,
        *,
        size: Sequence[int] | None = None,
        psf: object = None,
        **options: Any,
    ) -> Data:
        """The array with pixels `factor` times as large, or of a smaller `size` = (height, width).

        Every output pixel is the field averaged over its place with the weights of `psf`, by default
        `thera.Lanczos()`: all detail that the output can show, and nearly none beyond, so that nothing
        aliases. `thera.Box()` is the mean over the pixel. The other `options` are those of `upscale`.
        """
        target = TargetSize(None if factor is None else 1 / factor if factor else 0.0, size)
        rows, cols = spatial_dims(self._data, options.get("dims"))
        shape = self._data.sizes[rows], self._data.sizes[cols]
        if any(new > old for new, old in zip(target.for_image(shape), shape, strict=True)):
            what = f"factor={factor!r}" if size is None else f"size={size!r}"
            raise InvalidInput(f"{what} would make the array larger: use .thera.upscale for that.")
        return self.upscale(target.scale, model, size=size, psf=psf or Lanczos(), **options)

    def warp(
        self,
        crs: object,
        resolution: float | None = None,
        model: str | Path = DEFAULT_MODEL,
        *,
        size: Sequence[int] | None = None,
        bounds: Sequence[float] | None = None,
        dims: Dims | None = None,
        value_range: ValueRange | None = None,
        groups: Groups | None = None,
        nodata: Nodata | None = None,
        alpha: AlphaUse | None = None,
        psf: object = None,
        **options: Any,
    ) -> Data:
        """The array on a grid in the coordinate system `crs`, north up, as `thera warp --to` makes it.

        The grid covers the whole array, or `bounds` (west, south, east, north). Its pixels have a side of
        `resolution` units, or there are `size` = (height, width); by default they are about as large as the
        array's. An array needs a CRS, as rioxarray writes it, and evenly spaced coordinates or a
        GeoTransform. Pixels outside it are `nodata`, which integers must have. The filter `psf` is
        `thera.Lanczos()` unless given. The other options are those of `upscale`.
        """
        meaning = Meaning(value_range, groups, nodata, alpha)
        settings = Settings.of(model, meaning, psf=psf or Lanczos(), **options)
        dims = spatial_dims(self._data, dims)
        wanted = {"to": crs, "resolution": resolution, "size": size, "bounds": bounds}
        if isinstance(self._data, xr.Dataset):
            return warp_dataset(self._data, dims, settings, wanted)
        return warp_data_array(self._data, dims, settings, wanted)


xr.register_dataarray_accessor("thera")(Accessor)
xr.register_dataset_accessor("thera")(Accessor)


def scale_data_array(
    array: xr.DataArray, target: TargetSize, settings: Settings, dims: Dims | None = None
) -> xr.DataArray:
    """What `array.thera.upscale` gives."""
    dims = spatial_dims(array, dims)

    def make(part: da.Array, settings: Settings, channels: str) -> da.Array:
        return scale_chunks(part, target, settings, channels)

    return placed(_each_image(array, dims, settings, make), array, dims).transpose(*array.dims)


def scale_dataset(
    dataset: xr.Dataset, target: TargetSize, settings: Settings, dims: Dims | None = None
) -> xr.Dataset:
    """What `dataset.thera.upscale` gives."""
    rows, cols = spatial_dims(dataset, dims)
    images = {
        name: scale_data_array(variable, target, settings, (rows, cols))
        for name, variable in _images_of(dataset, (rows, cols)).items()
    }
    sizes = next(iter(images.values())).sizes
    steps = [dataset.sizes[dim] / sizes[dim] for dim in (rows, cols)]
    kept = dataset.drop_dims((rows, cols))
    # The CRS is a variable of its own where it was not read as a coordinate.
    kept = kept.assign({name: georeferenced(kept[name].variable, steps) for name in kept.data_vars})
    kept = kept.assign_coords({name: georeferenced(kept[name].variable, steps) for name in kept.coords})
    return kept.assign(images)


def warp_data_array(
    array: xr.DataArray, dims: Dims, settings: Settings, wanted: dict[str, Any], place: "Placed | None" = None
) -> xr.DataArray:
    """What `array.thera.warp` gives. `wanted`: the options of `reprojected`, which makes the grid.

    `place`: where the array lies, if it does not say so itself.
    """
    from thera.dask.warping import warp_chunks
    from thera.geo.crs import Reprojection, reprojected

    place = place or place_of(array, dims)
    grid = reprojected(place, **wanted)
    mapping = Reprojection(place, grid)
    used: list[float] = []

    def make(part: da.Array, settings: Settings, channels: str) -> da.Array:
        given: Any = settings.meaning.nodata
        used.extend(value for value in np.ravel(given) if value is not None)
        return warp_chunks(part, mapping, grid.size, settings, channels)

    warped = _each_image(array, dims, settings, make)
    return on_grid(warped, array, dims, grid, used[0] if used else None)


def warp_dataset(dataset: xr.Dataset, dims: Dims, settings: Settings, wanted: dict[str, Any]) -> xr.Dataset:
    """What `dataset.thera.warp` gives."""
    place = place_of(dataset, dims)
    images = {
        name: warp_data_array(variable, dims, settings, wanted, place)
        for name, variable in _images_of(dataset, dims).items()
    }
    kept = dataset.drop_dims(dims)
    coords = next(iter(images.values())).coords
    # The old CRS would win over the new one.
    return kept.drop_vars([name for name in kept.variables if name in coords]).assign(images)


def _images_of(dataset: xr.Dataset, dims: Dims) -> dict[Hashable, xr.DataArray]:
    """The variables of a dataset that have rows and columns."""
    rows, cols = dims
    variables = dataset.data_vars
    images = {name: each for name, each in variables.items() if rows in each.dims and cols in each.dims}
    if not images:
        raise InvalidInput(f"The dataset has no variable of dimensions {rows!r} and {cols!r} to scale.")
    left = [
        name
        for name, variable in variables.items()
        if name not in images and (rows in variable.dims or cols in variable.dims)
    ]
    if left:
        raise InvalidInput(
            f"The variables {left} have {rows!r} or {cols!r} but not both, and cannot be scaled: drop them"
            " with .drop_vars."
        )
    return images


def _each_image(array: xr.DataArray, dims: Dims, settings: Settings, make: MakeChunks) -> xr.DataArray:
    """What `make` gives for every image in an array, along its other dimensions; without coordinates.

    Rows and columns are the last dimensions, and the bands come before them.
    """
    meaning = settings.meaning
    rows, cols = dims
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
        return make(part, settings, "first" if bands else "last")

    lazy = scaled(samples)
    data = lazy if array.chunks is not None else lazy.compute()
    return xr.DataArray(data, dims=ordered.dims, name=array.name, attrs=array.attrs)


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
