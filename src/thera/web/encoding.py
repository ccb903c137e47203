"""Encoding a picture, or a part of it, tile by tile: with progress, and stopped between two tiles."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from thera.field import HeatField
from thera.imaging.tiling import Plan
from thera.models import Model

#: A side of the tiles: halos cost a third, and a tile takes some seconds on a laptop.
TILE = 512

Region = tuple[int, int, int, int]  # top, left, bottom, right, in cells


def encode(
    model: Model,
    pixels: NDArray[np.float32],
    region: Region | None = None,
    progress: Callable[[float], object] = lambda share: None,
) -> HeatField:
    """The field of the cells of `region`, equal to that part of the whole picture's field.

    `progress` is called with the share done, and may raise to stop.
    """
    H, W = pixels.shape[:2]
    top, left, bottom, right = region or (0, 0, H, W)
    align = model.info.alignment
    rows, cols = _cuts(top, bottom, align), _cuts(left, right, align)
    halo = Plan((H, W), (H, W), rows, cols, model.info.halo, align, reach=0, memory=0, encoded=0)
    strips, done = [], 0
    for low, high in pairwise(rows):
        tiles = []
        for before, behind in pairwise(cols):
            (a, b), (c, d) = halo.with_halo(low, high, H), halo.with_halo(before, behind, W)
            tile = model.encode(pixels[a:b, c:d])
            tiles.append(tile.crop(slice(low - a, high - a), slice(before - c, behind - c)))
            done += (high - low) * (behind - before)
            progress(done / ((bottom - top) * (right - left)))
        strips.append(_beside(tiles, axis=1))
    return _beside(strips, axis=0)


def _cuts(low: int, high: int, alignment: int) -> tuple[int, ...]:
    """Where to cut [low, high) into about equal tiles, inner cuts at multiples of the alignment."""
    count = -(-(high - low) // TILE)
    inner = (round((low + (high - low) * k / count) / alignment) * alignment for k in range(1, count))
    return (low, *inner, high)


def _beside(parts: list[HeatField], axis: int) -> HeatField:
    if len(parts) == 1:
        return parts[0]
    xp = parts[0].namespace
    pixels = xp.concat([part.pixels for part in parts], axis=axis)
    features = xp.concat([part.features for part in parts], axis=axis)
    return HeatField.of(parts[0].head, pixels, features)
