"""`upscale`: a Dask array at another scale, lazily, chunk by chunk."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import dask.array as da
import dask.utils
import numpy as np
from dask._task_spec import Alias
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph, Layer

from thera.dask.clusters import check_current
from thera.dask.tasks import ChunkScaling, ModelName, count_chunk, loaded, narrowed, upscale_chunk
from thera.errors import InvalidInput
from thera.field.psf import as_filter
from thera.imaging import DEFAULT_MODEL
from thera.imaging.sizing import TargetSize
from thera.imaging.upscaling import seen_around
from thera.memory import parse_bytes
from thera.models import Model
from thera.models.choice import ModelChoice
from thera.tiled import Options
from thera.values.bands import Bands
from thera.values.consistency import check_whole
from thera.values.meaning import (
    AlphaUse,
    Groups,
    Meaning,
    Nodata,
    ValueRange,
    check_channels_last,
    check_type,
)
from thera.values.ranges import Range
from thera.values.survey import Survey

#: Bytes that a task may take, beside its chunks, unless given.
TASK_MEMORY = 2 << 30
#: Chunks are merged until they are this many times as long as what must be seen around them.
LEAST_CHUNK = 4


def upscale(
    array: da.Array,
    scale: float | None = None,
    model: str | Path = DEFAULT_MODEL,
    *,
    size: Sequence[int] | None = None,
    channels: Literal["last", "first"] = "last",
    value_range: ValueRange | None = None,
    groups: Groups | None = None,
    nodata: Nodata | None = None,
    alpha: AlphaUse | None = None,
    ensemble: bool = False,
    psf: object = None,
    engine: str = "auto",
    device: str = "auto",
    precision: str = "auto",
    memory: int | str = TASK_MEMORY,
    consistent: bool = False,
) -> da.Array:
    """A Dask array at another scale, or of another `size` = (height, width), up or down: lazily.

    `array` is H×W, H×W×C, or C×H×W with `channels="first"`, in chunks of any shape; the result has the same
    axes and dtype.

    The result is that of `thera.upscale` on the whole array to float rounding, whatever the chunks. Chunks
    keep their places; small ones are merged, and those whose output is larger than Dask's `array.chunk-size`
    are divided.

    `model`: the name of a shipped model, or a file that all workers can read. Each loads it once.
    `memory`: bytes that a task works in, beside its chunks, or an amount such as "2GiB".
    All others are those of `thera.upscale`. If the value range depends on the values, all of the array is
    read before the first chunk is scaled: once, and for percentiles once for every 16 bits of a sample.

    >>> image = da.zeros((400, 200, 3), chunks=(200, 100, 3), dtype=np.uint8)
    >>> upscale(image, 2.5, "edsr-air").chunks
    ((500, 500), (500,), (3,))
    """
    choice: dict[str, Any] = {"engine": engine, "device": device, "precision": precision}
    meaning = Meaning(value_range, groups, nodata, alpha)
    how: dict[str, Any] = {"ensemble": ensemble, "psf": psf, "memory": memory, "consistent": consistent}
    settings = Settings.of(model, meaning, **how, **choice)
    return scale_chunks(array, TargetSize(scale, size), settings, channels)


class Settings(NamedTuple):
    """How arrays are scaled: by which model, with which options, and what their samples mean."""

    model: ModelName
    options: Options
    meaning: Meaning

    @classmethod
    def of(
        cls,
        model: str | Path,
        meaning: Meaning,
        *,
        ensemble: bool = False,
        psf: object = None,
        memory: int | str = TASK_MEMORY,
        consistent: bool = False,
        **choice: Any,
    ) -> "Settings":
        """From the options of `upscale`."""
        if isinstance(model, Model):
            raise InvalidInput(
                f"The model {model.name} was given as an object, which cannot be sent to workers: give its"
                " name or its file."
            )
        own = None if psf is None else as_filter(psf)
        options = Options(own, bool(ensemble), parse_bytes(memory), consistent=bool(consistent))
        return cls(ModelName.of(ModelChoice(str(model), **choice)), options, meaning)


def scale_chunks(array: da.Array, target: TargetSize, settings: Settings, channels: str = "last") -> da.Array:
    """What `upscale` gives."""
    model, options, meaning = settings
    image = channels_last(array, channels)
    if channels == "last":
        check_channels_last(array.shape, meaning.groups)
    count = image.shape[2]
    bands = meaning.bands(count, image.dtype)
    survey = Survey(bands, image.dtype, meaning.rule(count))
    size = target.for_image(image.shape[:2])
    if options.consistent:
        check_whole(image.shape[:2], size)
    check_current()
    rows, cols, depth = _cuts(image, size, loaded(model), bands, options)
    # Only where an axis is cut is there anything to overlap.
    around = depth if len(rows) > 2 else 0, depth if len(cols) > 2 else 0
    scaling = ChunkScaling(model, image.shape[:2], size, rows, cols, around, bands, options)
    image = image.rechunk((*(tuple(np.diff(at).tolist()) for at in (rows, cols)), (count,)))
    result = da.map_blocks(
        upscale_chunk,
        da.overlap.overlap(image, dict(enumerate((*around, 0))), boundary="none", allow_rechunk=False),
        scaling=scaling,
        ranges=find_ranges_lazily(image, survey),
        chunks=(*scaling.output_chunks(), (count,)),
        dtype=image.dtype,
        meta=np.empty((0, 0, 0), image.dtype),
    )
    if array.ndim == 2:
        return result[..., 0]
    return da.moveaxis(result, 2, 0) if channels == "first" else result


def _cuts(
    image: da.Array, size: tuple[int, int], model: Model, bands: Bands, options: Options
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Where to cut the rows and columns of the image, and how many pixels must be seen around each chunk."""
    info = model.info
    steps = [n / N for n, N in zip(image.shape[:2], size, strict=True)]
    depth = seen_around(model, bands, options, steps)
    largest = dask.utils.parse_bytes(dask.config.get("array.chunk-size"))
    side = math.sqrt(largest / (image.shape[2] * image.dtype.itemsize))

    def along(axis: int) -> tuple[int, ...]:
        # Every chunk must have an output pixel in it, and no chunk looks beyond the next.
        least = max(LEAST_CHUNK * info.halo, depth, math.ceil(steps[axis]))
        return cuts_of(image.chunks[axis], least, max(least, int(side * min(1.0, steps[axis]))))

    return along(0), along(1), depth


