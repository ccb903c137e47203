"""Scaling in bounded memory: strips of the input, encoded tile by tile, rendered band by band.

A tile is encoded with the halo that the network's view needs, padded with zeros only where the image itself
ends, and rendered on the grid of the whole output. The result is therefore that of the whole image, to float
rounding, whatever the tiles.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.field import Filter, HeatField
from thera.field.grid import Axis
from thera.field.psf import to_numpy
from thera.field.render import bands as render_bands
from thera.models import Info, Model

from .sizing import human_bytes

#: Cells (top, left, bottom, right) of the input as H×W×3 floats in [0, 1].
Source = Callable[[int, int, int, int], NDArray[np.float32]]

#: Bytes that rendering works in, and bytes of one band of float32 output.
RENDER_MEMORY, BAND_MEMORY = 64 << 20, 24 << 20
#: The process itself, with a small model: Python, NumPy and ONNX Runtime, and what PyTorch adds to them.
PROCESS_MEMORY, TORCH_MEMORY = 200 << 20, 300 << 20
#: Peak bytes an encoder takes for each pixel it looks at: a backbone's and a variant's, as measured.
ENCODER_BYTES = {"edsr": 1400, "rdn": 11_000, "air": 0, "plus": 11_600, "pro": 10_600}
#: Channels of the features that a field keeps.
FEATURES = {"air": 64, "plus": 128, "pro": 64}
#: How much more than the best plan's work one may do that needs less memory, unless said otherwise.
GOOD_ENOUGH = 1.15


@dataclass(frozen=True)
class Plan:
    """How one image is scaled: where its rows are cut into strips and its columns into tiles.

    From the first cut to the last it is the whole image, or a part of it: the output pixels whose centres lie
    there.
    """

    source: tuple[int, int]
    size: tuple[int, int]
    rows: tuple[int, ...]
    cols: tuple[int, ...]
    halo: int
    alignment: int
    reach: int
    memory: int
    encoded: int

    @property
    def overlap(self) -> float:
        """How many pixels are encoded for each pixel of the input: what halos cost."""
        return self.encoded / ((self.rows[-1] - self.rows[0]) * (self.cols[-1] - self.cols[0]))

    @property
    def tiles(self) -> int:
        return (len(self.rows) - 1) * (len(self.cols) - 1)

    def with_halo(self, low: int, high: int, length: int) -> tuple[int, int]:
        """What must be encoded for the cells [low, high) of an axis of `length` to be exact."""
        return with_halo(low, high, length, self.halo, self.alignment)


def make_plan(
    info: Info,
    source: tuple[int, int],
    size: tuple[int, int],
    *,
    fields: int = 1,
    psf: Filter | None = None,
    memory: int,
    held: int,
    part: tuple[slice, slice] | None = None,
    good_enough: float = GOOD_ENOUGH,
) -> Plan:
    """The cheapest tiles within `memory` bytes.

    `held` counts what input and output take; the process itself comes on top.
    `fields`: how many are kept for each strip, one for each plane of colours and each rotation.
    `part`: the rows and columns of the input to scale, all of them unless given.
    `good_enough`: a plan that encodes this many times the pixels of the best one is taken if it is smaller.
    """
    down, along = part or (slice(0, source[0]), slice(0, source[1]))
    H, W = down.stop - down.start, along.stop - along.start
    reach = reach_of(psf, source, size, info.kappa)
    per_pixel, per_cell = encoder_bytes(info), field_bytes(info) * fields
    fixed = held + process_bytes(info) + RENDER_MEMORY + 3 * BAND_MEMORY

    def candidate(strips: int, columns: int) -> Plan:
        rows, cols = _cuts(down, strips, info.alignment), _cuts(along, columns, info.alignment)
        # With its halo a tile is at most this long, and all of them together at most that.
        around = 2 * (info.halo + reach)
        beside = 2 * info.halo if source[1] == W else around  # a part of the image looks beyond its sides too
        height, width = rows[1] - rows[0], cols[1] - cols[0]
        tall = min(source[0], height + around + info.alignment)
        wide = min(source[1], width + beside + info.alignment)
        all_tall = min(source[0], H + around) + around * (len(rows) - 2)
        all_wide = min(source[1], W + beside) + beside * (len(cols) - 2)
        strip = min(source[0], height + 2 * reach) * min(source[1], W + 2 * reach)
        need = fixed + tall * wide * per_pixel + strip * per_cell
        encoded = all_tall * all_wide
        return Plan(source, size, rows, cols, info.halo, info.alignment, reach, need, encoded)

    candidates = [
        candidate(strips, columns)
        for columns in _divisions(W, info.alignment)
        for strips in _divisions(H, info.alignment)
    ]
    possible = [plan for plan in candidates if plan.memory <= memory]
    if not possible:
        least = min(plan.memory for plan in candidates)
        raise InvalidInput(
            f"Scaling {W}×{H} to {size[1]}×{size[0]} needs at least {human_bytes(least)} of memory and may"
            f" take {human_bytes(memory)}: allow more with --memory (memory=), or write PNG or TIFF, which"
            " go to disk as they come."
        )
    best = min(plan.encoded for plan in possible)
    frugal = (plan for plan in possible if plan.encoded <= good_enough * best)
    return min(frugal, key=lambda plan: plan.memory)


def encoder_bytes(info: Info) -> int:
    """Peak bytes for each pixel that is encoded at once."""
    return ENCODER_BYTES[info.spec.backbone] + ENCODER_BYTES[info.spec.variant]


def field_bytes(info: Info) -> int:
    """Bytes of each cell of a field."""
    return 4 * (FEATURES[info.spec.variant] + 3)


def process_bytes(info: Info) -> int:
    """Bytes of the process before it does anything."""
    return PROCESS_MEMORY + (TORCH_MEMORY if info.engine == "torch" else 0)


def _divisions(length: int, alignment: int) -> list[int]:
    """Numbers of parts worth trying, ever farther apart: 1, 2, 3, … 8, 10, 12, …"""
    most = max(1, length // max(8, alignment))
    parts = [1]
    while parts[-1] < most:
        parts.append(min(most, max(parts[-1] + 1, int(parts[-1] * 1.2))))
    return parts


def _cuts(cells: slice, parts: int, alignment: int) -> tuple[int, ...]:
    """Where to cut `cells` into about equal parts, each a multiple of the alignment long."""
    step = math.ceil((cells.stop - cells.start) / parts / alignment) * alignment
    return (*range(cells.start, cells.stop, step), cells.stop)


def with_halo(low: int, high: int, length: int, halo: int, alignment: int) -> tuple[int, int]:
    """What must be encoded for the cells [low, high) of an axis of `length` to be exact.

    Both ends keep whole windows between them and the image's own ends, so that windows lie as they do in the
    whole image, also when the ensemble turns it.
    """
    start = max(0, low - halo) // alignment * alignment
    behind = max(0, length - high - halo) // alignment * alignment
    return start, length - behind


def _widened(low: int, high: int, by: int, length: int) -> tuple[int, int]:
    return max(0, low - by), min(length, high + by)


def reach_of(psf: Filter | None, source: tuple[int, int], size: tuple[int, int], kappa: float) -> int:
    """Cells beyond its own that an output pixel looks at: of an image that grows none, or the next."""
    if psf is None:
        return 0
    steps = [n / N for n, N in zip(source, size, strict=True)]
    widest = (psf.footprint or 0.0) * max(steps)
    if widest <= 1:
        return int(min(steps) < psf.finest)
    return math.ceil(psf.radius(widest, 0.0, kappa)) + 2


def scaled_rows(
    model: Model,
    sources: Sequence[Source],
    plan: Plan,
    *,
    ensemble: bool,
    psf: Filter | None,
    progress: Callable[[int], object] = lambda pixels: None,
) -> Iterator[tuple[Axis, Axis, list[NDArray[np.float32]]]]:
    """The output from the top down: (rows, columns, one n×W'×3 array for each source) after the other.

    `psf` None is the model's own. `progress` is called with numbers of output pixels done.
    """
    whole, cols = (Axis.whole(n, N) for n, N in zip(plan.source, plan.size, strict=True))
    cols = cols[output_pixels(cols, plan.cols[0], plan.cols[-1])]
    left, right = _widened(plan.cols[0], plan.cols[-1], plan.reach, plan.source[1])
    cuts = (left, *plan.cols[1:-1], right)
    across = Axis(cols.cell - left, cols.offset, cols.step)
    quarters = range(4) if ensemble else range(1)
    filters = [model.psf(plan.source, plan.size, q) if psf is None else psf for q in quarters]
    if not len(cols):
        return
    count = max(1, BAND_MEMORY // (12 * len(cols) * len(sources)))
    for low, high in pairwise(plan.rows):
        strip = whole[output_pixels(whole, low, high)]
        if not len(strip):
            continue
        top, bottom = _widened(low, high, plan.reach, plan.source[0])
        area = len(strip) * len(cols)
        report = _shares(progress, 0.8 * area, len(sources) * (len(plan.cols) - 1))
        fields = [
            encode_cells(model, source, plan.source, (top, bottom), cuts, ensemble, report)
            for source in sources
        ]
        for start, stop in _bands(strip.cell, count):
            rows = strip[start:stop]
            inside = Axis(rows.cell - top, rows.offset, rows.step)
            yield rows, cols, [_rendered(turns, filters, inside, across) for turns in fields]
            progress(round(area * stop / len(strip) * 0.2) - round(area * start / len(strip) * 0.2))
        del fields  # before the next strip takes as much


def output_pixels(axis: Axis, low: int, high: int) -> slice:
    """The output pixels of an axis whose centres lie in the cells [low, high)."""
    first, last = np.searchsorted(axis.cell, [low, high])
    return slice(int(first), int(last))


def _shares(progress: Callable[[int], object], total: float, parts: int) -> Callable[[], None]:
    """A function that reports one of `parts` equal shares of `total` at each call."""
    done = 0

    def report() -> None:
        nonlocal done
        done += 1
        progress(round(total * done / parts) - round(total * (done - 1) / parts))

    return report


def _bands(cells: NDArray[np.int64], count: int) -> Iterator[tuple[int, int]]:
    """Cuts rows into bands of at most `count`, between cells where it can, lest one be computed twice."""
    start = 0
    while start < len(cells):
        stop = min(start + count, len(cells))
        if stop < len(cells) and cells[stop] > cells[start]:
            stop = max(start + 1, int(np.searchsorted(cells, cells[stop])))
        yield start, stop
        start = stop


def encode_cells(
    model: Model,
    source: Source,
    shape: tuple[int, int],
    rows: Sequence[int],
    cols: Sequence[int],
    ensemble: bool = False,
    report: Callable[[], None] = lambda: None,
) -> list[HeatField]:
    """The fields of the cells rows[0] to rows[-1], cols[0] to cols[-1] of an image of `shape`: one, or one
    for each rotation.

    `rows` and `cols` say where to cut them into tiles. Each is encoded with its halo, and reported when done.
    """
    halo, alignment = model.info.halo, model.info.alignment
    parts: list[HeatField] = []
    for top, bottom in pairwise(rows):
        above, below = with_halo(top, bottom, shape[0], halo, alignment)
        for left, right in pairwise(cols):
            before, behind = with_halo(left, right, shape[1], halo, alignment)
            image = source(above, before, below, behind)
            turns = model.encode_rotations(image) if ensemble else iter([model.encode(image)])
            for turn, encoded in enumerate(turns):
                tile = encoded.crop(slice(top - above, bottom - above), slice(left - before, right - before))
                if turn == len(parts):
                    parts.append(_room_for(tile, (rows[-1] - rows[0], cols[-1] - cols[0])))
                if tile.shape != parts[turn].shape:
                    place = slice(top - rows[0], bottom - rows[0]), slice(left - cols[0], right - cols[0])
                    parts[turn].pixels[place] = tile.pixels
                    parts[turn].features[place] = tile.features
                del encoded, tile  # or the next tile is encoded beside this one
            report()
    return parts


def _room_for(tile: HeatField, shape: tuple[int, int]) -> HeatField:
    """A field of this many cells, of which the tile is the first part and the rest is to be filled in."""
    if tile.shape == shape:
        return tile
    empty = tile.namespace.empty
    return HeatField.of(
        tile.head,
        empty((*shape, 3), dtype=tile.pixels.dtype, device=tile.device),
        empty((*shape, tile.features.shape[2]), dtype=tile.features.dtype, device=tile.device),
    )


def _rendered(
    turns: Sequence[HeatField], filters: Sequence[Filter], rows: Axis, cols: Axis
) -> NDArray[np.float32]:
    """The mean of the renderings of all rotations."""
    total = np.zeros((len(rows), len(cols), 3), np.float32)
    for field, psf in zip(turns, filters, strict=True):
        for start, band in render_bands(field, rows, cols, psf, (0, 0), RENDER_MEMORY):
            total[start : start + band.shape[0]] += to_numpy(band)
    return total if len(turns) == 1 else np.multiply(total, np.float32(1 / len(turns)), out=total)
