"""OME-Zarr images (0.4 and 0.5): every plane of channels, depths and times by itself, with the pixel size."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
import zarr

from thera.dask.accessor import scale_data_array
from thera.dask.arrays import Settings
from thera.errors import ImageFileError
from thera.imaging.sizing import TargetSize


def image_of(node: zarr.Group) -> Mapping[str, Any] | None:
    """The description of the image in a group, OME's `multiscales`; None if it is no OME-Zarr image."""
    attrs: Any = node.attrs
    place = attrs.get("ome", attrs)
    images = place.get("multiscales") if isinstance(place, Mapping) else None
    return images[0] if isinstance(images, list) and images and isinstance(images[0], Mapping) else None


class OmeImage:
    """The finest level of an OME-Zarr image, and how its scaled copy is written."""

    def __init__(self, source: Path, node: zarr.Group, image: Mapping[str, Any]) -> None:
        self.node, self.image = node, image
        try:
            self.dims = tuple(axis if isinstance(axis, str) else axis["name"] for axis in image["axes"])
            levels = image["datasets"]
            finest = node[levels[0]["path"]]
            self.steps = [self._steps(level) for level in levels]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ImageFileError(f"{source} has a damaged description of its OME-Zarr image.") from error
        if not isinstance(finest, zarr.Array):
            raise ImageFileError(f"{source} has a group where the finest level of its image should be.")
        self.array: Any = finest
        if self.dims[-2:] != ("y", "x") or finest.ndim != len(self.dims):
            raise ImageFileError(
                f"{source} has an image with the axes {', '.join(self.dims)}: expected y and x at the end."
            )
        self.shape = finest.shape[-2], finest.shape[-1]
        self._lazy = da.from_zarr(source / levels[0]["path"])

    def _steps(self, level: Mapping[str, Any]) -> list[float]:
        """The sides of a level's pixels along each axis, in the image's units."""
        found = {"scale": [1.0] * len(self.dims)}
        for transform in level.get("coordinateTransformations", ()):
            if (kind := transform["type"]) in ("scale", "translation"):
                found[kind] = [float(length) for length in transform[kind]]
                if len(found[kind]) != len(self.dims):
                    raise ValueError(f"The {kind} has not one number for each axis.")
        return found["scale"]

    def scaled(self, target: TargetSize, settings: Settings) -> da.Array:
        """The finest level at another size; what it holds along other axes one by one."""
        array = xr.DataArray(self._lazy, dims=self.dims)
        lazy = scale_data_array(array, target, settings, ("y", "x")).data
        return lazy.rechunk(tuple(map(min, self.array.shards or self.array.chunks, lazy.shape)))

    def write(self, path: Path, lazy: da.Array) -> None:
        """Writes a group with as many levels as the input has, each half as large as the one before."""
        own = self.array
        form = own.metadata.zarr_format
        group = zarr.open_group(path, mode="a", zarr_format=form)
        stored = storage(own)
        size, count = lazy.shape[-2:], 0
        for level in range(len(self.steps)):
            if level:
                lazy = _halved(da.from_zarr(path / str(level - 1)))
            lazy = lazy.rechunk(tuple(map(min, own.shards or own.chunks, lazy.shape)))
            written: Any = group.create_array(str(level), shape=lazy.shape, dtype=lazy.dtype, **stored)
            da.store(lazy, written, lock=False)
            count += 1
            if min(lazy.shape[-2:]) < 2:
                break
        group.attrs.put(self._described(size, count))

    def _described(self, size: tuple[int, ...], count: int) -> dict[str, Any]:
        """The group's attributes, with the pixel size of each level and where its first pixel lies."""
        attrs: dict[str, Any] = deepcopy(dict(self.node.attrs))
        place = attrs.get("ome", attrs)
        image = place["multiscales"][0]
        moved = next(
            (t["translation"] for t in image["datasets"][0].get("coordinateTransformations", ())
             if t["type"] == "translation"),
            [0.0] * len(self.dims),
        )  # fmt: skip
        first, levels = self.steps[0], []
        for level in range(count):
            factors = [2.0**level * n / N for n, N in zip(self.shape, size, strict=True)]
            scale = [*first[:-2], *(step * f for step, f in zip(first[-2:], factors, strict=True))]
            # A position is that of a pixel's centre.
            shift = [(new - old) / 2 + start for new, old, start in zip(scale, first, moved, strict=True)]
            transforms = [{"type": "scale", "scale": scale}, {"type": "translation", "translation": shift}]
            levels.append({"path": str(level), "coordinateTransformations": transforms})
        image["datasets"] = levels
        place["multiscales"] = [image]
        return attrs


def storage(array: Any) -> dict[str, Any]:
    """How a Zarr array is stored, as arguments for the creation of another one."""
    names = ["chunks", "shards", "filters", "compressors", "fill_value"]
    if array.metadata.zarr_format == 2:
        own = {name: getattr(array, name) for name in [*names, "order"]}
        return {**own, "chunk_key_encoding": {"name": "v2", "separator": array.metadata.dimension_separator}}
    own = {name: getattr(array, name) for name in [*names, "serializer"]}
    same = ("dimension_names", "chunk_key_encoding")
    return own | {name: getattr(array.metadata, name) for name in same}


def _halved(array: da.Array) -> da.Array:
    """Means over 2×2 pixels of the last two axes."""
    means = da.coarsen(np.mean, array, {array.ndim - 2: 2, array.ndim - 1: 2}, trim_excess=True)
    return (da.rint(means) if array.dtype.kind in "ui" else means).astype(array.dtype)
