"""The published protocol: it makes an image pair from a photograph, and scores outputs.

The target is cropped so that the scale divides it. The low-resolution image is the target reduced as MATLAB's
`imresize` does with 8-bit images: bicubic, mirrored at the borders with the edge pixel repeated, rows before
columns, rounded to 8 bits after each. The output is clipped to [0, 1], not rounded, and compared without its
border.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.evaluation import metrics
from thera.evaluation.damage import damaged
from thera.evaluation.resize import imresize
from thera.field.namespace import array_namespace

#: How each version of the protocol made the low-resolution images. Results of two versions are never mixed.
PROTOCOLS = {1: "rounded to 8 bits once, after both axes", 2: "rounded to 8 bits after each axis, rows first"}
PROTOCOL = 2

METRICS: dict[str, tuple[Callable[[NDArray, NDArray], float], int]] = {
    # name: (function, pixels cut from each side beyond the scale)
    "psnr_rgb": (metrics.psnr_rgb, 6),
    "psnr_y": (metrics.psnr_y, 0),
    "psnr_y8": (metrics.psnr_y8, 0),
    "ssim": (metrics.ssim, 6),
    "gmsd": (metrics.gmsd, 6),
}

# (input H×W×3 float32 in [0, 1], output size (H', W')) -> H'×W'×3
Upscaler = Callable[[NDArray[np.float32], tuple[int, int]], NDArray[np.floating]]


class Pair(NamedTuple):
    """A low-resolution image and its target, both 8-bit H×W×3."""

    source: NDArray[np.uint8]
    target: NDArray[np.uint8]


def unit(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """8-bit values as float32 in [0, 1]."""
    return np.divide(image, 255, dtype=np.float32)


def check_scale(scale: float) -> float:
    """The scale, if it is valid."""
    if not (math.isfinite(scale) and scale >= 1):
        raise InvalidInput(f"A scale to evaluate at must be a number of 1 or more, not {scale}.")
    return scale


def reduced_length(n: int, scale: float) -> tuple[int, int]:
    """The length of the low-resolution axis, and of the cropped target axis.

    >>> reduced_length(341, 3), reduced_length(341, 2.5)
    ((113, 339), (136, 340))
    """
    low = math.floor(n / scale + 1e-9)
    return low, round(low * scale)


def degrade(image: NDArray[np.uint8], scale: float, damage: str = "") -> Pair:
    """The image pair of the published protocol, for an 8-bit H×W×3 image; `damage` is done to the small one.

    >>> pair = degrade(np.zeros((50, 41, 3), np.uint8), 4)
    >>> pair.source.shape, pair.target.shape
    ((12, 10, 3), (48, 40, 3))
    """
    check_scale(scale)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise InvalidInput(f"Expected an 8-bit H×W×3 image, got {image.dtype} of shape {image.shape}.")
    (height, crop_h), (width, crop_w) = (reduced_length(n, scale) for n in image.shape[:2])
    if min(height, width) < 1:
        raise InvalidInput(
            f"An image of {image.shape[1]}×{image.shape[0]} pixels is too small for ×{scale:g}: "
            "leave the image or the scale out."
        )
    target = image[:crop_h, :crop_w]
    return Pair(damaged(imresize(target, (height, width)), damage), target)


def border_of(scale: float, extra: int) -> int:
    """The width of the border to cut: the scale plus the metric's own border.

    >>> border_of(4, 6), border_of(2.5, 0)
    (10, 3)
    """
    return math.ceil(scale) + extra


def cut(image: NDArray, pixels: int) -> NDArray:
    """`image` without `pixels` rows and columns on every side."""
    if min(image.shape[:2]) <= 2 * pixels:
        raise InvalidInput(
            f"Cutting the protocol's border of {pixels} pixels leaves nothing of an image of "
            f"{image.shape[1]}×{image.shape[0]}: use larger images or a smaller scale."
        )
    return image[pixels : image.shape[0] - pixels, pixels : image.shape[1] - pixels]


def score(output: metrics.Image, target: NDArray[np.uint8], scale: float, metric: str = "psnr_rgb") -> float:
    """One metric of an unclipped output in [0, 1] against its 8-bit target, without the published border.

    It is computed where the output is: a tensor on a GPU is not copied.

    >>> target = np.full((40, 40, 3), 100, np.uint8)
    >>> round(score(target / 255 + 0.1, target, 2), 4)
    20.0
    """
    function, extra = METRICS[metric]
    pixels = border_of(scale, extra)
    xp = array_namespace(output)
    wanted = xp.asarray(unit(target), device=array_api_compat.device(output))
    return function(cut(xp.clip(output, 0, 1), pixels), cut(wanted, pixels))
