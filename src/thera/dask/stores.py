"""Zarr stores to another size: an array with its attributes, or a dataset of xarray's."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import xarray as xr
import zarr
from dask.callbacks import Callback

from thera.dask.accessor import scale_dataset
from thera.dask.arrays import Settings, scale_chunks
from thera.dask.coordinates import spatial_dims
from thera.dask.ome import OmeImage, image_of, storage
from thera.errors import ImageFileError, InvalidInput, TheraError
from thera.files import held, replacing_path
from thera.imaging.sizing import TargetSize


@dataclass(frozen=True)
class StoreScaling:
    """A Zarr store that is about to be scaled into another: opened, checked, nothing computed."""

    input: Path
    output: Path
    source: tuple[int, int]
    size: tuple[int, int]
    dtypes: str
    chunks: int  # to compute
    write: Callable[[Path], object]

    def run(self, progress: Callable[[int], object] = lambda chunks: None) -> None:
        """Writes the output, whole or not at all. `progress` is called for chunks done in this process."""
        with replacing_path(self.output) as path, _Chunks(progress):
            path.mkdir()
            try:
                with held(path):
                    self.write(path)
            except Exception as error:
                # An error of the disk has a number. Codecs raise errors of their own for damaged chunks.
                if isinstance(error, TheraError) or getattr(error, "errno", None) is not None:
                    raise
                raise ImageFileError(
                    f"A chunk of {self.input} could not be read or scaled ({error!r}): it may be damaged."
                ) from error


def prepare_store(
    source: Path, output: Path, target: TargetSize, settings: Settings, *, overwrite: bool = False
) -> StoreScaling:
    """Opens the Zarr store `source` and checks all that scaling it to `output` needs.

    An array is H×W, H×W×C or C×H×W. Of three axes the first is that of the channels if it is shorter than the
    last. A group is an OME-Zarr image or a dataset of xarray's. Chunks keep their shape.
    """
    _check_output(source, output, overwrite)
    try:
        node = zarr.open(source, mode="r")
    except Exception as error:  # damaged metadata can lead to any
        raise ImageFileError(f"{source} cannot be read as a Zarr store: {error}.") from error
    if isinstance(node, zarr.Array):
        return _array(source, output, node, target, settings)
    image = image_of(node)
    if image is not None:
        ome = OmeImage(source, node, image)
        lazy = ome.scaled(target, settings)
        size = target.for_image(ome.shape)
        dtype, chunks = str(lazy.dtype), lazy.npartitions
        return StoreScaling(
            source, output, ome.shape, size, dtype, chunks, lambda path: ome.write(path, lazy)
        )
    return _dataset(source, output, node, target, settings)


def _array(source: Path, output: Path, node: Any, target: TargetSize, settings: Settings) -> StoreScaling:
    if node.ndim not in (2, 3):
        raise InvalidInput(f"The array in {source} is of shape {node.shape}: expected H×W, H×W×C or C×H×W.")
    first = node.ndim == 3 and node.shape[0] < node.shape[2]
    shape = node.shape[1:] if first else node.shape[:2]
    size = target.for_image(shape)
    channels = "first" if first else "last"
    lazy = scale_chunks(da.from_zarr(source), target, settings, channels)
    # Each file of the store is written at once.
    stored = lazy.rechunk(tuple(map(min, node.shards or node.chunks, lazy.shape)))

    def write(path: Path) -> None:
        written: Any = zarr.create_array(
            path,
            shape=stored.shape,
            dtype=stored.dtype,
            zarr_format=node.metadata.zarr_format,
            attributes=dict(node.attrs),
            **storage(node),
        )
        da.store(stored, written, lock=False)

    return StoreScaling(source, output, shape, size, str(node.dtype), lazy.npartitions, write)


def _dataset(source: Path, output: Path, node: Any, target: TargetSize, settings: Settings) -> StoreScaling:
    consolidated = node.metadata.consolidated_metadata is not None
    try:
        # Samples are scaled as they are stored. Factors and offsets stay in the attributes.
        dataset = xr.open_zarr(
            source, chunks={}, mask_and_scale=False, decode_coords="all", consolidated=consolidated
        )
    except Exception as error:  # coordinates are read, and codecs raise errors of their own
        raise ImageFileError(f"{source} cannot be read as a dataset: {error}.") from error
    rows, cols = spatial_dims(dataset)
    shape = dataset.sizes[rows], dataset.sizes[cols]
    size = target.for_image(shape)
    form = node.metadata.zarr_format
    # In format 2 every array has a fill value, 0 unless another was chosen: 0 does not stand for no data.
    zero = [name for name, v in dataset.data_vars.items() if form == 2 and v.attrs.get("_FillValue") == 0]
    for name in zero:
        del dataset[name].attrs["_FillValue"]
    scaled = scale_dataset(dataset, target, settings)
    for name in zero:
        scaled[name].attrs["_FillValue"] = 0
    images = [name for name, variable in scaled.data_vars.items() if {rows, cols} <= set(variable.dims)]
    count = sum(scaled[name].data.npartitions for name in images)
    for name in images:
        kept = {key: dataset[name].encoding.get(key) for key in ("chunks", "shards")}
        files = zip(dataset[name].dims, kept["shards"] or kept["chunks"], strict=True)
        scaled[name] = scaled[name].chunk({dim: min(length, scaled.sizes[dim]) for dim, length in files})
        scaled[name].encoding |= kept
    dtypes = ", ".join(sorted({str(scaled[name].dtype) for name in images}))

    def write(path: Path) -> None:
        with warnings.catch_warnings():
            # It says that other programs may not read this metadata, but the input has it, too.
            warnings.filterwarnings("ignore", message="Consolidated metadata")
            scaled.to_zarr(path, mode="w-", zarr_format=form, consolidated=consolidated)

    return StoreScaling(source, output, shape, size, dtypes, count, write)


class _Chunks(Callback):
    """Calls `progress` for every chunk that is scaled in this process."""

    def __init__(self, progress: Callable[[int], object]) -> None:
        super().__init__(posttask=lambda key, *rest: "upscale_chunk" in str(key) and progress(1))


def _check_output(source: Path, output: Path, overwrite: bool) -> None:
    if output.suffix != ".zarr":
        raise ImageFileError(f"A Zarr store is written as another: end the output {output.name!r} in .zarr.")
    if not output.parent.is_dir():
        raise ImageFileError(f"The folder {output.parent} of the output does not exist: make it first.")
    if output.exists():
        if os.path.samefile(source, output):
            raise ImageFileError(f"The output {output} is the input itself: choose another name.")
        if not overwrite:
            raise ImageFileError(f"The output {output} exists: pass --overwrite to replace it.")
