"""Zarr stores to another size: an array with what is written on it, or a dataset of xarray's."""

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import xarray as xr
import zarr
from dask.callbacks import Callback

import thera.xarray
from thera.dask.arrays import upscale
from thera.errors import ImageFileError, InvalidInput, TheraError
from thera.files import partial_path, reason_of
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
        """Writes the output, whole or not at all. `progress` hears of chunks that this process has done."""
        with _replacing(self.output) as path, _Chunks(progress):
            try:
                self.write(path)
            except Exception as error:
                # Codecs have errors of their own for a chunk that is damaged; the disk's have a number.
                if isinstance(error, TheraError) or getattr(error, "errno", None) is not None:
                    raise
                raise ImageFileError(
                    f"A chunk of {self.input} could not be read or scaled ({error!r}): it may be damaged."
                ) from error


def prepare_store(
    source: Path, output: Path, wish: TargetSize, *, overwrite: bool, **options: Any
) -> StoreScaling:
    """Opens the Zarr store `source` and checks all that scaling it to `output` needs.

    An array is H×W, H×W×C or C×H×W: of three axes the first is the channels' if it is shorter than the last.
    A group is a dataset of xarray's. Chunks keep their shape. `options` are those of `thera.dask.upscale`.
    """
    _check_output(source, output, overwrite)
    try:
        node = zarr.open(source, mode="r")
    except Exception as error:  # damaged metadata can lead to any
        raise ImageFileError(f"{source} cannot be read as a Zarr store: {error}.") from error
    if isinstance(node, zarr.Array):
        return _array(source, output, node, wish, options)
    return _dataset(source, output, node, wish, options)


def _array(source: Path, output: Path, node: Any, wish: TargetSize, options: dict[str, Any]) -> StoreScaling:
    if node.ndim not in (2, 3):
        raise InvalidInput(f"The array in {source} is of shape {node.shape}: expected H×W, H×W×C or C×H×W.")
    first = node.ndim == 3 and node.shape[0] < node.shape[2]
    shape = node.shape[1:] if first else node.shape[:2]
    size = wish.for_image(shape)
    lazy = upscale(da.from_zarr(source), size=size, channels="first" if first else "last", **options)
    # What is one file must be written at once.
    stored = lazy.rechunk(tuple(map(min, node.shards or node.chunks, lazy.shape)))

    def write(path: Path) -> None:
        form = node.metadata.zarr_format
        own = {"order": node.order}
        if form == 3:
            own = {"serializer": node.serializer, "dimension_names": node.metadata.dimension_names}
        target: Any = zarr.create_array(
            path,
            shape=stored.shape,
            dtype=stored.dtype,
            chunks=node.chunks,
            shards=node.shards,
            filters=node.filters,
            compressors=node.compressors,
            fill_value=node.fill_value,
            zarr_format=form,
            attributes=dict(node.attrs),
            **own,
        )
        da.store(stored, target, lock=False)

    return StoreScaling(source, output, shape, size, str(node.dtype), lazy.npartitions, write)


def _dataset(
    source: Path, output: Path, node: Any, wish: TargetSize, options: dict[str, Any]
) -> StoreScaling:
    consolidated = node.metadata.consolidated_metadata is not None
    try:
        # Samples as they are stored, with the numbers that they are to be multiplied by beside them.
        dataset = xr.open_zarr(
            source, chunks={}, mask_and_scale=False, decode_coords="all", consolidated=consolidated
        )
    except Exception as error:  # coordinates are read, and each codec has errors of its own
        raise ImageFileError(f"{source} cannot be read as a dataset: {error}.") from error
    rows, cols = thera.xarray.spatial_dims(dataset)
    shape = dataset.sizes[rows], dataset.sizes[cols]
    size = wish.for_image(shape)
    form = node.metadata.zarr_format
    # In format 2 every array has a fill value, 0 unless another was chosen: that marks nothing.
    zero = [name for name, v in dataset.data_vars.items() if form == 2 and v.attrs.get("_FillValue") == 0]
    for name in zero:
        del dataset[name].attrs["_FillValue"]
    scaled = dataset.thera.upscale(size=size, **options)
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
            # That other programs may not know it: they know the input's.
            warnings.filterwarnings("ignore", message="Consolidated metadata")
            scaled.to_zarr(path, mode="w-", zarr_format=form, consolidated=consolidated)

    return StoreScaling(source, output, shape, size, dtypes, count, write)


class _Chunks(Callback):
    """Tells of every chunk that is scaled in this process."""

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


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A folder to write that becomes `path` when all went well, and otherwise leaves nothing behind."""
    temporary = partial_path(path)
    try:
        yield temporary
        if path.exists():
            shutil.rmtree(path)
        temporary.replace(path)
    except OSError as error:
        raise ImageFileError(f"{path} could not be written: {reason_of(error)}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
