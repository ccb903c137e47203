"""`upscale`: a Dask array at another scale, lazily, chunk by chunk."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import dask.array as da
import numpy as np
from dask.delayed import Delayed
from dask.utils import parse_bytes

import dask
from thera.dask.clusters import check_current
from thera.dask.tasks import Job, ModelName, extremes, loaded, spans_of, upscale_chunk
from thera.errors import InvalidInput
from thera.field import Filter
from thera.field.psf import as_filter
from thera.imaging import DEFAULT_MODEL
from thera.imaging.sizing import TargetSize
from thera.imaging.tiling import reach_of
from thera.models import Model
from thera.values.ranges import Range

#: (low, high), or one such pair for each channel.
ValueRange = Sequence[float] | Sequence[Sequence[float]]
#: Bytes that a task may take, beside its chunks, unless told otherwise.
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
    ensemble: bool = False,
    psf: object = None,
    engine: str = "auto",
    device: str = "auto",
    precision: str = "f32",
    memory: int = TASK_MEMORY,
) -> da.Array:
    """A Dask array at another scale, or of another `size` = (height, width), up or down: lazily.

    `array` is H×W, H×W×C, or C×H×W with `channels="first"`, in chunks of any shape; the result has the same
    axes and dtype. Three or four channels begin with a colour, whose three parts the network sees together;
    every other channel is a band that it sees by itself.

    The result is that of the whole image to float rounding, whatever the chunks: each is computed with as
    much around it as the network sees, on the pixels of the whole output. Chunks keep their places, those
    that are small beside what must be seen around them are merged, and those whose output is larger than
    Dask's `array.chunk-size` are divided.

    `model`: the name of a shipped model, or a file that all workers can read. Each loads it once.
    `value_range`: the values that stand for black and white, as one pair or a pair for each channel. Unless
    given, 8 and 16-bit integers span their type; other types span 0 to 1, or what they hold if that is more,
    for which the whole array is read once before the first chunk is scaled.
    `ensemble`, `psf`, `engine`, `device`, `precision`: as in `thera.upscale`.
    `memory`: bytes that a task works in, beside its chunks.

    >>> image = da.zeros((400, 200, 3), chunks=(200, 100, 3), dtype=np.uint8)
    >>> upscale(image, 2.5, "edsr-air").chunks
    ((500, 500), (500,), (3,))
    """
    image = _channels_last(array, channels)
    if isinstance(model, Model):
        raise InvalidInput(
            f"The model {model.name} was given as an object, which cannot be sent to workers: give its name"
            " or its file."
        )
    count, groups = image.shape[2], _groups(image.shape[2])
    size = TargetSize(scale=scale, size=size).for_image(image.shape[:2])
    name = ModelName.of(model, engine, device, precision)
    check_current()
    picked = None if psf is None else as_filter(psf)
    rows, cols, depth = _cuts(image, size, loaded(name), picked)
    # Only where an axis is cut is there anything to overlap.
    around = depth if len(rows) > 2 else 0, depth if len(cols) > 2 else 0
    job = Job(
        model=name,
        source=image.shape[:2],
        size=size,
        rows=rows,
        cols=cols,
        depth=around,
        groups=groups,
        dtype=image.dtype,
        psf=picked,
        ensemble=bool(ensemble),
        memory=int(memory),
    )
    image = image.rechunk((*(tuple(np.diff(at).tolist()) for at in (rows, cols)), (count,)))
    result = da.map_blocks(
        upscale_chunk,
        da.overlap.overlap(image, dict(enumerate((*around, 0))), boundary="none", allow_rechunk=False),
        job=job,
        spans=_spans(image, groups, value_range),
        chunks=(*job.output_chunks(), (count,)),
        dtype=image.dtype,
        meta=np.empty((0, 0, 0), image.dtype),
    )
    if array.ndim == 2:
        return result[..., 0]
    return da.moveaxis(result, 2, 0) if channels == "first" else result


def _cuts(
    image: da.Array, size: tuple[int, int], model: Model, psf: Filter | None
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Where to cut the rows and columns of the image, and how many pixels must be seen around each chunk."""
    source, info = image.shape[:2], model.info
    psf = model.psf(source, size) if psf is None else psf
    depth = info.halo + reach_of(psf, source, size, info.kappa) + info.alignment - 1
    largest = parse_bytes(dask.config.get("array.chunk-size"))
    side = math.sqrt(largest / (image.shape[2] * image.dtype.itemsize))

    def along(axis: int) -> tuple[int, ...]:
        step = source[axis] / size[axis]
        # Every chunk must have an output pixel in it, and no chunk looks beyond the next.
        least = max(LEAST_CHUNK * info.halo, depth, math.ceil(step))
        return cuts_of(image.chunks[axis], least, max(least, int(side * min(1.0, step))))

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


def _channels_last(array: da.Array, channels: str) -> da.Array:
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
    if array.dtype.kind not in "uif":
        raise InvalidInput(f"An array of {array.dtype} was given: expected integers or floats.")
    if type(array._meta) is not np.ndarray:
        kind = type(array._meta).__name__
        raise InvalidInput(f"A Dask array of {kind} was given: expected one of plain NumPy arrays.")
    if array.ndim == 2:
        return array[..., None]
    return da.moveaxis(array, 0, 2) if channels == "first" else array


def _groups(channels: int) -> tuple[tuple[int, int], ...]:
    """The channels that the network sees together: a colour's three, any other by itself."""
    first = 3 if channels in (3, 4) else 1
    return ((0, first), *((k, k + 1) for k in range(first, channels)))


def _spans(
    image: da.Array, groups: tuple[tuple[int, int], ...], value_range: ValueRange | None
) -> tuple[Range, ...] | Delayed:
    """A range for each group of channels, or the task that finds them."""
    if value_range is not None:
        pairs = np.broadcast_to(_pairs(value_range, image.shape[2]), (image.shape[2], 2))
        return tuple(Range(float(pairs[a:b, 0].min()), float(pairs[a:b, 1].max())) for a, b in groups)
    known = Range.of_type(image.dtype)
    if known is not None:
        return (known,) * len(groups)
    each = tuple((1,) * count for count in image.numblocks[:2])
    found = da.map_blocks(extremes, image, chunks=(*each, (2 * image.shape[2],)))
    # As an argument of a delayed function it is a graph of its own: its tasks read the chunks and let them go
    # again, which those that scale them would otherwise have to keep until all have been seen.
    return dask.delayed(spans_of, pure=True)(found, groups)


def _pairs(value_range: ValueRange, channels: int) -> np.ndarray:
    """What was given as one (low, high) or as `channels` of them."""
    try:
        pairs = np.asarray(value_range, np.float64)
    except (TypeError, ValueError):
        pairs = np.empty(0)
    fits = pairs.shape in ((2,), (channels, 2)) and np.isfinite(pairs).all()
    if not fits or (pairs[..., 0] >= pairs[..., 1]).any():
        raise InvalidInput(
            f"value_range={value_range!r} is no range: give two finite numbers, the lower one first, or such"
            f" a pair for each of the {channels} channels."
        )
    return pairs
