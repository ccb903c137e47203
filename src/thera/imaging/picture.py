"""A picture in memory: its samples as the file had them, what its channels mean, and what it carries."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError, InvalidInput

from .metadata import FROM_BOTTOM, FROM_RIGHT, SIDEWAYS, Metadata

Colour = Literal["grey", "rgb", "cmyk"]
CHANNELS: dict[Colour, int] = {"grey": 1, "rgb": 3, "cmyk": 4}


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


def depth_name(dtype: np.dtype) -> str:
    """What a person calls a sample type.

    >>> depth_name(np.dtype(np.uint16)), depth_name(np.dtype(np.float32))
    ('16-bit', '32-bit float')
    """
    kind = {"u": "", "i": " signed", "f": " float"}[dtype.kind]
    return f"{8 * dtype.itemsize}-bit{kind}"


@dataclass(frozen=True)
class Range:
    """The sample values that stand for 0 and for 1 where the network looks."""

    low: float
    high: float

    @classmethod
    def of(cls, samples: NDArray) -> "Range":
        """Unsigned integers of 8 and 16 bits span their whole type, other integers what they hold, and floats
        0 to 1 or what they hold if that is more.

        >>> Range.of(np.zeros((2, 2), np.uint8))
        Range(low=0.0, high=255.0)
        >>> Range.of(np.array([[-20.0, 300.0]]))
        Range(low=-20.0, high=300.0)
        """
        return cls.of_type(samples.dtype) or cls.of_extremes(samples.min(), samples.max())

    @classmethod
    def of_type(cls, dtype: np.dtype) -> "Range | None":
        """What samples of a type span whatever they hold; None where that depends on what they hold."""
        spans = dtype.kind == "u" and dtype.itemsize <= 2  # in either byte order
        return cls(0.0, float(np.iinfo(dtype).max)) if spans else None

    @classmethod
    def of_extremes(cls, lowest: np.number, highest: np.number) -> "Range":
        """What samples span of which these are the lowest and the highest."""
        low, high = float(lowest), float(highest)
        if not (np.isfinite(low) and np.isfinite(high)):
            raise InvalidInput("The image holds NaN or infinite values: replace them before it is scaled.")
        if highest.dtype.kind == "f" and low >= 0 and high <= 1:
            return cls(0.0, 1.0)
        return cls(low, high if high > low else low + 1.0)

    def normalise(self, samples: NDArray) -> NDArray[np.float32]:
        """Samples as float32, `low` at 0 and `high` at 1."""
        if samples.dtype.itemsize <= 2 and samples.dtype.kind == "u" and self.low == 0:
            return np.multiply(samples, np.float32(1 / self.high), dtype=np.float32)
        return ((samples.astype(np.float64) - self.low) / (self.high - self.low)).astype(np.float32)

    def restore(self, values: NDArray[np.float32], dtype: np.dtype) -> NDArray:
        """The samples of type `dtype` that `values` stand for: integers rounded, and held to their range."""
        # float32 may hold fewer digits than the wide types: 1e9 and 1e9 + 1 are the same to it.
        wide = dtype.itemsize > (4 if dtype.kind == "f" else 2)
        scaled: NDArray = values.astype(np.float64 if wide else np.float32)
        scaled *= self.high - self.low
        scaled += self.low
        if dtype.kind != "f":
            limits = np.iinfo(dtype)
            np.rint(scaled, out=scaled)
            np.clip(scaled, limits.min, limits.max, out=scaled)
        return scaled.astype(dtype, copy=False)


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

    def upright(self, orientation: int) -> "Picture":
        """The picture turned the way EXIF's `orientation` (1 to 8) says it was seen."""
        samples, metadata = self.samples, self.metadata
        if orientation in SIDEWAYS:
            samples, metadata = samples.transpose(1, 0, 2), metadata.transposed()
        if orientation in FROM_RIGHT:
            samples = samples[:, ::-1]
        if orientation in FROM_BOTTOM:
            samples = samples[::-1]
        return replace(self, samples=np.ascontiguousarray(samples), metadata=metadata)
