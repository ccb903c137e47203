"""A file as what is served of it: sRGB colours and an alpha where there is one, upright, in memory."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thera.imaging.picture import Picture
from thera.imaging.srgb import srgb_planes
from thera.values.planes import Plane


class Facts(NamedTuple):
    """What a server says of a picture."""

    shape: tuple[int, int]
    grey: bool
    alpha: bool


@dataclass(frozen=True)
class ServedPicture:
    """A picture ready to be served, and the key that its fields are kept under.

    `planes`: its colours, then its alpha if that differs from pixel to pixel. `constant`: the alpha of all
    pixels, if it is the same everywhere and not opaque.
    """

    key: Hashable
    planes: list[Plane]
    constant: NDArray | None
    grey: bool
    nbytes: int

    @classmethod
    def of(cls, picture: Picture, key: Hashable, halo: int) -> ServedPicture:
        """`halo`: how far the network looks."""
        constant = picture.constant_alpha(np.dtype(np.uint8)) if picture.covers else None
        if constant is not None and constant == 255:
            constant = None
        planes = srgb_planes(picture, halo)
        return cls(key, planes, constant, picture.colour == "grey", picture.samples.nbytes)

    @property
    def shape(self) -> tuple[int, int]:
        return self.planes[0].shape

    @property
    def alpha(self) -> bool:
        return len(self.planes) > 1 or self.constant is not None

    @property
    def facts(self) -> Facts:
        return Facts(self.shape, self.grey, self.alpha)

    def empty(self, *size: int) -> NDArray[np.uint8]:
        """Samples to be filled in: grey or RGB, and alpha, which is there already if it is constant."""
        samples = np.empty((*size, (1 if self.grey else 3) + self.alpha), np.uint8)
        if self.constant is not None:
            samples[..., -1] = self.constant
        return samples
