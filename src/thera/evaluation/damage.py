"""Stated damage to a low-resolution image, to measure how models treat pictures as they really are.

JPEG is Pillow's own, at its default subsampling (4:2:0). Noise is Gaussian, from NumPy's generator with a
fixed seed. Blur is a Gaussian. Each step rounds to 8 bits.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.evaluation.resize import to_uint8

SEED = 0
LIMITS = {"jpeg": (1, 100), "noise": (0, 128), "blur": (0, 16)}
EXAMPLE = "jpeg:40, noise:5, blur:0.8, or several in order such as blur:0.8+noise:5+jpeg:60"


def parse(text: str) -> list[tuple[str, float]]:
    """The steps of a damage.

    >>> parse("blur:0.8+jpeg:60"), parse("")
    ([('blur', 0.8), ('jpeg', 60.0)], [])
    """
    steps = []
    for part in filter(None, text.split("+")):
        kind, _, amount = part.partition(":")
        try:
            value = float(amount)
        except ValueError:
            value = math.nan
        low, high = LIMITS.get(kind, (math.nan, math.nan))
        if not low <= value <= high or (kind == "jpeg" and value != int(value)):
            bounds = f" {kind} takes {low} to {high}." if kind in LIMITS else ""
            raise InvalidInput(f"{part!r} is no degradation: write {EXAMPLE}.{bounds}")
        steps.append((kind, value))
    return steps


def stated(texts: Iterable[str]) -> list[str]:
    """The damages of a command line, checked; "none" is none, and the default.

    >>> stated(["none", "jpeg:40"]), stated([])
    (['', 'jpeg:40'], [''])
    """
    damages = ["" if text == "none" else text for text in texts] or [""]
    for damage in damages:
        parse(damage)
    return list(dict.fromkeys(damages))


def damaged(image: NDArray[np.uint8], text: str) -> NDArray[np.uint8]:
    """An 8-bit H×W×3 image after the damage that `text` states; the same for every call.

    >>> damaged(np.full((8, 8, 3), 9, np.uint8), "blur:0.8+jpeg:60").max().item()
    9
    """
    for kind, value in parse(text):
        if kind == "jpeg":
            image = _jpeg(image, int(value))
        elif kind == "noise":
            noise = np.random.default_rng(SEED).normal(0, value, image.shape)
            image = to_uint8(image + noise)
        else:
            image = _blurred(image, value)
    return image


def _jpeg(image: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.array(Image.open(file))


def _blurred(image: NDArray[np.uint8], sigma: float) -> NDArray[np.uint8]:
    """Mirrored at the borders, and cut where the Gaussian has fallen below a thousandth."""
    if not sigma:
        return image
    radius = min(math.ceil(4 * sigma), min(image.shape[:2]))
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    result = image.astype(np.float64)
    for axis in (0, 1):
        length = result.shape[axis]
        around = [(radius, radius) if a == axis else (0, 0) for a in range(3)]
        wide = np.pad(result, around, mode="symmetric")
        taps = [w * wide.take(range(i, i + length), axis) for i, w in enumerate(kernel / kernel.sum())]
        result = np.sum(taps, axis=0)
    return to_uint8(result)
