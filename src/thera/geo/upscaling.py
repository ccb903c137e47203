"""Scales rasters frame by frame, each from the window of the input that it needs."""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError, InvalidInput
from thera.field.grid import Axis, Box
from thera.files import check_place
from thera.imaging.files import check_disk
from thera.imaging.formats import FORMATS, Format, format_of
from thera.imaging.sizing import TargetSize
from thera.imaging.upscaling import agrees, fill, seen_around
from thera.models import Model
from thera.tiled import Options, Plan, make_plan
from thera.tiled.plan import frames
from thera.values.bands import Group
from thera.values.consistency import check_whole, whole_factors
from thera.values.planes import Samples, planes_of, valid_below
from thera.values.ranges import Range, Stretch, depth_name, marked

from .raster import CACHE, Raster, describe
from .reading import Ahead, open_reader, ranges, reading_ahead
from .resuming import input_facts, keeping, model_facts, parts, sidecar
from .writing import TILE, GeoGrid, checked_bounds, needed_room, open_writer

Part = tuple[slice, slice]  # rows and columns of a frame

#: Accept up to 2 % more encoding than with the best tiles, and as much again than with the best frame, if it
#: saves memory. With more, large rasters would take longer for each pixel than small ones.
GOOD_ENOUGH = 1.02
#: The largest side of a frame, in tiles.
MOST_TILES = 8
#: Threads that make samples of what a GPU computes.
THREADS = 4


