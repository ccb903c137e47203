"""Turning by any angle: where the pixels of the turned image lie in the file, and how far it covers them.

Positions are (row, column). The turned image is the region scaled to its size, mirrored if asked, and turned
clockwise about its middle, in the box that just holds it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .blocks import Box
from .requests import Request


@dataclass(frozen=True)
class Turn:
    """Some pixels of a turned image: `size` of them, the first at `origin` of the whole.

    `place` (2×3) takes a position in the whole turned image to the picture before it was turned, of size
    `upright`; `scale` and `corner` take that to the file's pixels.
    """

    size: tuple[int, int]
    upright: tuple[int, int]
    place: NDArray[np.float64]
    scale: NDArray[np.float64]
    corner: NDArray[np.float64]
    origin: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, request: Request, region: tuple[float, float, float, float]) -> Turn:
        """`region`: (top, left, bottom, right) in the file's pixels."""
        upright, size = request.size[::-1], request.turned_size[::-1]
        angle = math.radians(request.angle)
        cos, sin = math.cos(angle), math.sin(angle)
        # Back by the angle, from (row, column): columns right, rows down, clockwise as one looks at it.
        linear = np.array([[cos, -sin], [sin, cos]])
        if request.mirrored:
            linear[1] = -linear[1]
        shift = np.array(upright) / 2 - linear @ (np.array(size) / 2)
        low, high = np.array(region[:2]), np.array(region[2:])
        return cls(size, upright, np.column_stack([linear, shift]), (high - low) / upright, low)

    def tile(self, top: int, left: int, rows: int, cols: int) -> Turn:
        return replace(self, size=(rows, cols), origin=(top, left))

    @property
    def jacobian(self) -> NDArray[np.float64]:
        """The sides of a pixel, in the file's pixels."""
        return self.scale[:, None] * self.place[:, :2]

    def points(self, box: Box) -> NDArray[np.float64]:
        """Where the middles of its pixels lie in a box of the file, (rows, columns, 2)."""
        return self._upright(self._middles()) * self.scale + self.corner - np.array(box[:2])

    def _upright(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Positions in this part as positions in the picture before it was turned."""
        return (at + self.origin) @ self.place[:, :2].T + self.place[:, 2]

    def _middles(self) -> NDArray[np.float64]:
        rows, cols = (np.arange(n) + 0.5 for n in self.size)
        return np.stack(np.meshgrid(rows, cols, indexing="ij"), axis=-1)

    def box(self, shape: tuple[int, int]) -> Box | None:
        """The cells of a file of `shape` that its pixels are read from; None if they are all beside it."""
        rows, cols = self.size
        corners = np.array([[0, 0], [rows, 0], [0, cols], [rows, cols]])
        at = self._upright(corners) * self.scale + self.corner
        # Only what the region holds is shown, and a footprint reaches this far beyond its middle.
        low = np.maximum(at.min(axis=0), self.corner)
        high = np.minimum(at.max(axis=0), self.corner + self.scale * self.upright)
        if np.any(low >= high):
            return None
        margin = 4 * max(1.0, float(self.scale.max()))
        top, left = (int(v) for v in np.maximum(np.floor(low - margin), 0))
        bottom, right = (int(v) for v in np.minimum(np.ceil(high + margin), shape))
        return top, left, bottom, right

    def coverage(self) -> NDArray[np.float32]:
        """How much of each pixel the turned image covers, by the distance of its middle from the edges."""
        at = self._upright(self._middles())
        inside = np.minimum(at, np.array(self.upright) - at) + 0.5
        return np.clip(inside, 0, 1).prod(axis=-1).astype(np.float32)
