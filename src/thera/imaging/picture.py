"""A picture in memory: its samples as in the file, the meaning of its channels, and its metadata."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError
from thera.values.bands import Bands, Group
from thera.values.planes import Codes, Plane, with_codes
from thera.values.ranges import PERCENTILES, Range, depth_name
from thera.values.samples import ArraySamples
from thera.values.transfer import LINEAR, SRGB

from .metadata import FROM_BOTTOM, FROM_RIGHT, SIDEWAYS, Metadata

Colour = Literal["grey", "rgb", "cmyk"]
CHANNELS: dict[Colour, int] = {"grey": 1, "rgb": 3, "cmyk": 4}


#: Samples that are converted at a time, to avoid a float copy of a whole picture.
BAND_SAMPLES = 1 << 22


@dataclass(frozen=True)
class Layout:
    """The shape of a picture: size, colour model, whether alpha follows the colours, and the sample type.

    `covers`: alpha is transparency; otherwise it is an ordinary channel. `bits`: of a sample in the file, if
    they are fewer than those of its type (10 or 12 in AVIF and HEIC).
    """

    height: int
    width: int
    colour: Colour
    alpha: bool
    dtype: np.dtype
    covers: bool = True
    bits: int | None = None

    @property
    def channels(self) -> int:
        return CHANNELS[self.colour] + self.alpha

    @property
    def size(self) -> tuple[int, int]:
        return self.height, self.width

    @property
    def nbytes(self) -> int:
        return self.height * self.width * self.channels * self.dtype.itemsize

    @property
    def mode(self) -> str:
        """Pillow's name of the colour model at 8 bits."""
        return {"grey": "L", "rgb": "RGB", "cmyk": "CMYK"}[self.colour] + "A" * self.alpha

    @property
    def depth(self) -> str:
        return depth_name(self.dtype) if self.bits is None else f"{self.bits}-bit"


@dataclass(frozen=True)
class Picture:
    """An image with everything that its file held.

    `samples` is H×W×C in the file's own sample type: the colours, then alpha (straight, never premultiplied).
    `notes` say what reading had to change, such as a palette into colours or one bit into grey.
    `linear`: it is scaled in linear light. `transfer`: the function from light to its samples (H.273), if
    its metadata do not say it. `written`: that of its scaled samples; None for the same. `bits`: of a sample
    in the file, if they are fewer than those of its type.
    """

    samples: NDArray
    colour: Colour
    alpha: bool = False
    covers: bool = True
    metadata: Metadata = field(default_factory=Metadata)
    notes: tuple[str, ...] = ()
    format: str = ""
    linear: bool = False
    transfer: int = SRGB
    written: int | None = None
    bits: int | None = None

    @classmethod
    def of_channels(cls, samples: NDArray, metadata: Metadata | None = None, format: str = "") -> "Picture":
        """A picture of H×W×C samples: grey (C = 1) or RGB (3), with alpha if there is one more channel.

        >>> Picture.of_channels(np.zeros((3, 4, 2), np.uint8)).layout.mode
        'LA'
        """
        colour: Colour = "grey" if samples.shape[2] < 3 else "rgb"
        alpha = samples.shape[2] in (2, 4)
        return cls(samples, colour, alpha, metadata=metadata or Metadata(), format=format)

    def __post_init__(self) -> None:
        height, width = self.samples.shape[:2]
        if not height or not width:
            raise ImageFileError(f"The image is {width}×{height}: it has no pixels to scale.")
        assert self.samples.shape[2] == self.layout.channels, (self.samples.shape, self.colour, self.alpha)

    @property
    def layout(self) -> Layout:
        height, width = self.samples.shape[:2]
        return Layout(height, width, self.colour, self.alpha, self.samples.dtype, self.covers, self.bits)

    @cached_property
    def uniform_alpha(self) -> float | None:
        """The alpha of all pixels, if there is one and it is the same everywhere."""
        if not self.alpha:
            return None
        alpha = self.samples[..., -1]
        return float(alpha.min()) if alpha.min() == alpha.max() else None

    def constant_alpha(self, dtype: np.dtype) -> NDArray | None:
        """The alpha of all pixels as one sample of type `dtype`, if it is the same everywhere."""
        if self.uniform_alpha is None:
            return None
        alpha = self.samples[:1, :1, -1:]
        if dtype == alpha.dtype:
            return alpha[0, 0]
        return Range.of(np.zeros(1, dtype)).restore(Range.of(alpha).normalise(alpha)[0, 0], dtype)

    @cached_property
    def bands(self) -> Bands:
        """The meaning of its channels."""
        return Bands.of_colours(self.colour, self.alpha, self.covers)

    def planes(self, halo: int) -> list[Plane]:
        """The planes for a network with this halo. A uniform alpha is left out: it needs no network."""
        samples = ArraySamples(self.samples, self.bands)
        known = Range.of_type(self.samples.dtype)
        planes = [Plane(samples, group, known or self._span(group), halo) for group in self.bands.groups]
        stored = self.encoding
        # Networks learnt sRGB; PQ and HLG are similar to it.
        shown = LINEAR if self.linear else SRGB if stored == LINEAR else stored
        codes = Codes(stored, shown, stored if self.written is None else self.written)
        if len(set(codes)) > 1:
            planes = with_codes(planes, codes)
        return planes[:-1] if self.uniform_alpha is not None else planes

    @property
    def encoding(self) -> int:
        """The function from light to its samples (H.273)."""
        return self.metadata.cicp[1] if self.metadata.cicp else self.transfer

    def scaled_to(self, size: tuple[int, int], linear: bool | None) -> "Picture":
        """The picture as it is scaled to `size` = (height, width): in linear light or not.

        None: a picture that becomes smaller is, if it is known what light its samples stand for.
        """
        if linear is None:
            dtype, (height, width) = self.samples.dtype, self.layout.size
            known = self.metadata.cicp is not None or dtype == np.uint8
            if dtype == np.uint16:  # grey without a profile may be a measurement
                known = known or self.colour == "rgb" or self.metadata.icc is not None
            linear = known and size != (height, width) and size[0] <= height and size[1] <= width
        return replace(self, linear=linear)

    def empty_rows(self, count: int, layout: Layout) -> NDArray:
        """An array for rows of an output of `layout`. A uniform alpha is already filled in."""
        rows = np.empty((count, layout.width, layout.channels), layout.dtype)
        if self.uniform_alpha is not None:
            rows[..., -1] = self.constant_alpha(layout.dtype)
        return rows

    def _span(self, group: Group) -> Range:
        """The range of a group, from its visible samples only. Coloured inks and black share one range."""
        count = CHANNELS[self.colour]
        if group.bands[0] >= count:
            return Range.of(self.samples[..., count:])
        span = Range.of(self.visible)
        return Range(0.0, 1.0) if self.encoding == LINEAR and self.written == SRGB else span

    @property
    def visible(self) -> NDArray:
        """The colours that can be seen: all, or those whose alpha is not 0."""
        samples = self.samples[..., : CHANNELS[self.colour]]
        if self.bands.alpha is not None:
            visible = self.samples[..., -1] > 0
            samples = samples[visible] if visible.any() else samples
        return samples

    def without_darker(self) -> "Picture":
        """The picture with black for all that is darker, if few floats lie below 0 by more than a level of
        8 bits: as few as highlights above 1. Otherwise the picture itself."""
        if self.samples.dtype.kind != "f" or self.colour == "cmyk":
            return self
        seen = self.visible
        if np.count_nonzero(seen < -1 / 255) > PERCENTILES[0] / 100 * seen.size or not (seen < 0).any():
            return self
        samples = self.samples.copy()
        colours = samples[..., : CHANNELS[self.colour]]
        np.maximum(colours, 0, out=colours)
        return replace(self, samples=samples)

    def without_alpha(self) -> "Picture":
        """The picture on white, for formats without transparency; its colours alone if alpha is only data."""
        if not self.covers:
            return replace(self, samples=self.samples[..., :-1], alpha=False)
        colours, alpha = self.samples[..., :-1], self.samples[..., -1:]
        spans = Range.of(colours), Range.of(alpha)
        white = 0.0 if self.colour == "cmyk" else 1.0
        samples = np.empty_like(colours, order="C")
        for rows in row_bands(self.samples):
            samples[rows] = over(colours[rows], alpha[rows], spans, white)
        return replace(self, samples=samples, alpha=False)

    def noted(self, *notes: str) -> "Picture":
        """The picture with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def upright(self, orientation: int) -> "Picture":
        """The picture turned upright by EXIF's `orientation` (1 to 8)."""
        metadata = self.metadata.transposed() if orientation in SIDEWAYS else self.metadata
        samples = np.ascontiguousarray(turned(self.samples, orientation))
        return replace(self, samples=samples, metadata=metadata)


