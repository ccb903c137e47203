"""Scales rasters frame by frame, each from the window of the input that it needs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from thera.errors import InvalidInput
from thera.field.grid import Axis, Box, cells_below
from thera.imaging.files import check_disk
from thera.imaging.sizing import TargetSize
from thera.imaging.upscaling import agrees, fill, seen_around
from thera.models import Model
from thera.tiled import Options, Plan, make_plan
from thera.tiled.plan import frames
from thera.values.bands import Group
from thera.values.consistency import check_whole, whole_factors
from thera.values.planes import planes_of
from thera.values.samples import Samples, valid_on_axes

from .behind import Behind
from .jobs import Frame, RasterJob, check_raster_output
from .options import Choice, RasterOptions, check_placed
from .raster import CACHE, describe
from .reading import Ahead, ranges
from .resuming import input_facts, model_facts, parts, sidecar
from .writing import TILE, GeoGrid, checked_bounds, needed_room

__all__ = ["Choice", "RasterOptions", "RasterScaling", "check_raster_output", "prepare_raster"]

#: Accept up to 2 % more encoding for smaller tiles, and another 2 % for smaller frames, if it saves memory.
#: With more, large rasters would take longer for each pixel than small ones.
GOOD_ENOUGH = 1.02
#: The largest side of a frame, in tiles.
MOST_TILES = 8
#: Threads that turn the output of a GPU into samples.
THREADS = 4


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


@dataclass(frozen=True)
class RasterScaling(RasterJob):
    """A raster that is described, planned and checked, ready to be scaled into a file."""

    model: Model
    options: Options
    whole: tuple[int, int]  # the size that the whole raster would be scaled to
    origin: tuple[int, int] = (0, 0)  # where the grid begins in that output

    @property
    def tiles(self) -> int:
        return sum(count * plan.tiles for count, plan in self._plans)

    @property
    def work(self) -> tuple[float, float]:
        """The effort of encoding, in pixels (see `Plan`), and pixels to render."""
        times = len(self.spans) * self.options.rotations
        return times * self.effort, times * math.prod(self.size)

    @property
    def effort(self) -> float:
        """The effort of encoding one group of bands, in pixels (see `Plan`)."""
        return sum(count * plan.effort for count, plan in self._plans)

    @property
    def encoded(self) -> int:
        """Pixels to encode for each group of bands, halos included."""
        return sum(count * plan.encoded for count, plan in self._plans)

    @property
    def disk(self) -> int:
        return needed_room(self.raster, self.size, self.file.cog)

    @property
    def notes(self) -> tuple[str, ...]:
        """Which values the network sees as black and white, and how much an earlier run has done."""
        ranges = tuple(
            f"{self._in_file(group)}: {span.low:g} to {span.high:g} stand for black and white"
            for group, span in zip(self.raster.bands.groups, self.spans, strict=True)
            if not group.alpha
        )
        done, total = self._parts
        return (*ranges, f"{done} of {total} parts {_are(done)} there already") if done else ranges

    def _in_file(self, group: Group) -> Group:
        """A group with the numbers that its bands have in the input file."""
        stored = self.raster.stored or range(self.raster.count)
        return replace(group, bands=tuple(stored[band] for band in group.bands))

    @property
    def kept(self) -> str | None:
        """What an interrupted run has kept, and how to go on; None without `resume`."""
        if not self.file.resume:
            return None
        done, total = self._parts
        if not done:
            return f"No part was finished yet: one is up to {self.frame}×{self.frame} pixels of the output."
        place = sidecar(self.output)
        return f"{done} of {total} parts {_are(done)} kept in {place}: the same command goes on."

    @property
    def _parts(self) -> tuple[int, int]:
        """How many frames are kept, and how many there are."""
        done = parts(self.output) if self.file.resume else 0
        return done, len(list(frames(self.size, self.frame)))

    @property
    def plan(self) -> Plan:
        """The plan of a frame in the middle: it needs the most memory."""
        top, left = (max(0, N - self.frame) // 2 for N in self.size)
        bottom, right = (min(start + self.frame, N) for start, N in zip((top, left), self.size, strict=True))
        return replace(self._plan((top, left, bottom, right)), size=self.size)

    @cached_property
    def _plans(self) -> list[tuple[int, Plan]]:
        """The distinct plans, and how many frames have each. Frames that touch no border share one."""
        rows, cols = (_kinds(length, self.frame) for length in self.size)
        return [
            (m * n, self._plan((top, left, bottom, right)))
            for m, top, bottom in rows
            for n, left, right in cols
        ]

    def _plan(self, box: Box) -> Plan:
        """The plan for the output pixels of a box."""
        raster = self.raster
        down, along = (axis.cells for axis in self._axes(box))
        pixels = (box[2] - box[0]) * (box[3] - box[1])
        cells = (down.stop - down.start) * (along.stop - along.start)
        # Samples and validity of this frame, of the one being written, and of the cells of this and the next
        # frame; and floats while invalid samples are filled in.
        held = 4 * (pixels + cells) * raster.count * (raster.dtype.itemsize + 1) + 64 * cells + CACHE
        inputs = self.model, raster.shape, self.whole, self.options
        return make_plan(*inputs, held=held, part=(down, along), good_enough=GOOD_ENOUGH)

    @property
    def facts(self) -> dict[str, Any]:
        how = self.options, self.options.limit, self.spans, self.whole, self.origin, self.size, self.frame
        what = replace(self.file, overwrite=False)
        return {
            "input": input_facts(self.raster),
            "option": repr((how, what)),
            "model": model_facts(self.model),
        }

    def _window(self, box: Box) -> Box | None:
        rows, cols = self._axes(self._whole_cells(box))
        steps = rows.step, cols.step
        depth = seen_around(self.model, self.raster.bands, self.options, steps)
        if self.raster.masked and not self.raster.bands.partial:
            return None
        (top, bottom), (left, right) = (
            (max(0, axis.cells.start - depth), min(n, axis.cells.stop + depth))
            for axis, n in zip((rows, cols), self.raster.shape, strict=True)
        )
        return top, left, bottom, right

    def _axes(self, box: Box) -> tuple[Axis, Axis]:
        """The rows and columns of a box of output pixels."""
        lengths = zip(self.raster.shape, self.whole, box[:2], box[2:], self.origin, strict=True)
        rows, cols = (Axis.whole(n, N, low + start, high + start) for n, N, low, high, start in lengths)
        return rows, cols

    @property
    def _agrees(self) -> bool:
        return agrees(self.model, self.options, self.raster.shape, self.whole)

    def _whole_cells(self, box: Box) -> Box:
        """The box, grown to whole input pixels if their means have to agree with the output."""
        sides = whole_factors(self.raster.shape, self.whole)
        if sides is None or not self._agrees:
            return box
        top, left = (
            (low + start) // side * side - start
            for low, start, side in zip(box[:2], self.origin, sides, strict=True)
        )
        bottom, right = (
            -(-(high + start) // side) * side - start
            for high, start, side in zip(box[2:], self.origin, sides, strict=True)
        )
        return top, left, bottom, right

    def _frame(self, reader: Samples, box: Box, progress: Callable[[int], object]) -> Frame:
        wide = self._whole_cells(box)
        frame = self._rendered(reader, wide, progress)
        part = slice(box[0] - wide[0], box[2] - wide[0]), slice(box[1] - wide[1], box[3] - wide[1])
        return Frame(frame.raster, frame.samples[part], None if frame.valid is None else frame.valid[part])

    def _rendered(self, reader: Samples, box: Box, progress: Callable[[int], object]) -> Frame:
        rows, cols = self._axes(box)
        valid = valid_on_axes(reader, self.raster.bands, rows, cols)
        samples = np.zeros((len(rows), len(cols), self.raster.count), self.raster.dtype)
        frame = Frame(self.raster, samples, valid)
        area = len(rows) * len(cols)
        planes = planes_of(reader, self.raster.bands, self.spans, self.model.info.halo)
        planes.sort(key=lambda plane: not plane.group.alpha)
        # While a GPU computes a strip, other threads turn earlier strips into samples. What they need of the
        # input was read ahead.
        beside = self.model.info.device != "cpu" and isinstance(reader, Ahead)
        threads = THREADS if beside else 0
        with Behind(threads) as call:
            for i, plane in enumerate(planes):
                part = frame.extent(plane.group)
                if part is not None:
                    down, along = part
                    inner = box[0] + down.start, box[1] + along.start, box[0] + down.stop, box[1] + along.stop
                    plan, grid = self._plan(inner), (rows[down], cols[along])
                    fill(self.model, plane, plan, self.options, frame.samples[part], grid, call)
                if plane.group.alpha:
                    call.wait()
                    frame.valid = self.raster.bands.hide(frame.valid, frame.samples)
                progress(area * (i + 1) // len(planes) - area * i // len(planes))
        if self._agrees:
            with Behind(threads) as call:
                for plane in planes:
                    call(plane.agree, frame.samples, cells_below(rows, cols), self.options.consistent)
        return frame


def prepare_raster(
    source: Path,
    output: Path,
    model: Model,
    target: TargetSize,
    options: Options | None = None,
    file: RasterOptions | None = None,
) -> RasterScaling:
    """Describes `source`, and checks everything that scaling it to the GeoTIFF `output` needs."""
    options, file = options or Options(), file or RasterOptions()
    check_raster_output(source, output, file.overwrite)
    raster = replace(describe(source, file.choice.bands), covers=file.alpha == "cover")
    whole, origin = file.choice.size(raster, target), (0, 0)
    if options.consistent:
        check_whole(raster.shape, whole)
    grid = GeoGrid.scaled(raster, whole)
    if file.choice.bounds is not None:
        check_placed(raster, "--bounds")
        box = grid.box_of(checked_bounds(file.choice.bounds))
        grid, origin = grid.part(box), box[:2]
    kept = math.prod(grid.size) * raster.count * raster.dtype.itemsize if file.resume else 0
    check_disk(output, grid.size, needed_room(raster, grid.size, file.cog) + kept)
    scaling = RasterScaling(raster, [], grid, output, TILE, file, model, options, whole, origin)
    scaling = replace(scaling, frame=_best_frame(scaling))
    return replace(scaling, spans=ranges(raster, file.stretch))


def _best_frame(scaling: RasterScaling) -> int:
    """The side of the frames with the least effort that fits in memory."""
    found: dict[int, tuple[float, int]] = {}  # effort, and bytes
    for tiles in range(1, MOST_TILES + 1):
        tried = replace(scaling, frame=tiles * TILE)
        try:
            found[tried.frame] = tried.effort, tried.plan.memory
        except InvalidInput:
            if not found:
                raise
            break
        if tried.frame >= max(scaling.size):
            break
    best = min(effort for effort, _ in found.values())
    frugal = (side for side, (effort, _) in found.items() if effort <= GOOD_ENOUGH * best)
    return min(frugal, key=lambda side: found[side][1])


def _kinds(length: int, frame: int) -> list[tuple[int, int, int]]:
    """The distinct kinds of frames along an axis: how many there are, and where the first of them lies.

    >>> _kinds(10, 4)
    [(1, 0, 4), (1, 4, 8), (1, 8, 10)]
    >>> _kinds(15, 3)
    [(1, 0, 3), (3, 3, 6), (1, 12, 15)]
    """
    count = -(-length // frame)
    kinds = [(1, 0, min(frame, length))]
    if count > 2:
        kinds.append((count - 2, frame, 2 * frame))
    if count > 1:
        kinds.append((1, (count - 1) * frame, length))
    return kinds
