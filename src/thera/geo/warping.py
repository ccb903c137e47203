"""A picture seen through a mapping, box by box, each read from the field of the window that it looks at."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.field import Filter, Lanczos
from thera.field.grid import Box
from thera.field.points import principal_axes
from thera.field.psf import to_numpy
from thera.field.wide import SHEET_SAMPLES
from thera.imaging.tiling import Source, encode_cells, encoder_bytes, field_bytes, process_bytes
from thera.memory import default_memory, human_bytes
from thera.models import Model
from thera.values.alpha import ROUNDING, AlphaLimits

from .frames import TILE
from .mappings import Mapping

#: What a warp is read through unless told otherwise: the least aliasing for the most detail.
LANCZOS = Lanczos()
#: A side of the boxes that a warp is made of, where the memory allows.
FRAME = 2 * TILE
#: Bytes that sampling works in, and bytes of each output pixel of a box: its place, its Jacobian, its values.
SAMPLE_MEMORY, PIXEL_BYTES = 64 << 20, 160
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
    footprint: float  # the widest of the pixels, in input pixels
    window: Box  # the cells of the input that they read; empty if none is seen

    def part_of(self, box: Box) -> tuple[slice, slice]:
        """Where it lies in a box of which it is a part."""
        top, left, bottom, right = self.box
        return slice(top - box[0], bottom - box[0]), slice(left - box[1], right - box[1])


@dataclass(frozen=True)
class Warp:
    """How a picture of `shape` is seen through a mapping. `held`: bytes that input and output take."""

    model: Model
    shape: tuple[int, int]
    mapping: Mapping
    psf: Filter = LANCZOS
    ensemble: bool = False
    memory: int | None = None
    held: int = 0

    def __post_init__(self) -> None:
        if self.tile < LEAST_TILE:
            least = self._fixed + (LEAST_TILE + self._around) ** 2 * encoder_bytes(self.model.info) / ENCODING
            raise InvalidInput(
                f"The warp needs at least {human_bytes(least)} of memory and may take"
                f" {human_bytes(self.limit)}: allow more with --memory (memory=)."
            )

    @property
    def limit(self) -> int:
        """Bytes that all of it may take."""
        return default_memory() if self.memory is None else self.memory

    @property
    def _fixed(self) -> int:
        return process_bytes(self.model.info) + self.held + SAMPLE_MEMORY + PIXEL_BYTES * FRAME**2

    @property
    def _around(self) -> int:
        """What a tile is longer by when it is encoded."""
        return 2 * self.model.info.halo + self.model.info.alignment

    @property
    def tile(self) -> int:
        """The side of the tiles that are encoded at once, in cells."""
        pixels = max(0.0, ENCODING * (self.limit - self._fixed)) / encoder_bytes(self.model.info)
        alignment = self.model.info.alignment
        return int(math.sqrt(pixels) - self._around) // alignment * alignment

    @property
    def most_cells(self) -> int:
        """The cells of the largest field there is room for."""
        room = (1 - ENCODING) * (self.limit - self._fixed)
        return int(room / (field_bytes(self.model.info) * (4 if self.ensemble else 1)))

    def looks(self, box: Box) -> Iterator[Look]:
        """A box, in as many parts as there must be for the cells each reads to fit in memory."""
        yield from self._split(box, *self.mapping(box))

    def _split(self, box: Box, points: NDArray[np.float64], jacobian: NDArray[np.float64]) -> Iterator[Look]:
        look = self._look(box, points, jacobian)
        top, left, bottom, right = look.window
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
            inside = (box[0] + down.start, box[1] + along.start, box[0] + down.stop, box[1] + along.stop)
            steps = jacobian if jacobian.ndim == 2 else jacobian[down, along]
            yield from self._split(inside, points[down, along], steps)

    def _look(self, box: Box, points: NDArray[np.float64], jacobian: NDArray[np.float64]) -> Look:
        inside = (points >= 0) & (points <= np.array(self.shape))  # which no NaN is
        seen: NDArray[np.bool_] = np.all(inside, axis=-1) & np.isfinite(jacobian).all(axis=(-2, -1))
        if not seen.any():
            return Look(box, points, jacobian, seen, 0.0, (0, 0, 0, 0))
        psf = self.psf
        steps = jacobian if jacobian.ndim == 2 else jacobian[seen]
        _, sizes = principal_axes(steps * (psf.footprint or 1.0))
        longest, shortest = (float(sizes[..., i].max()) for i in (0, 1))
        reach, aligned = int(psf.finest > 0), 1  # about a border both of its cells are read
        if psf.footprint is not None and longest > 1:
            # A footprint is averaged over samples that may themselves be averages: two Gaussians' radii.
            reach = math.ceil(math.sqrt(2) * psf.radius(longest, 0.0, self.model.info.kappa)) + 3
            # Samples of large footprints lie on a grid of powers of two, the same in every window.
            aligned = 2 ** max(0, math.floor(math.log2(max(1.0, shortest) / SHEET_SAMPLES)))
        low = np.floor(points[seen].min(axis=0)).astype(int) - reach
        high = np.ceil(points[seen].max(axis=0)).astype(int) + reach + 1
        top, left = (max(0, int(n)) // aligned * aligned for n in low)
        bottom, right = (
            min(n, -(-int(end) // aligned) * aligned) for n, end in zip(self.shape, high, strict=True)
        )
        window = (min(top, bottom - 1), min(left, right - 1), bottom, right)
        return Look(box, points, jacobian, seen, longest, window)

    def values(self, look: Look, source: Source) -> NDArray[np.float32]:
        """The pixels of a box, h×w×3; 0 where nothing is seen."""
        values = np.zeros((*look.seen.shape, 3), np.float32)
        if not look.seen.any():
            return values
        top, left, bottom, right = look.window
        rows, cols = _cuts(top, bottom, self.tile), _cuts(left, right, self.tile)
        fields = encode_cells(self.model, source, self.shape, rows, cols, self.ensemble)
        points = look.points[look.seen] - (top, left)
        jacobian = look.jacobian if look.jacobian.ndim == 2 else look.jacobian[look.seen]
        for field in fields:
            sampled = field.sample(points, self.psf, jacobian=jacobian, memory=SAMPLE_MEMORY)
            values[look.seen] += to_numpy(sampled)
        return values if len(fields) == 1 else np.multiply(values, np.float32(1 / len(fields)), out=values)


def confine(values: NDArray[np.float32], alpha: NDArray, look: Look) -> None:
    """Keeps a warped alpha between the lowest and highest around it, which `alpha`, the window's, tells."""
    size = [n / max(look.footprint, ROUNDING) for n in alpha.shape]
    low, high = AlphaLimits(alpha, size).near(look.points[look.seen] - look.window[:2])
    values[look.seen] = np.clip(values[look.seen], low[:, None], high[:, None])


def _cuts(low: int, high: int, step: int) -> tuple[int, ...]:
    """Where to cut [low, high) into about equal parts of at most `step`."""
    parts = -(-(high - low) // step)
    return tuple(low + (high - low) * i // parts for i in range(parts + 1))


def _halves(rows: int, cols: int) -> Iterator[tuple[slice, slice]]:
    """A box in two, across its longer side."""
    if rows >= cols:
        middle = rows // 2
        yield slice(0, middle), slice(0, cols)
        yield slice(middle, rows), slice(0, cols)
    else:
        for half in _halves(cols, rows):
            yield half[1], half[0]
