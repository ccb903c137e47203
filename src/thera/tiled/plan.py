"""How a picture is cut into tiles so that scaling it stays within its memory.

A tile is encoded with a halo as wide as the network sees, padded with zeros only where the image itself ends.
So the result equals that of the whole image, up to float rounding, whatever the tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from thera.errors import InvalidInput
from thera.field.grid import Axis, Box
from thera.field.needed import reach
from thera.memory import human_bytes
from thera.models import Info, Model
from thera.models.ncnn_graph import LEAST
from thera.tiled.options import Options

#: Bytes of working memory for rendering, and bytes of one band of float32 output.
RENDER_MEMORY, BAND_MEMORY = 64 << 20, 24 << 20
#: Bytes of the process itself (Python, NumPy, ONNX Runtime, a small model), and bytes that PyTorch adds.
PROCESS_MEMORY, TORCH_MEMORY = 200 << 20, 300 << 20
#: Measured peak bytes of an encoder per pixel: backbone + variant. ONNX Runtime computes some layers in parts
#: (`models.onnx_parts`), and ncnn all of them (`models.ncnn_bands`), but not on a GPU.
ENCODER_BYTES = {"edsr": 1400, "rdn": 11_000, "air": 0, "plus": 11_600, "pro": 10_600}
ONNX_BYTES = ENCODER_BYTES | {"plus": 2800, "pro": 5400}
NCNN_BYTES = {"edsr": 900, "air": 0, "plus": 500, "pro": 1700}
VULKAN_BYTES = {"edsr": 3600, "air": 0, "plus": 5600}
#: Bytes of the process with ncnn instead of ONNX Runtime, and bytes of working memory of each ncnn thread.
NCNN_PROCESS, NCNN_THREAD = 136 << 20, {"air": 16 << 20, "plus": 24 << 20, "pro": 40 << 20}
#: Peak bytes per pixel of other methods' decoders, for the widest of their maps.
DECODER_BYTES = 12_000
#: Channels of the features that a field keeps.
FEATURES = {"air": 64, "plus": 128, "pro": 64}
#: Accept up to 5 % more time for encoding than the best plan's if it saves memory.
GOOD_ENOUGH = 1.05
#: A network with n threads is n^this times as fast as with one: two make it 1.5 to 1.8 times, by model, and
#: 1.9 times with ncnn.
SPEED_OF_THREADS, SPEED_OF_NCNN_THREADS = 0.7, 0.95


@dataclass(frozen=True)
class Plan:
    """Where the rows of an image are cut into strips, and its columns into tiles.

    The cuts cover the whole image, or a part of it with the output pixels whose centres lie there. `encoded`
    counts the pixels that are encoded, halos included. `workers` tiles of a strip are encoded side by side,
    each with a share of the threads. `effort`: the pixels that would take as long, one tile after the other.
    """

    source: tuple[int, int]
    size: tuple[int, int]
    rows: tuple[int, ...]
    cols: tuple[int, ...]
    memory: int
    encoded: int
    workers: int = 1
    effort: float = 0.0

    @property
    def overlap(self) -> float:
        """Encoded pixels per pixel of the input: 1 without halos."""
        return self.encoded / ((self.rows[-1] - self.rows[0]) * (self.cols[-1] - self.cols[0]))

    @property
    def grid(self) -> tuple[Axis, Axis]:
        """The rows and columns of the output whose centres lie in the plan's cells."""
        rows, cols = map(Axis.whole, self.source, self.size)
        return rows[rows.within(self.rows[0], self.rows[-1])], cols[cols.within(self.cols[0], self.cols[-1])]

    @property
    def tiles(self) -> int:
        return (len(self.rows) - 1) * (len(self.cols) - 1)


