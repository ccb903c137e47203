"""Pictures as a screen and a browser take them, converted in windows."""

from __future__ import annotations

import io
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from thera.field.grid import Box
from thera.imaging.picture import Picture, over
from thera.imaging.srgb import srgb_planes
from thera.values.planes import Plane
from thera.values.ranges import Range

#: Pixels that a reduction reads at a time.
BAND_PIXELS = 1 << 21


class DisplayedPicture:
    """A picture as a screen shows it: in sRGB, and over white where it is transparent.

    Only the picture's own samples are kept, and windows are converted as they are read. As a source for a
    `TiledField` it is put on white before it is scaled; `planes` can be put on white after that, as a
    download is.

    >>> DisplayedPicture(Picture.of_channels(np.zeros((2, 3, 2), np.uint8))).cells((0, 0, 2, 1)).shape
    (2, 1, 3)
    """

    def __init__(self, picture: Picture) -> None:
        colours = srgb_planes(picture, halo=1)[0]
        self.shape = picture.layout.size
        self._picture, self._samples, self._bands = picture, colours.samples, colours.group.bands
        self._span = colours.span
        self._alpha = Range.of(picture.samples[..., -1]) if picture.alpha and picture.covers else None
        one = picture.constant_alpha(np.dtype(np.float32)) if self._alpha else None
        #: The opacity of all pixels, from 0 to 1, where it is the same everywhere.
        self.opacity = 1.0 if self._alpha is None else None if one is None else float(one[0])

    @property
    def transparent(self) -> bool:
        return self.opacity != 1.0

    def planes(self, halo: int) -> list[Plane]:
        """Its colours, then its alpha if that differs from pixel to pixel, as a network sees them."""
        return srgb_planes(self._picture, halo)

    @property
    def keeps_flat(self) -> bool:
        return False  # the page draws the field itself

    def reaching(self, cells: int) -> DisplayedPicture:
        return self

    def cells(self, box: Box) -> NDArray[np.float32]:
        """The pixels of a window, h×w×3 in [0, 1]."""
        return self._span.normalise(self._colours(box))

    def picture(self) -> Picture:
        """All of it as sRGB bytes, with its transparency."""
        H, W = self.shape
        samples = np.empty((H, W, len(self._bands) + (self._alpha is not None)), np.uint8)
        count = max(1, BAND_PIXELS // W)
        for top in range(0, H, count):
            rows = slice(top, min(top + count, H))
            colours, _ = self._samples.read((top, 0, rows.stop, W), self._bands)
            samples[rows, :, : len(self._bands)] = _bytes(colours, self._span)
            if self._alpha is not None:
                samples[rows, :, -1] = _bytes(self._picture.samples[rows, :, -1], self._alpha)
        return Picture.of_channels(samples)

    def bytes(self, box: Box) -> NDArray[np.uint8]:
        """The pixels of a window, h×w×3 bytes."""
        return _bytes(self._colours(box), self._span)

    def _colours(self, box: Box) -> NDArray:
        colours, _ = self._samples.read(box, self._bands)
        if self._alpha is not None:
            top, left, bottom, right = box
            alpha = self._picture.samples[top:bottom, left:right, -1:]
            colours = over(colours, alpha, (self._span, self._alpha))
        return colours if colours.shape[2] == 3 else np.repeat(colours, 3, axis=2)

    def means(self, region: tuple[float, float, float, float], size: tuple[int, int]) -> NDArray[np.uint8]:
        """Means over `size` = (height, width) equal areas of a region, h×w×3 bytes."""
        (top, left, bottom, right), (h, w) = region, size
        step, first, last = (bottom - top) / h, math.floor(left), math.ceil(right)
        count = max(1, int(BAND_PIXELS / ((last - first) * step)))
        out = np.empty((h, w, 3), np.uint8)
        for start in range(0, h, count):
            stop = min(start + count, h)
            low, high = top + start * step, min(top + stop * step, bottom)
            above, below = math.floor(low), math.ceil(high)
            part = Image.fromarray(self.bytes((above, first, below, last)))
            box = (left - first, low - above, right - first, high - above)
            out[start:stop] = np.asarray(part.resize((w, stop - start), Image.Resampling.BOX, box=box))
        return out


def _bytes(samples: NDArray, span: Range) -> NDArray[np.uint8]:
    return samples if samples.dtype == np.uint8 else eight_bits(span.normalise(samples))


def eight_bits(values: NDArray) -> NDArray[np.uint8]:
    return np.rint(255 * np.clip(values, 0, 1)).astype(np.uint8)


def as_png(pixels: NDArray[np.uint8]) -> bytes:
    """H×W×3 bytes as a file that is made fast."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()
