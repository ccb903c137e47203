"""`thera.upscale`: an image in, the same kind of image out at another size."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from thera.errors import InvalidInput
from thera.field.psf import as_filter
from thera.imaging import DEFAULT_MODEL
from thera.memory import human_bytes, parse_bytes, physical_memory
from thera.models import Model, load
from thera.tiled import Options
from thera.values.meaning import (
    AlphaUse,
    Groups,
    Meaning,
    Nodata,
    ValueRange,
    check_channels_last,
    check_type,
)
from thera.values.planes import Codes
from thera.values.transfer import LINEAR, SRGB

from .picture import Picture
from .reading import decoded, from_pillow
from .sizing import TargetSize
from .upscaling import scale_array, scale_picture

ImageLike = TypeVar("ImageLike")
_LIGHT = Codes(SRGB, LINEAR, SRGB)


def upscale(
    image: ImageLike,
    scale: float | None = None,
    *,
    size: Sequence[int] | None = None,
    model: str | Path | Model = DEFAULT_MODEL,
    ensemble: bool = False,
    psf: object = None,
    engine: str = "auto",
    device: str = "auto",
    precision: str = "auto",
    memory: int | str | None = None,
    value_range: ValueRange | None = None,
    groups: Groups | None = None,
    nodata: Nodata | None = None,
    alpha: AlphaUse | None = None,
    consistent: bool = False,
    linear: bool | None = None,
) -> ImageLike:
    """An image at another scale, or of another `size` = (height, width), up or down.

    | image | is | becomes |
    | --- | --- | --- |
    | Pillow image | any mode that has grey, RGB or CMYK in it | the same mode, with all it carries |
    | NumPy array | H×W, H×W×1, ×2 (grey, alpha), ×3 or ×4 (RGB, alpha), ×C (each alone) | the same dtype |
    | torch tensor | H×W, C×H×W or N×C×H×W | the same dtype and device |

    Floats come back unclipped. Palettes become colours.

    `model`: the name of a shipped model, a file, or a model from `thera.load`.
    `ensemble`: the mean over four rotations, a little better at four times the cost.
    `psf`: a filter of `thera.field`; the model's own Gaussian unless given.
    `linear`: scale sRGB as linear light, so that bright dots keep their light. Unless given, Pillow images
    are when they become smaller; arrays and tensors are not.
    `memory`: bytes to work in, beside the result, or an amount such as "2GiB"; 4 GiB unless given, or half of
    a small machine's.

    What the samples of arrays and tensors mean, as for `thera.dask.upscale` and arrays of xarray:
    `value_range`: the values that the network sees as black and white: "dtype", "extent", "percentile",
    "2%:98%", (low, high), or such a pair for each channel. Unless given, unsigned integers of 8 and 16 bits
    span their type, other integers what they hold, and floats 0 to 1, or what they hold if that is more.
    `groups`: which three channels are a colour, as in [(2, 1, 0)]; all others are seen one by one.
    `nodata`: a value, or one for each channel, that stands for no data: it stays apart.
    `alpha`: "cover" if the last channel says how far the others cover what is behind, as that of two or four
    channels does, "data" if it is a channel like others.
    `consistent`: at a whole-number scale, the mean over each input pixel is that pixel's own value.

    >>> import thera
    >>> thera.upscale(np.zeros((8, 6, 3), np.uint8), 2.5).shape  # doctest: +SKIP
    (20, 15, 3)
    """
    if not isinstance(model, Model):
        model = _loaded(str(model), engine, device, precision)
    target_size = TargetSize(scale=scale, size=size)
    target_size.check()
    picture_filter = None if psf is None else as_filter(psf)

    meaning = Meaning(value_range, groups, nodata, alpha)
    limit = None if memory is None else parse_bytes(memory)

    def planned(samples: NDArray) -> tuple[tuple[int, int], Options]:
        """The size of the output of H×W×C samples, and the options, if the machine has room for it."""
        target = target_size.for_image((samples.shape[0], samples.shape[1]))
        needed = target[0] * target[1] * samples.shape[2] * samples.dtype.itemsize
        available = physical_memory()
        if available is not None and needed > available:
            raise InvalidInput(
                f"An output of {target[1]}×{target[0]} takes {human_bytes(needed)}, more than this machine's"
                f" {human_bytes(available)}: `thera upscale` writes such images to disk as they come."
            )
        return target, Options(picture_filter, ensemble, limit, consistent=consistent)

    def scaled(array: NDArray) -> NDArray:
        samples = _checked(array, meaning)
        target, options = planned(samples)
        result = scale_array(model, samples, target, meaning, options, _LIGHT if linear else None, 0)
        return result[..., 0] if array.ndim == 2 else result

    result: Any
    if isinstance(image, Image.Image):
        if replace(meaning, alpha=None) != Meaning() or consistent:
            raise InvalidInput(
                "value_range, groups, nodata and consistent are for arrays, and this is a Pillow image: leave"
                " them out, or give numpy.asarray(image)."
            )
        if 0 in image.size:
            raise InvalidInput(
                f"An image of {image.width}×{image.height} was given: expected a pixel or more."
            )
        picture = from_pillow(decoded(image))
        if alpha == "data":
            picture = replace(picture, covers=False)
        target, options = planned(picture.samples)
        result = _to_pillow(scale_picture(model, picture.scaled_to(target, linear), target, options))
    elif isinstance(image, np.ndarray):
        result = scaled(image)
    elif hasattr(image, "detach"):
        result = _scale_tensor(image, scaled, groups is not None)
    else:
        raise InvalidInput(
            f"An image of type {type(image).__name__} was given: expected a Pillow image, a NumPy array or a"
            " torch tensor."
        )
    return result


@lru_cache(maxsize=2)
def _loaded(name: str, engine: str, device: str, precision: str) -> Model:
    return load(name, engine=engine, device=device, precision=precision)


def _checked(array: NDArray, meaning: Meaning) -> NDArray:
    """The array as H×W×C, or an error that says what is wrong with it."""
    if np.ma.isMaskedArray(array):
        raise InvalidInput(
            "A masked array was given: give array.filled(value), and nodata=value keeps those samples apart."
        )
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise InvalidInput(f"An array of shape {array.shape} was given: expected H×W or H×W×C, none 0.")
    check_type(array.dtype)
    check_channels_last(array.shape, meaning.groups)
    return array[..., None] if array.ndim == 2 else array


def _to_pillow(picture: Picture) -> Image.Image:
    samples = picture.samples[..., 0] if picture.layout.channels == 1 else picture.samples
    image = Image.fromarray(samples, picture.layout.mode if samples.dtype == np.uint8 else None)
    carried = picture.metadata
    for key, value in (
        ("icc_profile", carried.icc),
        ("exif", carried.exif),
        ("xmp", carried.xmp),
        ("dpi", carried.dpi),
    ):
        if value is not None:
            image.info[key] = value
    return image


def _scale_tensor(tensor: Any, scaled: Callable[[NDArray], NDArray], grouped: bool) -> Any:
    import torch

    if tensor.ndim not in (2, 3, 4) or 0 in tensor.shape:
        raise InvalidInput(
            f"A tensor of shape {tuple(tensor.shape)} was given: expected H×W, C×H×W or N×C×H×W, none 0."
        )
    if tensor.ndim > 2 and tensor.shape[-3] > 4 and tensor.shape[-1] <= 4 and not grouped:
        raise InvalidInput(
            f"A tensor of shape {tuple(tensor.shape)} was given: channels come first. If they do, say"
            " groups=[] (each is seen by itself); if they come last, give tensor.movedim(-1, -3)."
        )
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise InvalidInput(
            f"A tensor of {tensor.layout} and {tensor.dtype} on {tensor.device} was given: expected a dense"
            " one with data. tensor.to_dense() or tensor.dequantize() may make it one."
        )
    on_host = tensor.detach().cpu().resolve_neg().resolve_conj()
    try:
        array = (on_host.float() if tensor.dtype == torch.bfloat16 else on_host).numpy()  # has no bfloat16
    except TypeError as error:  # floats of 8 bits
        raise InvalidInput(
            f"A tensor of {tensor.dtype} was given: expected integers or floats of 16 to 64 bits."
        ) from error
    images = array if array.ndim == 4 else array.reshape(1, -1, *array.shape[-2:])
    results = [scaled(np.moveaxis(each, 0, -1)) for each in images]
    stacked = np.stack([np.moveaxis(each, -1, 0) for each in results])
    shaped = stacked.reshape(*tensor.shape[:-2], *stacked.shape[-2:])
    return torch.from_numpy(np.ascontiguousarray(shaped)).to(device=tensor.device, dtype=tensor.dtype)
