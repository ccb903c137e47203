"""An ncnn network, computed stage by stage in thin bands of rows.

ncnn's Winograd transforms take several times the memory of a layer's input. Those of a band fit into the
processor's caches, and several threads can compute bands of one stage. Between stages the whole map is kept.

A map is an array of groups × rows × columns × channels of a group, as ncnn wants it, with a border of zeros:
`TILE` rows above, and one row or column on the other sides.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from threading import Barrier, BrokenBarrierError, Event, Thread
from typing import Any

import ncnn
import numpy as np
from numpy.typing import NDArray

from thera.errors import ModelError
from thera.field.threads import on_all_cores
from thera.models.beside import taken
from thera.models.ncnn_graph import Stage

Map = NDArray[Any]

TILE = 4  # the side of the squares that ncnn's Winograd transforms compute
ALIGNMENT = 64  # bytes of the longest vectors
LEAST, PART = 16, 192  # rows that are worth a thread, and that it takes at once, about
TILES = 200  # of a band, about: they take 6 MB in ncnn


class Bands:
    """A net whose convolutions have no padding, for so many `threads` that work on one image."""

    def __init__(self, net: Any, stages: Sequence[Stage], threads: int, tail: Tail | None = None) -> None:
        self.net, self.stages, self.threads, self.tail = net, stages, threads, tail
        worker, image = Worker(net), zeros((3, 3, 3, 1), np.dtype(np.float32))
        result = worker.extract({stages[0].source: view(image, 0, 3)}, stages[0].output)
        # As this processor wants them. NumPy has no bfloat16, of which only the size matters here.
        self.group = result.elempack
        self.dtype = np.dtype(np.float32 if result.elemsize == 4 * self.group else np.float16)
        del result

    def features(self, image: Map, cancelled: Event) -> NDArray[np.float32]:
        """Rows × columns × channels, for a normalised image of 3 × rows × columns."""
        trunk = Trunk(self, image, cancelled)
        values = self.tail(self, trunk.result(), cancelled) if self.tail else trunk.result()
        _, height, width, _ = values.shape
        features = np.empty((height, width, len(values) * self.group), np.float32)

        def unpack(low: int) -> None:
            packed = values[:, low : low + PART].transpose(1, 2, 0, 3)
            rows = features[low : low + PART].reshape(packed.shape)
            if packed.dtype == rows.dtype:
                rows[:] = packed
            else:  # bfloat16 is the upper half of float32
                rows.view(np.uint32)[:] = packed.view(np.uint16).astype(np.uint32) << 16

        on_all_cores(unpack, range(0, height, PART))
        return features


#: The rest of a network: from a map without its border to another.
Tail = Callable[[Bands, Map, Event], Map]


class Job(ABC):
    """Work on maps of so many rows and columns, by several threads."""

    def __init__(self, bands: Bands, height: int, width: int, cancelled: Event) -> None:
        self._bands, self._cancelled = bands, cancelled
        self._height, self._width = height, width
        # ncnn steps through memory in multiples of the number of tiles. Powers of two would map all steps to
        # the same few lines of a cache, which takes a third more time. So the tiles of a row are odd.
        tiles = -(-width // TILE) | 1
        self._columns = TILE * tiles + 2
        self._threads = max(1, min(bands.threads, height // LEAST))
        own = max(1, height // self._threads // TILE)
        self._rows = TILE * max(1, min(own, round(TILES / tiles)))  # of a band
        self._together = Barrier(self._threads)

    def _parts(self) -> deque[tuple[int, int]]:
        """As many parts for each thread; one that other programs slow down leaves some to the others."""
        height, threads = self._height, self._threads
        parts = 1 if threads == 1 else threads * max(1, height // PART // threads)
        return deque(pairwise([*(height * k // parts // TILE * TILE for k in range(parts)), height]))

    def _zeros(self, channels: int, rows: int) -> Map:
        group = self._bands.group
        return zeros((channels // group, rows + TILE + 1, self._columns, group), self._bands.dtype)

    def _inner(self, whole: Map) -> Map:
        return whole[:, TILE:-1, 1 : self._width + 1]

    def _run(self) -> None:
        """Calls `_work` in every thread."""
        errors: list[BaseException] = []

        def work() -> None:
            try:
                self._work()
            except BaseException as error:
                errors.append(error)
                self._together.abort()

        # Daemons: others would keep the program from ending until the image is done.
        threads = [Thread(target=work, daemon=True) for _ in range(self._threads - 1)]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
        for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
            raise error

    @abstractmethod
    def _work(self) -> None:
        """What each thread does."""

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise RuntimeError("The encoding was cancelled.")

    def _bands_of(self, parts: deque[tuple[int, int]], height: int) -> Iterator[tuple[int, int, bool]]:
        """Where bands start and end, in parts that no thread has taken; true for the first of a part."""
        while (part := taken(parts)) is not None:
            for low in range(*part, height):
                self._check()
                yield low, min(low + height, part[1]), low == part[0]


class Trunk(Job):
    """The stages of a network, one after the other."""

    def __init__(self, bands: Bands, image: Map, cancelled: Event) -> None:
        _, height, width = image.shape
        super().__init__(bands, height, width, cancelled)
        self._waiting = [self._parts() for _ in bands.stages]
        source = zeros((3, height + TILE + 1, self._columns, 1), np.dtype(np.float32))
        self._inner(source)[..., 0] = image
        widest = max(stage.channels for stage in bands.stages)
        # The image, the first map, and two that take turns.
        self._maps = [source, self._zeros(bands.stages[0].channels, height)]
        self._maps += [self._zeros(widest, height) for _ in range(2)]

    def _map(self, turn: int) -> Map:
        """The result of a stage; that of stage -1 is the image."""
        if turn < 1:
            return self._maps[turn + 1]
        return self._maps[2 + turn % 2][: self._bands.stages[turn].channels // self._bands.group]

    def result(self) -> Map:
        self._run()
        values = self._inner(self._map(len(self._bands.stages) - 1))
        self._maps.clear()  # frees memory for what follows
        return values

    def _work(self) -> None:
        """Computes parts of every stage, as long as there are some."""
        worker = Worker(self._bands.net)
        middle = self._zeros(self._bands.stages[0].channels, self._rows)
        scratch = zeros((self._maps[-1][:, : self._rows].size,), self._bands.dtype)
        for turn, (stage, parts) in enumerate(zip(self._bands.stages, self._waiting, strict=True)):
            source, output = self._map(turn - 1), self._map(turn)
            kept = self._map(0) if stage.keeps_first else source
            if len(output) != len(source):
                worker = Worker(self._bands.net)  # frees memory, for nothing has the same size as before
            height = self._rows // 2 if stage.expands else self._rows
            for low, high, starts in self._bands_of(parts, height):
                rows = slice(low + TILE, high + TILE)
                if stage.middle:
                    self._go_on(worker, stage, source, middle, low, high, starts)
                    inputs = {stage.middle: view(middle, TILE - 1, high - low + TILE + 1)}
                elif stage.halo:
                    inputs = {stage.source: view(source, rows.start - 1, rows.stop + 1)}
                else:
                    inputs = {stage.source: copied(source[:, rows], scratch)}
                if stage.kept:
                    inputs[stage.kept] = copied(kept[:, rows], scratch)
                worker.run(inputs, stage.output, output[:, rows, 1 : self._width + 1])
            self._together.wait()

    def _go_on(
        self, worker: Worker, stage: Stage, source: Map, middle: Map, low: int, high: int, starts: bool
    ) -> None:
        """Makes the rows low - 1 to high + 1 of a stage's middle; two of them the band before has made.

        Tiles begin at the same rows whatever the bands and parts, so that these do not change a bit.
        """
        first, last = low + 1, min(high + 1, self._height)
        if starts:
            first -= TILE
        else:
            middle[:, TILE - 1 : TILE + 1] = middle[:, self._rows + TILE - 1 :]
        if last > first:
            target = middle[:, first - low + TILE : last - low + TILE, 1 : self._width + 1]
            worker.run({stage.source: view(source, first + TILE - 1, last + TILE + 1)}, stage.middle, target)
        if low == 0:
            middle[:, :TILE] = 0  # above the image
        middle[:, last - low + TILE :] = 0  # below it


class Worker:
    """Runs parts of a net in one thread."""

    def __init__(self, net: Any) -> None:
        self._net = net
        # ncnn's own pools would keep all memory that was ever used.
        self._pools = ncnn.PoolAllocator(), ncnn.PoolAllocator()

    def extract(self, inputs: Mapping[str, Any], output: str) -> Any:
        """A result in ncnn's layout. It must not outlive the worker, whose memory it uses."""
        extractor, result = self._net.create_extractor(), ncnn.Mat()
        extractor.set_blob_allocator(self._pools[0])
        extractor.set_workspace_allocator(self._pools[1])
        for name, mat in inputs.items():
            extractor.input(name, mat)
        if extractor.extract(output, result, 1):  # 1: not converted
            raise ModelError("ncnn failed, perhaps for want of memory: allow less memory.")
        return result

    def run(self, inputs: Mapping[str, Any], output: str, target: Map) -> None:
        """Puts a result into `target`, without the columns that it has more."""
        result = self.extract(inputs, output)
        group, size = result.elempack, result.elemsize
        result.w, result.cstep = result.w * group, result.cstep * group
        result.elempack, result.elemsize = 1, size // group
        made = result.numpy()
        target[:] = made.reshape(*made.shape[:2], -1, group)[:, :, : target.shape[2]]


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Map:
    """Zeros whose address is a multiple of what the processor's vectors need."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def view(whole: Map, low: int, high: int) -> Any:
    """Some rows of a map for ncnn, which must not outlive the map."""
    groups, _, columns, group = whole.shape
    mat = ncnn.Mat(whole[0, low:high].reshape(1, high - low, columns * group))
    mat.elempack, mat.elemsize = group, group * whole.itemsize
    mat.w, mat.c, mat.cstep = columns, groups, whole.strides[0] // mat.elemsize
    return mat


def copied(band: Map, scratch: Map) -> Any:
    """A band without the border's columns for ncnn, in `scratch`.

    Some layers need it: they do not heed that the channels of a view are not one after the other.
    """
    inner = band[:, :, 1:-1]
    copy = scratch[: inner.size].reshape(inner.shape)
    copy[:] = inner
    return view(copy, 0, len(copy[0]))