class Behind:
    """Calls functions in so many threads, a few behind the thread that asks; at once if there are none."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads) if threads else None
        self._most = 2 * threads
        self._open: deque[Future[object]] = deque()

    def __call__(self, function: Callable[..., object], *given: object) -> None:
        if self._threads is None:
            function(*given)
            return
        if len(self._open) == self._most:
            self._open.popleft().result()
        self._open.append(self._threads.submit(function, *given))

    def __enter__(self) -> "Behind":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=kind is not None)
        if kind is None:
            self.wait()

    def wait(self) -> None:
        """Waits for all calls, and raises the first error of one of them."""
        while self._open:
            self._open.popleft().result()


class Choice(NamedTuple):
    """Which part of a raster is scaled.

    `bands`: the bands to write, counted from 0, one or three that are seen together at a time.
    `bounds`: west, south, east, north in the units of the raster's coordinate system.
    `resolution`: the side of output pixels in these units, instead of a target size.
    """

    bands: tuple[tuple[int, ...], ...] | None = None
    bounds: tuple[float, ...] | None = None
    resolution: float | None = None

    @staticmethod
    def parse_bands(text: str) -> tuple[tuple[int, ...], ...]:
        """Bands counted from 1: those of a colour with commas, and + between what is seen by itself.

        >>> Choice.parse_bands("4,3,2+8")
        ((3, 2, 1), (7,))
        """
        try:
            groups = tuple(tuple(int(word) - 1 for word in part.split(",")) for part in text.split("+"))
        except ValueError:
            groups = ()
        every = [band for group in groups for band in group]
        if not groups or not {len(group) for group in groups} <= {1, 3} or min(every) < 0:
            raise InvalidInput(
                f"{text!r} are no bands: write their numbers from 1, with + between them, and three that are"
                " a colour with commas, like 4,3,2+8."
            )
        if len(set(every)) < len(every):
            raise InvalidInput(f"{text!r} has a band twice: write each once.")
        return groups

    def size(self, raster: Raster, target: TargetSize) -> tuple[int, int]:
        """The (height, width) of the whole raster at that resolution, or as `target` says."""
        if self.resolution is None:
            return target.for_image(raster.shape)
        if not (math.isfinite(self.resolution) and self.resolution > 0):
            raise InvalidInput(f"A resolution of {self.resolution:g} makes no raster: give a number above 0.")
        check_placed(raster, "--resolution")
        a, b, _, d, e, _ = tuple(raster.transform)[:6]
        lengths = np.multiply(raster.shape, (math.hypot(b, e), math.hypot(a, d)))
        size = [max(1, round(length / self.resolution)) for length in lengths.tolist()]
        return TargetSize(size=size).for_image(raster.shape)


ALL = Choice()


def check_placed(raster: Raster, option: str) -> None:
    """Refuses a raster without a geotransform."""
    if raster.transform.is_identity:
        raise InvalidInput(f"{option} needs a geotransform, and {raster.path} has none: leave it out.")


@dataclass(frozen=True)
class RasterOptions:
    """How rasters are read and written.

    `stretch`: how to choose the values for 0 and 1; by default `Stretch.usual` of the sample type.
    `alpha`: "cover" if an alpha band says where the others are valid, "data" if it is an ordinary band.
    `strip`: drop the tags, but not the georeference, nodata and the bands' names.
    `resume`: keep finished frames beside the output until it is complete, and go on where a run ended.
    """

    stretch: Stretch | None = None
    cog: bool = False
    overwrite: bool = False
    strip: bool = False
    alpha: Literal["cover", "data"] = "cover"
    choice: Choice = ALL
    resume: bool = False


class Frame:
    """The samples of one frame of the output, h×w×bands, filled in group by group."""

    def __init__(self, raster: Raster, samples: NDArray, valid: NDArray[np.bool_] | None) -> None:
        """`valid`: h×w×bands, which samples have a value; None if all have."""
        self.raster = raster
        self.samples = samples
        self.valid = valid

    def extent(self, group: Group) -> Part | None:
        """The smallest part with all valid samples of a group; None if there are none."""
        if self.valid is None:
            return slice(0, self.samples.shape[0]), slice(0, self.samples.shape[1])
        valid = self.valid[..., list(group.bands)]
        rows, cols = (np.flatnonzero(valid.any(axis=axes)) for axes in ((1, 2), (0, 2)))
        if not len(rows):
            return None
        return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(cols[0]), int(cols[-1]) + 1)

    def finished(self) -> NDArray:
        """All samples, with nodata at the invalid ones, or NaN or 0 if the raster has no nodata value."""
        if self.raster.declared is not None:
            return marked(self.samples, True if self.valid is None else self.valid, self.raster.declared)
        if self.valid is None:
            return self.samples
        nothing = self.raster.dtype.type(np.nan if self.raster.dtype.kind == "f" else 0)
        return np.where(self.valid, self.samples, nothing)

    @property
    def mask(self) -> NDArray[np.bool_] | None:
        """Where some band is valid, if the raster has a mask."""
        if not self.raster.masked:
            return None
        return np.ones(self.samples.shape[:2], bool) if self.valid is None else np.any(self.valid, axis=-1)


@dataclass(frozen=True)
class RasterJob(ABC):
    """A raster that is about to be written to a file, frame by frame: described and checked."""

    raster: Raster
    spans: list[Range]  # the range of each of the raster's groups of bands
    grid: GeoGrid
    output: Path
    frame: int  # the side of the frames
    file: RasterOptions

    @property
    def size(self) -> tuple[int, int]:
        return self.grid.size

    @property
    def form(self) -> Format:
        return FORMATS["tiff"]

    @property
    def depth(self) -> str:
        return depth_name(self.raster.dtype)

    @property
    def written(self) -> Raster:
        """The description of the output's bands and tags."""
        return self.raster

    def run(self, progress: Callable[[int], object] = lambda pixels: None) -> None:
        """Writes the output, whole or not at all.

        While a frame is computed, the one before is written and the next one is read, in other threads.
        """
        keep = keeping(self.output, self.facts) if self.file.resume else nullcontext()
        with (
            keep as kept,
            open_reader(self.raster) as reader,
            open_writer(self.output, self.written, self.grid, self.file.cog, self.file.strip) as writer,
            ThreadPoolExecutor(1) as writing,
            reading_ahead(self.raster) as ahead,
        ):
            writes: Future[None] | None = None
            boxes = list(frames(self.size, self.frame))
            ahead.ask(self._window(boxes[0]))
            for box, then in pairwise((*boxes, None)):
                assert box is not None
                window = ahead.take()
                ahead.ask(None if then is None else self._window(then))
                pixels = None if kept is None else kept.get(box)
                if pixels is None:
                    frame = self._frame(reader if window is None else Ahead(reader, *window), box, progress)
                    pixels = frame.finished(), frame.mask
                    if kept is not None:
                        kept.put(box, pixels)
                else:
                    progress((box[2] - box[0]) * (box[3] - box[1]))
                written(writes)
                writes = writing.submit(writer.write, pixels[0], box, pixels[1])
            written(writes)

    @property
    def facts(self) -> dict[str, Any]:
        """What frames depend on, by names for people, where they may be kept."""
        return {}

    def _window(self, box: Box) -> Box | None:
        """What is read of the input for a box of output pixels; None if it is not known beforehand."""
        return None

    @abstractmethod
    def _frame(self, reader: Samples, box: Box, progress: Callable[[int], object]) -> Frame:
        """The output pixels of a box."""


