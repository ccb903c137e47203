"""Turning by any angle: where the pixels of the turned image lie in the file, and how far it covers them.

Positions are (row, column). The turned image is the region scaled to its size, mirrored if asked, and turned
clockwise about its middle, in the box that just holds it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thera.field.grid import Box

from .requests import ImageRequest


@dataclass(frozen=True)
class Turn:
    """A turned image of `size`.

    `place` (2×3) takes a position in it to the picture before it was turned, of size `upright`; `scale` and
    `corner` take that to the file's pixels.
    """

    size: tuple[int, int]
    upright: tuple[int, int]
    place: NDArray[np.float64]
    scale: NDArray[np.float64]
    corner: NDArray[np.float64]

    @classmethod
    def of(cls, request: ImageRequest, region: tuple[float, float, float, float]) -> Turn:
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

    @property
    def jacobian(self) -> NDArray[np.float64]:
        """The sides of a pixel, in the file's pixels."""
        return self.scale[:, None] * self.place[:, :2]

    def shown(self, frame: Box, shape: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """Of the pixels of a frame: where those lie in a file of `shape` that show any of it, (N, 2), and how
        much of each of them it covers, (rows, columns), by the distance of its middle from the edges."""
        rows, cols = (np.arange(low, high) + 0.5 for low, high in zip(frame[:2], frame[2:], strict=True))
        middles = np.stack(np.meshgrid(rows, cols, indexing="ij"), axis=-1)
        at = middles @ self.place[:, :2].T + self.place[:, 2]
        inside = np.minimum(at, np.array(self.upright) - at) + 0.5
        coverage = np.clip(inside, 0, 1).prod(axis=-1).astype(np.float32)
        return np.clip(at[coverage > 0] * self.scale + self.corner, 0, shape), coverage