def turned(samples: NDArray, orientation: int, back: bool = False) -> NDArray:
    """A view of H×W×C samples, turned upright by EXIF's `orientation`; with `back`, upright to stored."""
    flips = (
        slice(None, None, -1 if orientation in FROM_BOTTOM else 1),
        slice(None, None, -1 if orientation in FROM_RIGHT else 1),
    )
    if back:
        samples = samples[flips]
    if orientation in SIDEWAYS:
        samples = samples.transpose(1, 0, 2)
    return samples if back else samples[flips]


def straight(samples: NDArray) -> NDArray:
    """Undoes premultiplied alpha: divides the colours by it."""
    alpha = samples[..., -1:].astype(np.float64)
    full = float(np.iinfo(samples.dtype).max) if samples.dtype.kind != "f" else 1.0
    colours = np.divide(
        samples[..., :-1] * full, alpha, out=np.zeros(samples[..., :-1].shape), where=alpha > 0
    )
    if samples.dtype.kind != "f":
        colours = np.clip(np.rint(colours), 0, full)
    return np.concatenate([colours.astype(samples.dtype), samples[..., -1:]], axis=2)


def widened(samples: NDArray, bits: int) -> NDArray:
    """Unsigned samples of `bits` bits each, so that their largest value becomes that of the type.

    >>> widened(np.uint16([0, 1023]), 10)
    array([    0, 65535], dtype=uint16)
    """
    full = np.iinfo(samples.dtype).max
    if bits >= 8 * samples.dtype.itemsize:
        return samples
    return np.rint(samples * (full / (2**bits - 1))).astype(samples.dtype)


def over(colours: NDArray, alpha: NDArray, spans: tuple[Range, Range], white: float = 1.0) -> NDArray:
    """Samples h×w×n on white, with their alpha h×w×1. `spans` are the ranges of both."""
    cover = spans[1].normalise(alpha)
    values = spans[0].normalise(colours) * cover + white * (1 - cover)
    return spans[0].restore(values, colours.dtype)


def row_bands(samples: NDArray) -> Iterator[slice]:
    """Bands of rows of H×W×C samples, each of about BAND_SAMPLES."""
    count = max(1, BAND_SAMPLES // (samples.shape[1] * samples.shape[2]))
    return (slice(top, top + count) for top in range(0, samples.shape[0], count))
