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
#: A plan that encodes this many times the pixels of the best one is taken if it needs less memory.
GOOD_ENOUGH = 1.15


@dataclass(frozen=True)
class Plan:
    """How one image is scaled: where its rows are cut into strips and its columns into tiles."""

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
        return self.encoded / (self.source[0] * self.source[1])

    @property
    def tiles(self) -> int:
        return (len(self.rows) - 1) * (len(self.cols) - 1)

    def with_halo(self, low: int, high: int, length: int) -> tuple[int, int]:
        """What must be encoded for the cells [low, high) of an axis to be exact.

        Both ends keep whole windows between them and the image's own ends, so that windows lie as they do in
        the whole image, also when the ensemble turns it.
        """
        start = max(0, low - self.halo) // self.alignment * self.alignment
        behind = max(0, length - high - self.halo) // self.alignment * self.alignment
        return start, length - behind


def make_plan(
    info: Info,
    source: tuple[int, int],
    size: tuple[int, int],
    *,
    fields: int = 1,
    psf: Filter | None = None,
    memory: int,
    held: int,
) -> Plan:
    """The cheapest tiles within `memory` bytes.

    `held` counts what input and output take; the process itself comes on top.
    `fields`: how many are kept for each strip, one for each plane of colours and each rotation.
    """
    H, W = source
    reach = _reach(psf, source, size, info.kappa)
    per_pixel = ENCODER_BYTES[info.spec.backbone] + ENCODER_BYTES[info.spec.variant]
    per_cell = 4 * (FEATURES[info.spec.variant] + 3) * fields
    process = PROCESS_MEMORY + (TORCH_MEMORY if info.engine == "torch" else 0)
    fixed = held + process + RENDER_MEMORY + 3 * BAND_MEMORY

    def candidate(strips: int, columns: int) -> Plan:
        rows, cols = _cuts(H, strips, info.alignment), _cuts(W, columns, info.alignment)
        # With its halo a part is at most this long, and all of them together at most that.
        around, beside = 2 * (info.halo + reach), 2 * info.halo
        tall, wide = min(H, rows[1] + around + info.alignment), min(W, cols[1] + beside + info.alignment)
        all_tall, all_wide = H + around * (len(rows) - 2), W + beside * (len(cols) - 2)
        strip = min(H, rows[1] + 2 * reach)
        need = fixed + tall * wide * per_pixel + strip * W * per_cell
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
    frugal = (plan for plan in possible if plan.encoded <= GOOD_ENOUGH * best)
    return min(frugal, key=lambda plan: plan.memory)


def _divisions(length: int, alignment: int) -> list[int]:
    """Numbers of parts worth trying, ever farther apart: 1, 2, 3, … 8, 10, 12, …"""
    most = max(1, length // max(8, alignment))
    parts = [1]
    while parts[-1] < most:
        parts.append(min(most, max(parts[-1] + 1, int(parts[-1] * 1.2))))
    return parts


def _cuts(length: int, parts: int, alignment: int) -> tuple[int, ...]:
    """Where to cut `length` into about equal parts, at multiples of the alignment."""
    step = math.ceil(length / parts / alignment) * alignment
    return (*range(0, length, step), length)


def _widened(low: int, high: int, by: int, length: int) -> tuple[int, int]:
    return max(0, low - by), min(length, high + by)


def _reach(psf: Filter | None, source: tuple[int, int], size: tuple[int, int], kappa: float) -> int:
    """Cells beyond its own that an output pixel averages over: none when the image grows."""
    steps = [n / N for n, N in zip(source, size, strict=True)]
    footprint = None if psf is None else psf.footprint
    widest = 0.0 if footprint is None else footprint * max(steps)
    if psf is None or widest <= 1:
        return 0
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
    whole, cols = Axis.whole(plan.source[0], plan.size[0]), Axis.whole(plan.source[1], plan.size[1])
    quarters = range(4) if ensemble else range(1)
    filters = [model.psf(plan.source, plan.size, q) if psf is None else psf for q in quarters]
    count = max(1, BAND_MEMORY // (12 * plan.size[1] * len(sources)))
    for low, high in pairwise(plan.rows):
        first, last = np.searchsorted(whole.cell, [low, high])
        if first == last:
            continue
        top, bottom = _widened(low, high, plan.reach, plan.source[0])
        area = (last - first) * plan.size[1]
        report = _shares(progress, 0.8 * area, len(sources) * (len(plan.cols) - 1))
        fields = [_strip_fields(model, source, plan, top, bottom, ensemble, report) for source in sources]
        for start, stop in _bands(whole.cell[first:last], count):
            rows = whole[first + start : first + stop]
            inside = Axis(rows.cell - top, rows.offset, rows.step)
            yield rows, cols, [_rendered(turns, filters, inside, cols) for turns in fields]
            progress(round(area * stop / (last - first) * 0.2) - round(area * start / (last - first) * 0.2))
        del fields  # before the next strip takes as much


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


def _strip_fields(
    model: Model,
    source: Source,
    plan: Plan,
    top: int,
    bottom: int,
    ensemble: bool,
    report: Callable[[], None],
) -> list[HeatField]:
    """The fields of the cells [top, bottom) across the whole image: one, or one for each rotation."""
    H, W = plan.source
    above, below = plan.with_halo(top, bottom, H)
    strips: list[HeatField] = []
    for left, right in pairwise(plan.cols):
        before, behind = plan.with_halo(left, right, W)
        image = source(above, before, below, behind)
        turns = model.encode_rotations(image) if ensemble else iter([model.encode(image)])
        for turn, encoded in enumerate(turns):
            tile = encoded.crop(slice(top - above, bottom - above), slice(left - before, right - before))
            if left == 0:
                strips.append(_room_for(tile, W))
            if right - left < W:
                strips[turn].pixels[:, left:right] = tile.pixels
                strips[turn].features[:, left:right] = tile.features
            del encoded, tile  # or the next tile is encoded beside this one
        report()
    return strips


def _room_for(tile: HeatField, width: int) -> HeatField:
    """A field as wide as the image, of which the tile is the first part and the rest is to be filled in."""
    rows, cols = tile.shape
    if cols == width:
        return tile
    empty = tile.namespace.empty
    return HeatField(
        empty((rows, width, 3), dtype=tile.pixels.dtype, device=tile.device),
        empty((rows, width, tile.features.shape[2]), dtype=tile.features.dtype, device=tile.device),
        tile.head_weight,
        tile.head_bias,
        tile.components,
        tile.kappa,
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
