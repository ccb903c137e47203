"""A picture in memory: its samples as the file had them, what its channels mean, and what it carries."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError
from thera.values.bands import Bands, Group
from thera.values.planes import ArraySamples, Plane, planes_of
from thera.values.ranges import Range, depth_name

from .metadata import FROM_BOTTOM, FROM_RIGHT, SIDEWAYS, Metadata

Colour = Literal["grey", "rgb", "cmyk"]
CHANNELS: dict[Colour, int] = {"grey": 1, "rgb": 3, "cmyk": 4}


#: Samples that are converted at a time, so that no float copy of a whole picture is made.
BAND_SAMPLES = 1 << 22


@dataclass(frozen=True)
class Layout:
    """The shape of a picture: size, colour model, whether alpha follows the colours, and the sample type.

    `covers`: alpha says how far the colours cover what is behind; otherwise it is a channel like another.
    """

    height: int
    width: int
    colour: Colour
    alpha: bool
    dtype: np.dtype
    covers: bool = True

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
        """Pillow's name for it at 8 bits."""
        return {"grey": "L", "rgb": "RGB", "cmyk": "CMYK"}[self.colour] + "A" * self.alpha

    @property
    def depth(self) -> str:
        return depth_name(self.dtype)


@dataclass(frozen=True)
class Picture:
    """An image with everything its file carried.

    `samples` is H×W×C in the file's own sample type: the colours, then alpha (straight, never premultiplied).
    `notes` are sentences about what reading had to change: a palette turned into colours, one bit into grey.
    """

    samples: NDArray
    colour: Colour
    alpha: bool = False
    covers: bool = True
    metadata: Metadata = field(default_factory=Metadata)
    notes: tuple[str, ...] = ()
    format: str = ""

    @classmethod
    def of_channels(cls, samples: NDArray, metadata: Metadata | None = None, format: str = "") -> "Picture":
        """The picture that H×W×1 to 4 samples are: grey or RGB, with alpha if there is one more.

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
        return Layout(height, width, self.colour, self.alpha, self.samples.dtype, self.covers)

    @cached_property
    def opaque(self) -> float | None:
        """The alpha of all pixels, if there is one and it is the same everywhere."""
        if not self.alpha:
            return None
        alpha = self.samples[..., -1]
        return float(alpha.min()) if alpha.min() == alpha.max() else None

    def constant_alpha(self, dtype: np.dtype) -> NDArray | None:
        """The alpha of all pixels as one sample of type `dtype`, if it is the same everywhere."""
        if self.opaque is None:
            return None
        alpha = self.samples[:1, :1, -1:]
        if dtype == alpha.dtype:
            return alpha[0, 0]
        return Range.of(np.zeros(1, dtype)).restore(Range.of(alpha).normalise(alpha)[0, 0], dtype)

    @cached_property
    def bands(self) -> Bands:
        """What its channels are. Where nothing is visible at all, nothing is hidden either."""
        return Bands.of_colours(self.colour, self.alpha, self.covers and self.opaque != 0)

    def planes(self, halo: int) -> list[Plane]:
        """What a network that looks `halo` pixels far sees of it. A constant alpha needs no network."""
        groups = self.bands.groups
        samples = ArraySamples.whole(self.samples, self.bands)
        planes = planes_of(samples, self.bands, [self._span(group) for group in groups], halo)
        return planes[:-1] if self.opaque is not None else planes

    def _span(self, group: Group) -> Range:
        """The values that stand for 0 and 1, judged by what can be seen. Inks and their black share one."""
        known = Range.of_type(self.samples.dtype)
        if known is not None:
            return known
        count = CHANNELS[self.colour]
        samples = self.samples[..., :count] if group.bands[0] < count else self.samples[..., count:]
        if self.bands.alpha is not None and group.bands[0] < count:
            samples = samples[self.samples[..., -1] > 0]
        return Range.of(samples)

    def without_alpha(self) -> "Picture":
        """The picture over white, for formats without transparency; its colours, if alpha is only data."""
        if not self.covers:
            return replace(self, samples=self.samples[..., :-1], alpha=False)
        colours, alpha = self.samples[..., :-1], self.samples[..., -1:]
        spans = Range.of(colours), Range.of(alpha)
        white = 0.0 if self.colour == "cmyk" else 1.0
        samples = np.empty_like(colours, order="C")
        for rows in row_bands(self.samples):
            samples[rows] = over(colours[rows], alpha[rows], spans, white)
        return replace(self, samples=samples, alpha=False)

    def upright(self, orientation: int) -> "Picture":
        """The picture turned the way EXIF's `orientation` (1 to 8) says it was seen."""
        metadata = self.metadata.transposed() if orientation in SIDEWAYS else self.metadata
        samples = np.ascontiguousarray(turned(self.samples, orientation))
        return replace(self, samples=samples, metadata=metadata)


def turned(samples: NDArray, orientation: int, back: bool = False) -> NDArray:
    """A view of samples as stored, H×W×C, that is upright by EXIF's `orientation`; `back`: the other way."""
    flips = (
        slice(None, None, -1 if orientation in FROM_BOTTOM else 1),
        slice(None, None, -1 if orientation in FROM_RIGHT else 1),
    )
    if back:
        samples = samples[flips]
    if orientation in SIDEWAYS:
        samples = samples.transpose(1, 0, 2)
    return samples if back else samples[flips]


def over(colours: NDArray, alpha: NDArray, spans: tuple[Range, Range], white: float = 1.0) -> NDArray:
    """Samples h×w×n over white, by their alpha h×w×1. `spans` are the ranges of both."""
    cover = spans[1].normalise(alpha)
    values = spans[0].normalise(colours) * cover + white * (1 - cover)
    return spans[0].restore(values, colours.dtype)


def row_bands(samples: NDArray) -> Iterator[slice]:
    """Rows of H×W×C samples, some at a time."""
    count = max(1, BAND_SAMPLES // (samples.shape[1] * samples.shape[2]))
    return (slice(top, top + count) for top in range(0, samples.shape[0], count))
