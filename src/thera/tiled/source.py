"""The input of a `TiledField`: a picture that is read in windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from thera.field.grid import Box


class Source(Protocol):
    """A picture of any size as a network sees it."""

    @property
    def shape(self) -> tuple[int, int]:
        """(H, W) in pixels."""

    @property
    def keeps_flat(self) -> bool:
        """True if flat colours must stay exactly as they are."""

    def reaching(self, cells: int) -> Source:
        """The same picture for filters that reach this many cells: hidden pixels are filled in as far."""

    def cells(self, box: Box) -> NDArray[np.float32]:
        """The pixels of a window as h×w×3 floats in [0, 1]."""


@dataclass(frozen=True)
class ArraySource:
    """A picture in memory, already as a network sees it: H×W×3 floats in [0, 1]."""

    pixels: NDArray[np.float32]
    keeps_flat = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.pixels.shape[0], self.pixels.shape[1]

    def reaching(self, cells: int) -> ArraySource:
        return self

    def cells(self, box: Box) -> NDArray[np.float32]:
        top, left, bottom, right = box
        return self.pixels[top:bottom, left:right]
