"""Pixels as a screen and a browser take them."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from thera.imaging.picture import Picture
from thera.imaging.srgb import to_srgb
from thera.values.ranges import Range


def displayed(picture: Picture) -> NDArray[np.float32]:
    """A picture as a screen shows it, H×W×3 in [0, 1]: in sRGB, and over white where it is transparent.

    >>> displayed(Picture.of_channels(np.zeros((2, 3, 2), np.uint8))).shape
    (2, 3, 3)
    """
    picture = to_srgb(picture)
    if picture.alpha:
        picture = picture.without_alpha()
    values = Range.of(picture.samples).normalise(picture.samples)
    return values if values.shape[2] == 3 else np.repeat(values, 3, axis=2)


def eight_bits(values: NDArray) -> NDArray[np.uint8]:
    return np.rint(255 * np.clip(values, 0, 1)).astype(np.uint8)


def as_png(pixels: NDArray[np.uint8]) -> bytes:
    """H×W×3 bytes as a file that is made fast."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()


def shrunk(pixels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Means of H×W×3 bytes over `size` = (height, width) equal areas."""
    return np.asarray(Image.fromarray(pixels).resize((size[1], size[0]), Image.Resampling.BOX))
