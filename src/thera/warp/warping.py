"""A picture seen through a mapping, box by box, each read from the field of the window that it looks at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from thera.tiled.plan import RENDER_MEMORY, field_bytes, process_bytes, tile_memory
from thera.values.planes import Plane

from .mappings import Mapping

#: What a warp is read through unless told otherwise: the least aliasing for the most detail.
LANCZOS = Lanczos()
#: A side of the boxes that a warp is made of, where the memory allows.
FRAME = 1024
#: Bytes of each output pixel of a box: its place, its Jacobian, its values.
PIXEL_BYTES = 160
#: The share of the memory that tiles are encoded in; the rest holds the fields they become.
ENCODING = 0.6
#: The least side of a tile that is encoded with its halo.
LEAST_TILE = 32


class Look(NamedTuple):
    """A box of output pixels, and what they look at."""

    box: Box
    points: NDArray[np.float64]  # h×w×2, (row, column) in the input
    jacobian: NDArray[np.float64]  # 2×2 or h×w×2×2
    seen: NDArray[np.bool_]  # h×w, which of the points lie in the input

    def part_of(self, box: Box) -> tuple[slice, slice]:
        """Where it lies in a box of which it is a part."""
        top, left, bottom, right = self.box
        return slice(top - box[0], bottom - box[0]), slice(left - box[1], right - box[1])

    @property
    def steps(self) -> NDArray[np.float64]:
        """The Jacobians of what is seen: 2×2, or N×2×2."""
        return self.jacobian if self.jacobian.ndim == 2 else self.jacobian[self.seen]


@dataclass(frozen=True)
class Warp:
    """How a picture of `shape` is seen through a mapping. `held`: bytes that input and output take."""

    model: Model
    shape: tuple[int, int]
    mapping: Mapping
    options: Options
    held: int = 0

    def __post_init__(self) -> None:
        if self.side < LEAST_TILE:
            least = self._fixed + tile_memory(self.model.info, LEAST_TILE) / ENCODING
            raise InvalidInput(
                f"The warp needs at least {human_bytes(least)} of memory and may take"
                f" {human_bytes(self.options.limit)}: allow more with --memory (memory=)."
            )

    @property
    def psf(self) -> Filter:
        return self.options.psf or LANCZOS

    @property
    def _fixed(self) -> int:
        return process_bytes(self.model.info) + self.held + RENDER_MEMORY + PIXEL_BYTES * FRAME**2

    @property
    def side(self) -> int:
        """The side of the tiles that are encoded at once, in cells."""
        return tile_side(self.model.info, ENCODING * (self.options.limit - self._fixed))

    @property
    def most_cells(self) -> int:
        """The cells of the largest field there is room for."""
        room = (1 - ENCODING) * (self.options.limit - self._fixed)
        return int(room / (field_bytes(self.model.info) * self.options.rotations))

    def looks(self, box: Box) -> Iterator[Look]:
        """A box, in as many parts as there must be for the cells each reads to fit in memory."""
        yield from self._split(box, *self.mapping(box))

    def _split(self, box: Box, points: NDArray[np.float64], jacobian: NDArray[np.float64]) -> Iterator[Look]:
        inside = (points >= 0) & (points <= np.array(self.shape))  # which no NaN is
        seen: NDArray[np.bool_] = np.all(inside, axis=-1) & np.isfinite(jacobian).all(axis=(-2, -1))
        look = Look(box, points, jacobian, seen)
        top, left, bottom, right = self._window(look)
        if (bottom - top) * (right - left) <= self.most_cells:
            yield look
            return
        rows, cols = points.shape[:2]
        if rows == cols == 1:
            raise InvalidInput(
                f"One pixel of this warp covers {right - left}×{bottom - top} of the input, more than the"
                " memory holds: allow more with --memory (memory=), or leave out what lies near its horizon."
            )
        for down, along in _halves(rows, cols):
            part = (box[0] + down.start, box[1] + along.start, box[0] + down.stop, box[1] + along.stop)
            steps = jacobian if jacobian.ndim == 2 else jacobian[down, along]
            yield from self._split(part, points[down, along], steps)

    def _window(self, look: Look) -> Box:
        """The cells that a look reads."""
        if not look.seen.any():
            return 0, 0, 0, 0
        return cells_needed_at(
            look.points[look.seen], look.steps, self.shape, self.psf, self.model.info.kappa
        )

    def put(self, look: Look, planes: Sequence[Plane], out: NDArray) -> None:
        """Stores what a look sees of some planes in their bands of `out`, h×w×bands samples."""
        if not look.seen.any():
            return
        options = Options(self.psf, self.options.ensemble, self.options.memory)
        points, samples = look.points[look.seen], out[look.seen]
        footprint = float(principal_axes(look.steps * (self.psf.footprint or 1.0))[1][..., 0].max())
        for plane in planes:
            values = TiledField(self.model, plane, options, side=self.side).sample(points, look.steps)
            plane.put_at(values, points, footprint, samples)
        out[look.seen] = samples


def _halves(rows: int, cols: int) -> Iterator[tuple[slice, slice]]:
    """A box in two, across its longer side."""
    if rows >= cols:
        middle = rows // 2
        yield slice(0, middle), slice(0, cols)
        yield slice(middle, rows), slice(0, cols)
    else:
        for half in _halves(cols, rows):
            yield half[1], half[0]