def written(writes: Future[None] | None) -> None:
    """Waits until a frame is written, if there is one, and raises what went wrong."""
    if writes is not None:
        writes.result()


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


@dataclass(frozen=True)
class RasterScaling(RasterJob):
    """A raster that is about to be scaled into a file: described, planned and checked."""

    model: Model
    options: Options
    whole: tuple[int, int]  # the size of the output of the whole raster, of which the grid is a part
    origin: tuple[int, int] = (0, 0)  # of the grid in it

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
        """The values that the network sees as black and white, and how much is done."""
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
        """What a run that was interrupted has kept, and how it goes on; None if nothing was to be kept."""
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
        """The plan of a frame in the middle, which needs the most."""
        top, left = (max(0, N - self.frame) // 2 for N in self.size)
        bottom, right = (min(start + self.frame, N) for start, N in zip((top, left), self.size, strict=True))
        return replace(self._plan((top, left, bottom, right)), size=self.size)

    @cached_property
    def _plans(self) -> list[tuple[int, Plan]]:
        """The plans of all frames, and how many frames have each: those that touch no border are alike."""
        rows, cols = (_kinds(length, self.frame) for length in self.size)
        return [
            (m * n, self._plan((top, left, bottom, right)))
            for m, top, bottom in rows
            for n, left, right in cols
        ]

    def _plan(self, box: Box) -> Plan:
        """The plan for the output pixels of a box."""
        raster = self.raster
        down, along = (slice(int(axis.cell[0]), int(axis.cell[-1]) + 1) for axis in self._axes(box))
        pixels = (box[2] - box[0]) * (box[3] - box[1])
        cells = (down.stop - down.start) * (along.stop - along.start)
        # Samples and validity of the frame, of the one that is written, and of the cells of this and the next
        # one; floats while invalid samples are filled in.
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
            (max(0, int(axis.cell[0]) - depth), min(n, int(axis.cell[-1]) + 1 + depth))
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
        """The smallest box of output pixels that holds a box and cuts no input pixel, if that matters."""
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
        top, left = int(rows.cell[0]), int(cols.cell[0])
        window = (top, left, int(rows.cell[-1]) + 1, int(cols.cell[-1]) + 1)
        valid = valid_below(reader, self.raster.bands, window)
        if valid is not None:
            valid = valid[np.ix_(rows.cell - top, cols.cell - left)]
        samples = np.zeros((len(rows), len(cols), self.raster.count), self.raster.dtype)
        frame = Frame(self.raster, samples, valid)
        area = len(rows) * len(cols)
        planes = planes_of(reader, self.raster.bands, self.spans, self.model.info.halo)
        planes.sort(key=lambda plane: not plane.group.alpha)
        # While a GPU computes a strip, processors make samples of those before, from what was read ahead.
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
                    call(plane.agree, frame.samples, window, self.options.consistent)
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


def check_raster_output(source: Path, output: Path, overwrite: bool) -> None:
    if format_of(output) is not FORMATS["tiff"]:
        raise ImageFileError(f"A raster is written as GeoTIFF: end the output {output.name!r} in .tif.")
    check_place(output, overwrite, source)


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
    """The first, the second and the last of the frames along an axis, and for how many each stands.

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