def cuts_of(chunks: Sequence[int], least: int, most: int) -> tuple[int, ...]:
    """Where to cut an axis: between its chunks, of which small ones are merged and large ones divided.

    >>> cuts_of((50, 50, 200, 500, 30), least=100, most=300)
    (0, 100, 300, 565, 830)
    """
    lengths: list[int] = []
    for chunk in chunks:
        if lengths and lengths[-1] < least:
            lengths[-1] += chunk
        else:
            lengths.append(chunk)
    if len(lengths) > 1 and lengths[-1] < least:
        lengths[-2:] = [lengths[-2] + lengths[-1]]
    cuts = [0]
    for length in lengths:
        parts = max(1, min(math.ceil(length / most), length // least))
        cuts += [cuts[-1] + length * (part + 1) // parts for part in range(parts)]
    return tuple(cuts)


def channels_last(array: da.Array, channels: str) -> da.Array:
    """The array as H×W×C, or an error that says what is wrong with it."""
    if not isinstance(array, da.Array):
        raise InvalidInput(
            f"An array of type {type(array).__name__} was given: expected a dask.array; thera.upscale takes"
            " others, dask.array.from_array makes one of them."
        )
    if channels not in ("last", "first"):
        raise InvalidInput(f'channels={channels!r} was given: expected "last" (H×W×C) or "first" (C×H×W).')
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise InvalidInput(
            f"An array of shape {array.shape} was given: expected H×W, H×W×C, or C×H×W with channels='first'."
        )
    if any(math.isnan(length) for length in array.shape):
        raise InvalidInput(
            "The sizes of the array's chunks are unknown: call its compute_chunk_sizes() before it is scaled."
        )
    check_type(array.dtype)
    if type(array._meta) is not np.ndarray:
        kind = type(array._meta).__name__
        raise InvalidInput(f"A Dask array of {kind} was given: expected one of plain NumPy arrays.")
    if array.ndim == 2:
        return array[..., None]
    return da.moveaxis(array, 0, 2) if channels == "first" else array


class Pass(Layer):
    """The graph of a pass over all chunks, which is made when it is needed.

    As the argument of a delayed function, an array is a graph of its own: its tasks read the chunks and let
    them go again. If it shared them with the next pass, all chunks would be kept in memory. Making such a
    graph takes seconds for many chunks, so that is left to whoever computes it.
    """

    def __init__(self, key: str, array: da.Array) -> None:
        super().__init__()
        self.key, self.array = key, array

    @cached_property
    def _tasks(self) -> dict[Any, Any]:
        item = dask.delayed(np.ndarray.item, pure=True)(self.array)
        return {**item.__dask_graph__(), self.key: Alias(self.key, item.key)}

    def is_materialized(self) -> bool:
        return "_tasks" in self.__dict__

    def get_output_keys(self) -> set[Any]:
        return {self.key}

    def __getitem__(self, key: Any) -> Any:
        return self._tasks[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)


def find_ranges_lazily(image: da.Array, survey: Survey) -> list[Range] | Delayed:
    """The range of each group of bands, or the task that finds them."""
    if not survey.passes:
        return survey.ranges
    each = tuple((1,) * count for count in image.numblocks[:2])
    kind = np.int64 if survey.combine == "sum" else np.float64
    state: Survey | Delayed = survey
    for _ in range(survey.passes):
        counts = da.map_blocks(
            count_chunk, image, survey=state, chunks=(*each, (survey.length,)), meta=np.empty((0, 0, 0), kind)
        )
        total = getattr(counts, survey.combine)(axis=(0, 1), keepdims=True, split_every=8)
        empty = np.empty((0, 0, 0), object)
        after = da.map_blocks(narrowed, total, survey=state, chunks=(1, 1, 1), meta=empty)
        key = f"survey-{after.name}"
        state = Delayed(key, HighLevelGraph({key: Pass(key, after)}, {key: set()}))
    return state.ranges
