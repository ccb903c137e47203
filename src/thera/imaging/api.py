"""`thera.upscale`: an image in, the same kind of image out at another size."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from thera.errors import InvalidInput
from thera.field.psf import as_filter
from thera.imaging import DEFAULT_MODEL
from thera.memory import default_memory, human_bytes, physical_memory
from thera.models import Model, load
from thera.tiled import Options

from .picture import Picture
from .reading import from_pillow
from .sizing import TargetSize
from .upscaling import prepare

ImageLike = TypeVar("ImageLike")


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
    precision: str = "f32",
    memory: int | None = None,
) -> ImageLike:
    """An image at another scale, or of another `size` = (height, width), up or down.

    | image | is | becomes |
    | --- | --- | --- |
    | Pillow image | any mode that has grey, RGB or CMYK in it | the same mode, with all it carries |
    | NumPy array | H×W, H×W×1, ×2 (grey, alpha), ×3 or ×4 (RGB, alpha) | the same dtype |
    | torch tensor | H×W, C×H×W or N×C×H×W | the same dtype and device |

    Unsigned integers of 8 and 16 bits span their type, other integers what they hold. Floats are taken to
    span 0 to 1, or what they hold if that is more, and come back unclipped. Palettes become colours.

    `model`: the name of a shipped model, a file, or a model from `thera.load`.
    `ensemble`: the mean over four rotations, a little better at four times the cost.
    `psf`: a filter of `thera.field`; the model's own Gaussian unless given.
    `memory`: bytes to work in, beside the result; 4 GiB unless given, or half of a small machine's.

    >>> import thera
    >>> thera.upscale(np.zeros((8, 6, 3), np.uint8), 2.5).shape  # doctest: +SKIP
    (20, 15, 3)
    """
    if not isinstance(model, Model):
        model = _loaded(str(model), engine, device, precision)
    target_size = TargetSize(scale=scale, size=size)
    target_size.check()
    picture_filter = None if psf is None else as_filter(psf)

    def scaled(picture: Picture) -> Picture:
        target = target_size.for_image(picture.layout.size)
        needed = target[0] * target[1] * picture.layout.channels * picture.layout.dtype.itemsize
        available = physical_memory()
        if available is not None and needed > available:
            raise InvalidInput(
                f"An output of {target[1]}×{target[0]} takes {human_bytes(needed)}, more than this machine's"
                f" {human_bytes(available)}: `thera upscale` writes such images to disk as they come."
            )
        limit = (default_memory() if memory is None else memory) + needed
        options = Options(picture_filter, ensemble, limit)
        return prepare(model, picture, target, options, output_memory=needed).whole()

    result: Any
    if isinstance(image, Image.Image):
        result = _to_pillow(scaled(from_pillow(image)))
    elif isinstance(image, np.ndarray):
        result = _as_array(scaled(_from_array(image)), image.ndim)
    elif hasattr(image, "detach"):
        result = _scale_tensor(image, scaled)
    else:
        raise InvalidInput(
            f"An image of type {type(image).__name__} was given: expected a Pillow image, a NumPy array or a"
            " torch tensor."
        )
    return result


@lru_cache(maxsize=2)
def _loaded(name: str, engine: str, device: str, precision: str) -> Model:
    return load(name, engine=engine, device=device, precision=precision)


def _from_array(array: NDArray) -> Picture:
    if array.dtype.kind not in "uif" or array.ndim not in (2, 3) or 0 in array.shape:
        raise InvalidInput(
            f"An array of {array.dtype} and shape {array.shape} was given: expected numbers, H×W or H×W×1…4."
        )
    samples = array[..., None] if array.ndim == 2 else array
    if samples.shape[2] > 4:
        raise InvalidInput(f"An array of shape {array.shape} was given: channels come last, and are 1 to 4.")
    return Picture.of_channels(samples)


def _as_array(picture: Picture, ndim: int) -> NDArray:
    return picture.samples[..., 0] if ndim == 2 else picture.samples


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


def _scale_tensor(tensor: Any, scaled: Any) -> Any:
    import torch

    if tensor.ndim not in (2, 3, 4) or 0 in tensor.shape:
        raise InvalidInput(
            f"A tensor of shape {tuple(tensor.shape)} was given: expected H×W, C×H×W or N×C×H×W, none 0."
        )
    on_host = tensor.detach().cpu()
    array = (on_host.float() if tensor.dtype == torch.bfloat16 else on_host).numpy()  # which has no bfloat16
    images = array if array.ndim == 4 else array.reshape(1, -1, *array.shape[-2:])
    results = [_as_array(scaled(_from_array(np.moveaxis(each, 0, -1))), 3) for each in images]
    stacked = np.stack([np.moveaxis(each, -1, 0) for each in results])
    shaped = stacked.reshape(*tensor.shape[:-2], *stacked.shape[-2:])
    return torch.from_numpy(np.ascontiguousarray(shaped)).to(device=tensor.device, dtype=tensor.dtype)