def make_plan(
    model: Model,
    source: tuple[int, int],
    size: tuple[int, int],
    options: Options,
    *,
    planes: int = 1,
    held: int = 0,
    part: tuple[slice, slice] | None = None,
    good_enough: float = GOOD_ENOUGH,
    advice: str = "",
) -> Plan:
    """The cheapest tiles within the memory of `options`.

    `planes`: the number of groups of bands that are scaled side by side.
    `held`: bytes of input and output, without the process itself.
    `part`: the rows and columns of the input to scale; by default all of them.
    `good_enough`: accept up to this many times the effort of the best plan to save memory.
    `advice`: what else the caller can do if the memory is not enough, after "allow more".
    """
    model.check_output(size)
    info, memory = model.info, options.limit
    down, along = part or (slice(0, source[0]), slice(0, source[1]))
    H, W = down.stop - down.start, along.stop - along.start
    steps = [n / N for n, N in zip(source, size, strict=True)]
    beyond = max(reach(psf, steps, info.kappa) for psf in options.filters(model, steps))
    cost = costs(info)
    per_cell = cost.cell * planes * options.rotations
    fixed = held + cost.process + RENDER_MEMORY + (2 + planes) * BAND_MEMORY

    # Upper bounds for the side of a tile with its halo, and for the sum of all such sides.
    around = 2 * (info.halo + beyond)
    beside = 2 * info.halo if source[1] == W else around  # a part of the image needs cells beside it, too
    candidates = []
    threads = info.threads if isinstance(options.lock, nullcontext) else 1
    speed = SPEED_OF_NCNN_THREADS if info.engine == "ncnn" else SPEED_OF_THREADS
    for cols in _divisions(along, info.alignment):
        tiles = len(cols) - 1
        wide = min(source[1], cols[1] - cols[0] + beside + info.alignment)
        all_wide = min(source[1], W + beside) + beside * (tiles - 1)
        for rows in _divisions(down, info.alignment):
            height = rows[1] - rows[0]
            tall = min(source[0], height + around + info.alignment)
            all_tall = min(source[0], H + around) + around * (len(rows) - 2)
            strip = min(source[0], height + 2 * beyond) * min(source[1], W + 2 * beyond)
            for workers in _numbers(min(threads, tiles)):
                busy = min(info.threads, workers * max(1, tall // LEAST))
                need = fixed + workers * tall * wide * cost.pixel + busy * cost.thread + strip * per_cell
                encoded = all_tall * all_wide
                turns = math.ceil(tiles / workers) / tiles  # each as long as one tile
                effort = encoded * turns * (threads / (threads // workers)) ** speed
                candidates.append(Plan(source, size, rows, cols, need, encoded, workers, effort))
    possible = [plan for plan in candidates if plan.memory <= memory]
    if not possible:
        least = min(plan.memory for plan in candidates)
        raise InvalidInput(
            f"Scaling {source[1]}×{source[0]} to {size[1]}×{size[0]} needs at least {human_bytes(least)} of"
            f" memory, and {human_bytes(memory)} are allowed",
            f"allow more with --memory (memory=){advice}",
        )
    best = min(plan.effort for plan in possible)
    frugal = (plan for plan in possible if plan.effort <= good_enough * best)
    return min(frugal, key=lambda plan: plan.memory)


def frames(size: tuple[int, int], side: int) -> Iterator[Box]:
    """Squares of `side`, smaller at the right and bottom edge, that cover an output row by row.

    >>> list(frames((3, 5), 4))
    [(0, 0, 3, 4), (0, 4, 3, 5)]
    """
    for top in range(0, size[0], side):
        for left in range(0, size[1], side):
            yield top, left, min(top + side, size[0]), min(left + side, size[1])


def tile_side(info: Info, memory: float) -> int:
    """The side of the largest square tile, without its halo, that can be encoded within `memory` bytes.

    It is 0 or less if the halo alone needs more.
    """
    side = int(math.sqrt(max(0.0, memory) / costs(info).pixel)) - 2 * info.halo - info.alignment
    return side // info.alignment * info.alignment


def tile_memory(info: Info, side: int) -> int:
    """Bytes for encoding a square tile of this side with its halo."""
    return (side + 2 * info.halo + info.alignment) ** 2 * costs(info).pixel


class Costs(NamedTuple):
    """Bytes: of a pixel at the peak of its encoding, of a cell of a field, of the process, of a thread."""

    pixel: int
    cell: int
    process: int
    thread: int


def costs(info: Info) -> Costs:
    """The memory that a model takes."""
    bands = info.engine == "ncnn" and info.device == "cpu"
    encoder = {"ncnn": NCNN_BYTES if bands else VULKAN_BYTES, "onnx": ONNX_BYTES}.get(
        info.engine, ENCODER_BYTES
    )
    process = PROCESS_MEMORY + (TORCH_MEMORY if info.engine == "torch" else 0)
    return Costs(
        encoder[info.spec.backbone] + encoder.get(info.spec.variant, DECODER_BYTES),
        4 * (info.members * FEATURES.get(info.spec.variant, 64) + 3),
        NCNN_PROCESS if bands else process,
        NCNN_THREAD[info.spec.variant] if bands else 0,
    )


def with_halo(low: int, high: int, length: int, info: Info) -> tuple[int, int]:
    """The range of pixels to encode so that the cells [low, high) of an axis of `length` are exact.

    Its distances from both ends of the image are multiples of the network's window, so that windows lie as in
    the whole image, also when the ensemble rotates it.
    """
    start = max(0, low - info.halo) // info.alignment * info.alignment
    behind = max(0, length - high - info.halo) // info.alignment * info.alignment
    return start, length - behind


def _numbers(most: int) -> list[int]:
    """1, 2, 4, 8, … and the largest."""
    return [*(2**i for i in range((most - 1).bit_length())), most]


def _divisions(cells: slice, alignment: int) -> list[tuple[int, ...]]:
    """Where to cut `cells` into 1, 2, 3, … 8, 10, 12, … about equal parts, all multiples of the alignment."""
    length = cells.stop - cells.start
    most = max(1, length // max(8, alignment))
    parts = [1]
    while parts[-1] < most:
        parts.append(min(most, max(parts[-1] + 1, int(parts[-1] * 1.2))))
    steps = [math.ceil(length / count / alignment) * alignment for count in parts]
    return [(*range(cells.start, cells.stop, step), cells.stop) for step in steps]
