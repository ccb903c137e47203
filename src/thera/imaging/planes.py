"""A picture as the planes of three colours that a network sees, and back."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from thera.field.grid import Axis

from .alpha import AlphaLimits, fill_hidden
from .picture import CHANNELS, Picture, Range


class Plane:
    """Some channels of a picture: three of them, or one that is shown to the network three times.

    `inks` are stored as what they take away from white, and are shown as the light that is left.
    """

    def __init__(
        self,
        samples: NDArray,
        channels: slice,
        span: Range,
        inks: bool = False,
        limits: AlphaLimits | None = None,
    ) -> None:
        self.samples = samples
        self.channels = channels
        self.span = span
        self.inks = inks
        self.limits = limits

    def cells(self, top: int, left: int, bottom: int, right: int) -> NDArray[np.float32]:
        """Pixels of the input as h×w×3 floats in [0, 1]."""
        values = self.span.normalise(self.samples[top:bottom, left:right, self.channels])
        if self.inks:
            np.subtract(1, values, out=values)
        return values if values.shape[2] == 3 else np.repeat(values, 3, axis=2)

    def put(self, values: NDArray[np.float32], rows: Axis, cols: Axis, out: NDArray) -> None:
        """Stores n×W'×3 floats in the plane's channels of `out`, n×W'×C samples."""
        self.store(values, out, None if self.limits is None else self.limits.at(rows, cols))

    def store(
        self, values: NDArray[np.float32], out: NDArray, limits: tuple[NDArray, NDArray] | None = None
    ) -> None:
        """`put`, within the lowest and highest samples there may be."""
        if self.channels.stop - self.channels.start == 1:
            values = values.mean(axis=2, keepdims=True)
        if self.inks:
            values = 1 - values
        if limits is not None:
            low, high = (self.span.normalise(limit) for limit in limits)
            values = np.clip(values, low[..., None], high[..., None])
        # Another type than the input's, for a format that holds no other, spans its whole range.
        span = self.span if out.dtype == self.samples.dtype else Range.of(out)
        out[..., self.channels] = span.restore(values, out.dtype)


def planes_of(picture: Picture, size: tuple[int, int]) -> list[Plane]:
    """The planes to scale, colours before alpha. An alpha that is the same everywhere needs no network."""
    samples, colours = picture.samples, CHANNELS[picture.colour]
    if picture.alpha and picture.covers:
        samples = fill_hidden(samples)
    span = Range.of(samples[..., :colours])
    if picture.colour == "grey":
        planes = [Plane(samples, slice(0, 1), span)]
    else:
        planes = [Plane(samples, slice(0, 3), span, inks=picture.colour == "cmyk")]
    if picture.colour == "cmyk":
        planes.append(Plane(samples, slice(3, 4), span, inks=True))
    if picture.alpha and not constant_alpha(picture):
        last = slice(colours, colours + 1)
        limits = AlphaLimits(samples[..., -1], size) if picture.covers else None
        planes.append(Plane(samples, last, Range.of(samples[..., last]), limits=limits))
    return planes


def constant_alpha(picture: Picture) -> bool:
    """Whether there is an alpha, and it is the same at every pixel."""
    if not picture.alpha:
        return False
    alpha = picture.samples[..., -1]
    return bool(alpha.min() == alpha.max())


def alpha_everywhere(picture: Picture, dtype: np.dtype) -> NDArray | None:
    """The alpha of all pixels as one sample of type `dtype`, where all have the same."""
    if not constant_alpha(picture):
        return None
    alpha = picture.samples[:1, :1, -1:]
    if dtype == alpha.dtype:
        return alpha[0, 0]
    return Range.of(np.empty(0, dtype)).restore(Range.of(alpha).normalise(alpha)[0, 0], dtype)


def without_alpha(picture: Picture) -> Picture:
    """The picture over white, for formats that know no transparency; its colours, if alpha is only data."""
    if not picture.covers:
        return replace(picture, samples=picture.samples[..., :-1], alpha=False)
    alpha = Range.of(picture.samples[..., -1:]).normalise(picture.samples[..., -1:])
    span = Range.of(picture.samples[..., :-1])
    white = 0.0 if picture.colour == "cmyk" else 1.0
    values = span.normalise(picture.samples[..., :-1])
    values = values * alpha + white * (1 - alpha)
    return replace(picture, samples=span.restore(values, picture.samples.dtype), alpha=False)
