"""Tiles for a page that does not draw the field itself: without WebGL2, or of more waves than it can sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.field import Filter, HeatField, Seamless
from thera.field.heatfield import RenderOptions
from thera.field.psf import to_numpy
from thera.web.gallery import MOST_CELLS, Entry, Gallery
from thera.web.pixels import as_png, eight_bits, shrunk
from thera.web.results import FilterName, look

#: What derivatives are multiplied by to be seen, as in page/painter.js.
GRADIENT_GAIN, LAPLACIAN_GAIN = 1.0, 0.06
#: Output pixels of one tile, and how much larger it may be than what it shows.
MOST_TILE, MOST_SCALE = 1 << 20, 256

Shown = Literal["picture", "gradient", "laplacian"]


@dataclass(frozen=True)
class Tile:
    """`size` = (height, width) pixels of the `region` (top, left, bottom, right) of a picture."""

    region: tuple[float, float, float, float]
    size: tuple[int, int]
    psf: Filter
    shown: Shown = "picture"

    @classmethod
    def of(
        cls,
        region: tuple[float, float, float, float],
        size: tuple[int, int],
        shape: tuple[int, int],
        filter: FilterName,
        sharpness: float,
        shown: Shown,
    ) -> Tile:
        """A tile of a picture of `shape`, as asked for: its edges held to the picture's against rounding."""
        edges = [min(max(edge, 0.0), n) for edge, n in zip(region, (*shape, *shape), strict=True)]
        top, left, bottom, right = edges
        if not (math.isfinite(sum(region)) and top < bottom and left < right):
            raise InvalidInput(f"The region {region} is no part of a picture of {shape[0]}×{shape[1]}.")
        if min(size) < 1 or size[0] * size[1] > MOST_TILE:
            raise InvalidInput(
                f"A tile of {size[1]}×{size[0]} is not made: ask for at most {MOST_TILE} pixels."
            )
        if max(size[0] / (bottom - top), size[1] / (right - left)) > MOST_SCALE:
            raise InvalidInput(f"Tiles are made at scales up to {MOST_SCALE}: ask for a larger region.")
        return cls((top, left, bottom, right), size, look(filter, sharpness) or Seamless(), shown)

    def values(self, field: HeatField) -> NDArray:
        """What is drawn, before it is held to [0, 1]."""
        options: RenderOptions = {"size": self.size, "region": self.region, "psf": self.psf}
        if self.shown == "gradient":
            slopes = to_numpy(field.gradient(**options))
            return GRADIENT_GAIN * np.sqrt(np.square(slopes).sum(-1))
        if self.shown == "laplacian":
            return 0.5 + LAPLACIAN_GAIN * to_numpy(field.laplacian(**options))
        return to_numpy(field.render(**options))

    def png(self, gallery: Gallery, entry: Entry, model: str) -> bytes:
        """The tile as a file. Of a picture too large to be encoded, only what is near is."""
        if entry.whole:
            return as_png(eight_bits(self.values(gallery.field(entry, model))))
        cells = self._cells(entry)
        if (cells[2] - cells[0]) * (cells[3] - cells[1]) > MOST_CELLS:
            return as_png(eight_bits(self._preview(entry)))
        field = gallery.field(entry, model, cells)
        top, left = cells[:2]
        region = tuple(edge - origin for edge, origin in zip(self.region, (top, left) * 2, strict=True))
        moved = Tile(region, self.size, self.psf, self.shown)  # type: ignore[arg-type]
        return as_png(eight_bits(moved.values(field)))

    def _cells(self, entry: Entry) -> tuple[int, int, int, int]:
        """What must be encoded for this tile: in steps of 64 cells, so that tiles beside it share it."""
        top, left, bottom, right = self.region
        steps = (bottom - top) / self.size[0], (right - left) / self.size[1]
        step = max(steps)
        reach = int(min(steps) < self.psf.finest) if step <= 1 else math.ceil(3 * step) + 2
        (H, W), grid = entry.shape, 64
        low = [max(0, math.floor((edge - reach) / grid) * grid) for edge in (top, left)]
        high = [min(n, math.ceil((edge + reach) / grid) * grid) for edge, n in ((bottom, H), (right, W))]
        return low[0], low[1], high[0], high[1]

    def _preview(self, entry: Entry) -> NDArray:
        """Means of the pixels, where the field of all of them would be too much, or their differences."""
        (top, left, bottom, right), (h, w) = self.region, self.size
        rows, cols = (bottom - top) / h, (right - left) / w
        # One mean more on every side, so that differences go on from tile to tile; at borders the last again.
        spans = (top, bottom, rows, entry.shape[0]), (left, right, cols, entry.shape[1])
        more = [(int(low >= step), int(n - high >= step)) for low, high, step, n in spans]
        part = [
            slice(round(low - a * step), round(high + b * step))
            for (low, high, step, _), (a, b) in zip(spans, more, strict=True)
        ]
        means = shrunk(eight_bits(entry.pixels[part[0], part[1]]), (h + sum(more[0]), w + sum(more[1]))) / 255
        means = np.pad(means, [*((1 - a, 1 - b) for a, b in more), (0, 0)], "edge")
        here, above, below = means[1:-1, 1:-1], means[:-2, 1:-1], means[2:, 1:-1]
        before, behind = means[1:-1, :-2], means[1:-1, 2:]
        if self.shown == "gradient":
            return GRADIENT_GAIN * np.hypot((below - above) / (2 * rows), (behind - before) / (2 * cols))
        if self.shown == "laplacian":
            bend = (above - 2 * here + below) / rows**2 + (before - 2 * here + behind) / cols**2
            return 0.5 + LAPLACIAN_GAIN * bend
        return here
