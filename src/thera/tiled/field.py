"""`TiledField`: the heat field of a picture of any size, encoded in tiles as it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import pairwise
from threading import Lock
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from thera.field import Filter, HeatField
from thera.field.ensemble import mean
from thera.field.grid import Axis, Box, cells_below, window_around
from thera.field.needed import cells_needed, cells_needed_at, reach
from thera.field.points import principal_axes
from thera.field.psf import to_numpy
from thera.field.threads import map_blocks
from thera.models import Model
from thera.models.beside import side_by_side
from thera.tiled.options import Options
from thera.tiled.plan import BAND_MEMORY, RENDER_MEMORY, Plan, tile_side, with_halo
from thera.tiled.source import Source
from thera.values.alpha import uniform

#: The share of the memory for encoding tiles; the rest holds their fields.
ENCODING_SHARE = 0.6
#: The share of the time that encoding takes, about.
ENCODING_TIME = 0.8
#: Bytes of features that one thread copies at once.
COPIED = 4 << 20
#: The smallest side of a tile, however little memory there is.
LEAST_SIDE = 32


class Croppable(Protocol):
    """A heat field, or a cached form of one."""

    def crop(self, rows: slice, cols: slice) -> HeatField: ...


class Tiles(Protocol):
    """A cache of encoded tiles, which are the squares of a fixed grid."""

    def get(self, tile: Box, encode: Callable[[], list[HeatField]]) -> Sequence[Croppable]:
        """The fields of a tile, one per rotation: from the cache, or made by `encode`."""


class Strip(NamedTuple):
    """Some output rows over the full width: their positions, and h×w×3 values."""

    rows: Axis
    cols: Axis
    values: NDArray[np.float32]


class TiledField:
    """The heat field of a picture of any size. Tiles are encoded where the field is read, never all at once.

    `side`: the side of the square tiles in cells; by default as large as the memory allows.
    `tiles`: caches encoded tiles between calls. Without it, only the needed cells are encoded, for one call.

    Methods call `report` after every encoded tile. It may raise an exception to stop.

    >>> import thera
    >>> from thera.tiled import ArraySource
    >>> field = TiledField(thera.load("edsr-air"), ArraySource(np.zeros((20, 30, 3), np.float32)))
    >>> field.render(Axis.whole(20, 50), Axis.whole(30, 75)).shape
    (50, 75, 3)
    """

    def __init__(
        self,
        model: Model,
        source: Source,
        options: Options | None = None,
        *,
        side: int | None = None,
        tiles: Tiles | None = None,
    ) -> None:
        self.model, self.source, self.options = model, source, options or Options()
        self._side, self._tiles = side, tiles
        self._reading = Lock()
        self._seen = source  # with hidden pixels filled in as far as the filter reaches

    @cached_property
    def side(self) -> int:
        if self._side is not None:
            return self._side
        least = -(-LEAST_SIDE // self.model.info.alignment) * self.model.info.alignment
        return max(least, tile_side(self.model.info, ENCODING_SHARE * self.options.limit))

    # ---- reading

    def render(
        self,
        rows: Axis,
        cols: Axis,
        derivative: tuple[int, int] = (0, 0),
        report: Callable[[], object] = lambda: None,
    ) -> NDArray[np.float32]:
        """The output pixels of two axes, h×w×3. The axes may be any part of an output."""
        if derivative == (0, 0) and self.is_identity(rows, cols):
            return self._own_pixels(rows, cols)
        filters, box = self._filters((rows.step, cols.step)), self.needed(rows, cols)
        fields = self.fields(box, report)
        values = _rendered(fields, filters, rows.since(box[0]), cols.since(box[1]), derivative)
        return values if derivative != (0, 0) else self._on_axes(values, (rows, cols), filters[0])

    def sample(
        self,
        points: NDArray[np.float64],
        jacobian: NDArray[np.float64],
        report: Callable[[], object] = lambda: None,
    ) -> NDArray[np.float32]:
        """The field at points (N, 2) within the picture, N ≥ 1: (N, 3).

        `jacobian`, (2, 2) or (N, 2, 2), holds the sides of the output pixels as columns.
        """
        largest = principal_axes(jacobian)[1].reshape(-1, 2).max(axis=0)
        filters, box = self._filters(_sides(jacobian), list(largest)), self.needed_at(points, jacobian)
        inside = points - box[:2]
        values = mean(
            to_numpy(field.sample(inside, psf, jacobian=jacobian, memory=RENDER_MEMORY))
            for field, psf in zip(self.fields(box, report), filters, strict=True)
        )
        cells = np.minimum(
            np.floor(points).astype(np.int64), np.array(self.source.shape) - 1
        )  # the last edge
        return self._with_flats(values, list(cells.T), [largest.max()] * 2, filters[0])

    def rows(
        self,
        plan: Plan,
        progress: Callable[[float], object] = lambda pixels: None,
        grid: tuple[Axis, Axis] | None = None,
    ) -> Iterator[Strip]:
        """The output of a plan from the top down, some rows at a time.

        `progress` is called with the number of output pixels just done. It may raise an exception to stop.
        `grid`: rows and columns of the output within the plan's cells; by default all of them.
        """
        down, cols = grid or plan.grid
        filters = self._filters((down.step, cols.step))
        for low, high in pairwise(plan.rows):
            strip = down[down.within(low, high)]
            area = len(strip) * len(cols)
            if not area:
                continue
            if self.is_identity(strip, cols):
                yield Strip(strip, cols, self._own_pixels(strip, cols))
                progress(area)
                continue
            top, left, bottom, right = cells_needed(
                strip, cols, self.source.shape, filters[0], self.model.info.kappa
            )
            cuts = (left, *(cut for cut in plan.cols if left < cut < right), right)
            report = partial(progress, ENCODING_TIME * area / (len(cuts) - 1))
            fields = self._encoded((top, bottom), cuts, report, plan.workers)
            for part in _bands(strip, max(1, BAND_MEMORY // (12 * len(cols)))):
                values = _rendered(fields, filters, part.since(top), cols.since(left))
                yield Strip(part, cols, self._on_axes(values, (part, cols), filters[0]))
                progress((1 - ENCODING_TIME) * len(part) * len(cols))
            del fields  # frees their memory before the next strip is encoded

    def _on_axes(
        self, values: NDArray[np.float32], axes: tuple[Axis, Axis], psf: Filter
    ) -> NDArray[np.float32]:
        """The values of output pixels of two axes, with flat colours as they are."""
        rows, cols = axes
        return self._with_flats(values, [rows.cell[:, None], cols.cell], [rows.step, cols.step], psf)

    def _with_flats(
        self,
        values: NDArray[np.float32],
        cells: Sequence[NDArray[np.int64]],
        steps: Sequence[float],
        psf: Filter,
    ) -> NDArray[np.float32]:
        """Restores flat colours: where the filter sees only equal cells, 3×3 or more, a value becomes theirs.

        `cells`: the row and the column of each value's cell. `values` is changed in place. Networks pad with
        zeros, so flat saturated colours would be up to 7 levels off at the borders.
        """
        # Removing noise and blocks changes flat colours.
        if not self.source.keeps_flat or self.model.info.restores or not values.size:
            return values
        down, along = (max(1, reach(psf, [step], self.model.info.kappa)) for step in steps)
        box = window_around(cells, (down, along), self.source.shape)
        seen = self._seen.cells(box)
        flat = uniform(seen, (down, along))
        if not flat.any():
            return values
        place = np.broadcast_arrays(*(cell - start for cell, start in zip(cells, box[:2], strict=True)))
        at = np.nonzero(flat[tuple(place)])  # few pixels of a photograph
        values[at] = seen[tuple(index[at] for index in place)]
        return values

    def is_identity(self, rows: Axis, cols: Axis) -> bool:
        """True if the output pixels are the picture's own: at scale 1, unless a filter is asked for or the
        model restores pictures."""
        own = all(axis.step == 1 and not axis.offset.any() for axis in (rows, cols))
        return own and self.options.psf is None and not self.model.info.restores

    def _own_pixels(self, rows: Axis, cols: Axis) -> NDArray[np.float32]:
        return self.source.cells(cells_below(rows, cols))

    def needed(self, rows: Axis, cols: Axis) -> Box:
        """The cells that the output pixels of two axes need."""
        psf = self.options.filters(self.model, (rows.step, cols.step))[0]
        return cells_needed(rows, cols, self.source.shape, psf, self.model.info.kappa)

    def needed_at(self, points: NDArray[np.float64], jacobian: NDArray[np.float64]) -> Box:
        """The cells that the points of `sample` need."""
        psf = self.options.filters(self.model, _sides(jacobian))[0]
        return cells_needed_at(points, jacobian, self.source.shape, psf, self.model.info.kappa)

    def _filters(self, sides: Sequence[float], largest: Sequence[float] | None = None) -> list[Filter]:
        """The filter of each rotation, for output pixels with these sides in input pixels.

        From now on, hidden pixels are filled in as far as these filters reach. `largest`: the sides of the
        largest output pixel.
        """
        filters = self.options.filters(self.model, sides)
        self._seen = self.source.reaching(reach(filters[0], largest or sides, self.model.info.kappa))
        return filters

    # ---- encoding

    def fields(self, box: Box, report: Callable[[], object] = lambda: None) -> list[HeatField]:
        """The fields of the cells of a box, one per rotation."""
        top, left, bottom, right = box
        return self._encoded(self._cuts(top, bottom), self._cuts(left, right), report)

    def parts(self, box: Box) -> list[Box]:
        """The boxes that `fields` encodes one after the other for a box of cells."""
        top, left, bottom, right = box
        return [
            (t, le, b, r)
            for t, b in pairwise(self._cuts(top, bottom))
            for le, r in pairwise(self._cuts(left, right))
        ]

    def tiles(self, box: Box) -> list[Box]:
        """The tiles of the fixed grid that cover a box of cells."""
        top, left, bottom, right = box
        H, W = self.source.shape
        side = self.side
        return [
            (t, le, min(t + side, H), min(le + side, W))
            for t in range(top // side * side, bottom, side)
            for le in range(left // side * side, right, side)
        ]

    def encode(self, tile: Box) -> list[HeatField]:
        """The fields of a tile, one per rotation, encoded with their halo."""
        return list(self._rotations(self.model, tile))

    def _rotations(self, model: Model, tile: Box) -> Iterator[HeatField]:
        top, left, bottom, right = tile
        H, W = self.source.shape
        above, below = with_halo(top, bottom, H, self.model.info)
        before, behind = with_halo(left, right, W, self.model.info)
        with self._reading:  # files and caches behind a source may be for one thread at a time
            image = self._seen.cells((above, before, below, behind))
        rows, cols = slice(top - above, bottom - above), slice(left - before, right - before)
        if not self.options.ensemble:
            with self.options.lock:
                field = model.encode(image)
            yield field.crop(rows, cols)
            return
        turned = model.encode_rotations(image)
        for _ in range(self.options.rotations):
            with self.options.lock:
                field = next(turned)
            yield field.crop(rows, cols)
            del field  # frees its memory before the next rotation is encoded

    def _cuts(self, low: int, high: int) -> tuple[int, ...]:
        """Cuts [low, high) into tiles: on the fixed grid if tiles are cached, else into equal parts."""
        if self._tiles is not None:
            return (low, *range(low // self.side * self.side + self.side, high, self.side), high)
        align = self.model.info.alignment
        count = -(-(high - low) // self.side)
        inner = (round((low + (high - low) * k / count) / align) * align for k in range(1, count))
        return tuple(dict.fromkeys((low, *inner, high)))

    def _encoded(
        self, rows: Sequence[int], cols: Sequence[int], report: Callable[[], object], workers: int = 1
    ) -> list[HeatField]:
        """The fields from the first to the last cut, one per rotation, encoded in tiles between the cuts."""
        shape = rows[-1] - rows[0], cols[-1] - cols[0]
        tiles = [(t, le, b, r) for t, b in pairwise(rows) for le, r in pairwise(cols)]
        whole: list[HeatField] = []
        making = Lock()
        model = self.model.beside(workers)

        def encode(tile: Box) -> None:
            top, left, bottom, right = tile
            parts = self._rotations(model, tile) if self._tiles is None else self._kept(self._tiles, tile)
            for turn, part in enumerate(parts):
                with making:
                    if turn == len(whole):
                        whole.append(part if part.shape == shape else part.blank(shape))
                if part is not whole[turn]:
                    place = slice(top - rows[0], bottom - rows[0]), slice(left - cols[0], right - cols[0])
                    _copy(part, whole[turn].crop(*place))
                del part  # frees its memory before the next tile is encoded

        if workers > 1:
            side_by_side(encode, tiles, workers, report)
        else:
            for tile in tiles:
                encode(tile)
                report()
        return whole

    def _kept(self, tiles: Tiles, part: Box) -> Iterator[HeatField]:
        """The fields of a part of a tile, one per rotation, from the cache or encoded now."""
        (tile,) = self.tiles(part)
        rows, cols = (
            slice(low - start, high - start)
            for low, high, start in zip(part[:2], part[2:], tile[:2], strict=True)
        )
        for field in tiles.get(tile, lambda: self.encode(tile)):
            yield field.crop(rows, cols)


def _copy(part: HeatField, place: HeatField) -> None:
    """Copies the values of a field into another of its shape. All cores do it, if there are many values."""
    height = part.shape[0]
    count = max(1, COPIED * height // part.features.nbytes)  # rows at once

    def copy(low: int) -> None:
        rows = slice(low, low + count)
        place.pixels[rows] = part.pixels[rows]
        place.features[rows] = part.features[rows]

    map_blocks(part.pixels, copy, range(0, height, count))


def _rendered(
    fields: Sequence[HeatField],
    filters: Sequence[Filter],
    rows: Axis,
    cols: Axis,
    derivative: tuple[int, int] = (0, 0),
) -> NDArray[np.float32]:
    """The mean over the renderings of all rotations."""
    return mean(
        to_numpy(field.on_axes(rows, cols, psf, derivative, RENDER_MEMORY))
        for field, psf in zip(fields, filters, strict=True)
    )


def _sides(jacobian: NDArray[np.float64]) -> Sequence[float]:
    """The lengths of the sides of the first output pixel."""
    return list(np.linalg.norm(jacobian, axis=-2).reshape(-1, 2)[0])


def _bands(rows: Axis, count: int) -> Iterator[Axis]:
    """Cuts rows into bands of at most `count`, if possible between cells, so that none is computed twice."""
    start, cells = 0, rows.cell
    while start < len(rows):
        stop = min(start + count, len(rows))
        if stop < len(rows) and cells[stop] > cells[start]:
            stop = max(start + 1, int(np.searchsorted(cells, cells[stop])))
        yield rows[start:stop]
        start = stop
