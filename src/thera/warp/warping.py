"""Warps a picture box by box, each from the field of the window that it needs."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.field import Filter, Lanczos
from thera.field.grid import Box
from thera.field.needed import cells_needed_at
from thera.field.points import principal_axes
from thera.memory import human_bytes
from thera.models import Model
from thera.tiled import Options, TiledField, tile_side
from thera.tiled.field import ENCODING_SHARE, LEAST_SIDE
from thera.tiled.plan import RENDER_MEMORY, costs, frames, tile_memory
from thera.values.bands import Bands
from thera.values.planes import Plane, planes_of
from thera.values.ranges import Range
from thera.values.samples import Samples, valid_below

from .mappings import Mapping, Projective

#: The default filter: the most detail with the least aliasing.
LANCZOS = Lanczos()
#: The side of the boxes that a warp is computed in, if the memory allows.
FRAME = 1024
#: Bytes per output pixel of a box: its point, its Jacobian, its values.
PIXEL_BYTES = 160
#: The time of an output pixel outside the input, as a share of a sampled one's.
OUTSIDE = 0.05


class Piece(NamedTuple):
    """A box of output pixels, and their points in the input."""

    box: Box
    points: NDArray[np.float64]  # h×w×2, (row, column) in the input
    jacobian: NDArray[np.float64]  # 2×2 or h×w×2×2
    inside: NDArray[np.bool_]  # h×w, which of the points lie in the input

    def part_of(self, box: Box) -> tuple[slice, slice]:
        """Its rows and columns within a larger box."""
        top, left, bottom, right = self.box
        return slice(top - box[0], bottom - box[0]), slice(left - box[1], right - box[1])

    @property
    def steps(self) -> NDArray[np.float64]:
        """The Jacobians of the points inside: 2×2, or N×2×2."""
        return self.jacobian if self.jacobian.ndim == 2 else self.jacobian[self.inside]


@dataclass(frozen=True)
class Warp:
    """The warp of a picture of `shape` by a mapping. `held`: bytes of input and output."""

    model: Model
    shape: tuple[int, int]
    mapping: Mapping
    options: Options
    held: int = 0

    def __post_init__(self) -> None:
        if self.side < LEAST_SIDE:
            least = self._fixed + tile_memory(self.model.info, LEAST_SIDE) / ENCODING_SHARE
            raise InvalidInput(
                f"The warp needs at least {human_bytes(least)} of memory, and"
                f" {human_bytes(self.options.limit)} are allowed",
                "allow more with --memory (memory=)",
            )

    @property
    def psf(self) -> Filter:
        return self.options.psf or LANCZOS

    @property
    def _fixed(self) -> int:
        info = self.model.info
        threads = info.threads * costs(info).thread
        return costs(info).process + threads + self.held + RENDER_MEMORY + PIXEL_BYTES * FRAME**2

    @property
    def side(self) -> int:
        """The side of the encoded tiles, in cells."""
        return tile_side(self.model.info, ENCODING_SHARE * (self.options.limit - self._fixed))

    @property
    def most_cells(self) -> int:
        """The number of cells of the largest field that fits in memory."""
        room = (1 - ENCODING_SHARE) * (self.options.limit - self._fixed)
        return int(room / (costs(self.model.info).cell * self.options.rotations))

    def check_sight(self, size: tuple[int, int]) -> None:
        """Refuses an output of `size` = (height, width) in which nothing of the input is seen."""
        for box in frames(size, FRAME):
            if self._piece(box).inside.any():
                return
        raise InvalidInput(
            "Nothing of the input lies in the output",
            "check --bounds and --to, or --camera, or the matrix and whether it needs --inverse",
        )

    def work(self, size: tuple[int, int]) -> tuple[float, float]:
        """About how many pixels of a plane an output of `size` = (height, width) encodes, halos included, and
        how many it samples; those outside count for little. Eight rows of each box are looked at."""
        encoded = sampled = 0.0
        outside = float(math.prod(size))
        for top, left, bottom, right in frames(size, FRAME):
            rows = [
                self._piece((row, left, row + 1, right))
                for row in sorted({*np.linspace(top, bottom - 1, 8).round().astype(int).tolist()})
            ]
            windows = np.array([self._window(row) for row in rows if row.inside.any()])
            if len(windows):
                sides = windows[:, 2:].max(axis=0) - windows[:, :2].min(axis=0) + 2 * self.model.info.halo
                encoded += float(np.minimum(sides, self.shape).prod())
                inside = (bottom - top) * (right - left) * float(np.mean([row.inside for row in rows]))
                sampled, outside = sampled + inside, outside - inside
        return self.options.rotations * encoded, self.options.rotations * sampled + OUTSIDE * outside

    def pieces(self, box: Box) -> Iterator[Piece]:
        """A box, split until the cells that each piece needs fit in memory."""
        yield from self._split(self._piece(box))

    def _piece(self, box: Box) -> Piece:
        if isinstance(self.mapping, Projective) and self.mapping.misses(box, self.shape):
            shape = box[2] - box[0], box[3] - box[1]
            nowhere = np.broadcast_to(np.nan, (*shape, 2))
            return Piece(box, nowhere, np.full((2, 2), np.nan), np.zeros(shape, bool))
        points, jacobian = self.mapping(box)
        within = (points >= 0) & (points <= np.array(self.shape))  # false for NaN
        inside: NDArray[np.bool_] = np.all(within, axis=-1) & np.isfinite(jacobian).all(axis=(-2, -1))
        return Piece(box, points, jacobian, inside)

    def _split(self, piece: Piece) -> Iterator[Piece]:
        top, left, bottom, right = self._window(piece)
        if (bottom - top) * (right - left) <= self.most_cells:
            yield piece
            return
        box, points, jacobian, inside = piece
        rows, cols = points.shape[:2]
        if rows == cols == 1:
            raise InvalidInput(
                f"One pixel of this warp covers {right - left}×{bottom - top} of the input, more than the"
                " memory holds",
                "allow more with --memory (memory=), or leave out what lies near its horizon",
            )
        for down, along in _halves(rows, cols):
            part = (box[0] + down.start, box[1] + along.start, box[0] + down.stop, box[1] + along.stop)
            steps = jacobian if jacobian.ndim == 2 else jacobian[down, along]
            yield from self._split(Piece(part, points[down, along], steps, inside[down, along]))

    def _window(self, piece: Piece) -> Box:
        """The cells that a piece needs."""
        if not piece.inside.any():
            return 0, 0, 0, 0
        return cells_needed_at(
            piece.points[piece.inside], piece.steps, self.shape, self.psf, self.model.info.kappa
        )

    def put(self, piece: Piece, planes: Sequence[Plane], out: NDArray) -> None:
        """Stores a piece of some planes in their bands of `out`, h×w×bands samples."""
        if not piece.inside.any():
            return
        options = replace(self.options, psf=self.psf)
        points, samples = piece.points[piece.inside], out[piece.inside]
        footprint = float(principal_axes(piece.steps * (self.psf.footprint or 1.0))[1][..., 0].max())
        for plane in planes:
            values = TiledField(self.model, plane, options, side=self.side).sample(points, piece.steps)
            plane.put_at(values, points, footprint, samples)
        out[piece.inside] = samples

    def warped(
        self,
        samples: Samples,
        bands: Bands,
        spans: Sequence[Range],
        box: Box,
        progress: Callable[[int], object] = lambda pixels: None,
    ) -> tuple[NDArray, NDArray[np.bool_]]:
        """The samples of a box of output pixels, h×w×bands, and which of them are valid."""
        shape = (box[2] - box[0], box[3] - box[1], bands.count)
        out, valid = np.zeros(shape, samples.dtype), np.zeros(shape, bool)
        planes = planes_of(samples, bands, spans, self.model.info.halo)
        for piece in self.pieces(box):
            if piece.inside.any():
                part = piece.part_of(box)
                valid[part] = _valid(samples, bands, piece)
                if bands.alpha is not None:
                    self.put(piece, [plane for plane in planes if plane.group.alpha], out[part])
                    valid[part] = bands.hide(valid[part], out[part])
                seen = [plane for plane in planes if valid[part][..., list(plane.group.bands)].any()]
                self.put(piece, [plane for plane in seen if not plane.group.alpha], out[part])
            progress(piece.inside.size)
        return out, valid


def _valid(samples: Samples, bands: Bands, piece: Piece) -> NDArray[np.bool_]:
    """Which samples of a piece are valid, h×w×bands, whatever an alpha shows."""
    cells = np.floor(piece.points[piece.inside]).astype(np.int64)
    cells = np.clip(cells, 0, np.array(samples.shape) - 1)
    (top, left), (bottom, right) = cells.min(axis=0), cells.max(axis=0) + 1
    valid = valid_below(samples, bands, (int(top), int(left), int(bottom), int(right)))
    found = np.zeros((*piece.inside.shape, bands.count), bool)
    found[piece.inside] = True if valid is None else valid[cells[:, 0] - top, cells[:, 1] - left]
    return found


def _halves(rows: int, cols: int) -> Iterator[tuple[slice, slice]]:
    """Two halves of a box, cut across its longer side."""
    if rows < cols:
        yield from (half[::-1] for half in _halves(cols, rows))
    else:
        yield slice(0, rows // 2), slice(0, cols)
        yield slice(rows // 2, rows), slice(0, cols)
