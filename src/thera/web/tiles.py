"""Tiles for a page that does not draw the field itself: without WebGL2, or of more waves than it can sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from thera.errors import InvalidInput
from thera.field import Filter
from thera.field.grid import Axis, axes
from thera.field.psf import FilterName, page_filter
from thera.tiled import TiledField
from thera.values.planes import Plane
from thera.web.gallery import MOST_CELLS, Entry, Gallery
from thera.web.pixels import as_png, eight_bits

#: What derivatives are multiplied by to be seen, as in the viewer's painter.js.
GRADIENT_GAIN, LAPLACIAN_GAIN = 1.0, 0.06
#: Output pixels of one tile, and how much larger it may be than what it shows.
MOST_TILE, MOST_SCALE = 1 << 20, 256
#: Cells that a tile is rendered from at a time.
BAND_CELLS = 1 << 18

Shown = Literal["picture", "gradient", "laplacian"]
#: What is seen where a picture is transparent: white, or no change.
PAPER: dict[Shown, float] = {"picture": 1.0, "gradient": 0.0, "laplacian": 0.5}


class TileQuery(BaseModel):
    """A tile as an address asks for it."""

    model: str
    x: float
    y: float
    w: float
    h: float
    width: int
    height: int
    filter: FilterName = "gaussian"
    sharpness: float = 1.0
    shown: Shown = "picture"

    def of(self, shape: tuple[int, int]) -> TileRequest:
        """This tile of a picture of `shape`, its edges held to the picture's against rounding."""
        region = self.y, self.x, self.y + self.h, self.x + self.w
        edges = (min(max(edge, 0.0), n) for edge, n in zip(region, (*shape, *shape), strict=True))
        top, left, bottom, right = edges
        if not (math.isfinite(sum(region)) and top < bottom and left < right):
            raise InvalidInput(f"The region {region} is no part of a picture of {shape[0]}×{shape[1]}.")
        if min(self.height, self.width) < 1 or self.height * self.width > MOST_TILE:
            raise InvalidInput(
                f"A tile of {self.width}×{self.height} is not made: ask for at most {MOST_TILE} pixels."
            )
        if max(self.height / (bottom - top), self.width / (right - left)) > MOST_SCALE:
            raise InvalidInput(f"Tiles are made at scales up to {MOST_SCALE}: ask for a larger region.")
        psf = page_filter(self.filter, self.sharpness)
        return TileRequest((top, left, bottom, right), (self.height, self.width), psf, self.shown)


@dataclass(frozen=True)
class TileRequest:
    """`size` = (height, width) pixels of the `region` (top, left, bottom, right) of a picture."""

    region: tuple[float, float, float, float]
    size: tuple[int, int]
    psf: Filter | None
    shown: Shown = "picture"

    def png(self, gallery: Gallery, entry: Entry, model: str) -> bytes:
        """The tile as a file. Where it would take too many cells, it shows means of the pixels."""
        (_, colours), *alpha = gallery.fields(entry, model, self.psf)
        rows, cols = axes(entry.shape, None, self.size, self.region)
        top, left, bottom, right = colours.needed(rows, cols)
        cells = (bottom - top) * (right - left)
        if cells > MOST_CELLS:
            return as_png(eight_bits(self._means(entry)))
        # In bands, to hold few cells; all derivatives of a band at once, to encode none twice.
        count = math.ceil(len(rows) / math.ceil(cells / BAND_CELLS))
        bands = []
        for band in (rows[i : i + count] for i in range(0, len(rows), count)):
            opacity: NDArray | float | None = entry.shown.opacity
            if opacity is None:
                opacity = _opacity(*alpha[0], band, cols)
            # Colours are put on white after they are scaled, as in a file without transparency.
            paper = PAPER[self.shown]
            bands.append(paper + opacity * (np.clip(self._band(colours, band, cols), 0, 1) - paper))
        return as_png(eight_bits(np.concatenate(bands)))

    def _band(self, field: TiledField, rows: Axis, cols: Axis) -> NDArray:
        if self.shown == "gradient":
            slopes = (field.render(rows, cols, order) for order in ((1, 0), (0, 1)))
            return GRADIENT_GAIN * np.hypot(*slopes)
        if self.shown == "laplacian":
            down, along = (field.render(rows, cols, order) for order in ((2, 0), (0, 2)))
            return 0.5 + LAPLACIAN_GAIN * (down + along)
        return field.render(rows, cols)

    def _means(self, entry: Entry) -> NDArray:
        """Means of the pixels, or their differences."""
        (top, left, bottom, right), (h, w) = self.region, self.size
        rows, cols = (bottom - top) / h, (right - left) / w
        # One mean more on every side, so that differences go on from tile to tile; at borders the last again.
        spans = (top, bottom, rows, entry.shape[0]), (left, right, cols, entry.shape[1])
        more = [(int(low >= step), int(n - high >= step)) for low, high, step, n in spans]
        (above, below), (before, behind) = more
        region = top - above * rows, left - before * cols, bottom + below * rows, right + behind * cols
        means = entry.shown.means(region, (h + above + below, w + before + behind)) / 255
        means = np.pad(means, [*((1 - a, 1 - b) for a, b in more), (0, 0)], "edge")
        if self.shown == "gradient":
            return GRADIENT_GAIN * np.hypot(*np.gradient(means, rows, cols, axis=(0, 1)))[1:-1, 1:-1]
        if self.shown == "laplacian":
            down, along = np.diff(means, 2, axis=0)[:, 1:-1], np.diff(means, 2, axis=1)[1:-1]
            return 0.5 + LAPLACIAN_GAIN * (down / rows**2 + along / cols**2)
        return means[1:-1, 1:-1]


def _opacity(plane: Plane, field: TiledField, rows: Axis, cols: Axis) -> NDArray:
    """The alpha of output pixels, from 0 to 1, h×w×1."""
    samples = np.empty((len(rows), len(cols), plane.group.bands[-1] + 1), np.uint8)
    plane.put(field.render(rows, cols), rows, cols, samples)
    return samples[..., -1:] / np.float32(255)
