"""A file as what is served of it: sRGB colours and an alpha where there is one, upright, in memory."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from thera.imaging.alpha import fill_hidden
from thera.imaging.picture import CHANNELS, Picture
from thera.imaging.srgb import to_srgb
from thera.values.planes import Plane
from thera.values.ranges import Range


class Facts(NamedTuple):
    """What a server tells of a picture."""

    shape: tuple[int, int]
    grey: bool
    alpha: bool


@dataclass(frozen=True)
class Source:
    """A picture ready to be served: planes of h×w×3 floats, and the key that its fields are kept under."""

    key: Hashable
    shape: tuple[int, int]
    colours: Plane
    alpha: Plane | None
    grey: bool

    @classmethod
    def of(cls, picture: Picture, key: Hashable) -> Source:
        picture = to_srgb(picture)
        samples, last = picture.samples, CHANNELS[picture.colour]
        alpha = None
        if picture.alpha and picture.covers:
            span = Range.of(samples[..., -1:])
            if samples[..., -1].min() < span.high:
                samples = fill_hidden(samples)
                alpha = Plane(samples, slice(last, last + 1), span)
        colours = Plane(samples, slice(0, last), Range.of(samples[..., :last]))
        return cls(key, picture.layout.size, colours, alpha, picture.colour == "grey")

    @property
    def planes(self) -> tuple[Plane, ...]:
        return (self.colours,) if self.alpha is None else (self.colours, self.alpha)

    @property
    def channels(self) -> int:
        """Of what is served of it: grey or RGB, and alpha."""
        return (1 if self.grey else 3) + (self.alpha is not None)

    @property
    def facts(self) -> Facts:
        return Facts(self.shape, self.grey, self.alpha is not None)

    @property
    def nbytes(self) -> int:
        return self.colours.samples.nbytes
