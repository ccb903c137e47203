"""An ncnn network, computed stage by stage in thin bands of rows, and wide images in panels of columns.

ncnn's Winograd transforms take several times the memory of a layer's input. Those of a band fit into the
processor's caches, and several threads can compute bands of one stage. Between stages the whole map is kept.

`ncnn_maps` says how maps lie in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from threading import BrokenBarrierError, Condition, Event, Thread
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from thera.field.threads import on_all_cores
from thera.models.ncnn_graph import LEAST, Convolution, Stage
from thera.models.ncnn_maps import TILE, Band, Map, Middle, Panel, Scratch, Worker, view, zeros

Part = tuple[int, int]  # rows, from and to

PART = 192  # rows that a thread takes at once, about
TILES = 130  # in a band, about: they take 4 MB in ncnn, because threads share a cache
ACROSS = 80  # in a row of a band, at most: rows of wide images would not fit into the caches


class Bands:
    """Runs a net, whose convolutions have no padding, with `threads` threads on one image."""

    def __init__(self, net: Any, stages: Sequence[Stage], threads: int, tail: Tail | None = None) -> None:
        self.net, self.stages, self.threads, self.tail = net, stages, threads, tail
        worker, image = Worker(net), zeros((3, 3, 3, 1), np.dtype(np.float32))
        result = worker.extract({stages[0].source: view(image, 0, 3)}, stages[0].output)
        # ncnn chooses both for this processor. NumPy has no bfloat16: float16 has the same size.
        self.group = result.elempack
        self.dtype = np.dtype(np.float32 if result.elemsize == 4 * self.group else np.float16)
        del result

    def features(self, image: Map, cancelled: Event) -> NDArray[np.float32]:
        """Rows × columns × channels, for a normalised image of 3 × rows × columns."""
        trunk = Trunk(self, image, cancelled)
        values = self.tail.result(self, trunk.result(), cancelled) if self.tail else trunk.result()
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


class Tail(Protocol):
    """What follows the stages of a network."""

    def result(self, bands: Bands, trunk: Map, cancelled: Event) -> Map:
        """The features, from the last map of the stages. Neither has a border."""


def panels(width: int) -> list[Panel]:
    """The panels of an image of this width. Each is computed from one tile more on both sides."""
    tiles = -(-width // TILE)
    count = -(-tiles // ACROSS)
    cuts = [*(TILE * (tiles * k // count) for k in range(count)), width]
    return [Panel(low, high, max(low - TILE, 0), min(high + TILE, width)) for low, high in pairwise(cuts)]


class Job(ABC):
    """Work of several threads on maps of `height` rows and `width` columns."""

    def __init__(self, bands: Bands, height: int, width: int, cancelled: Event) -> None:
        self._bands, self._cancelled = bands, cancelled
        self._height, self._width = height, width
        self._panels = panels(width)
        # ncnn steps through memory in multiples of the number of tiles. Powers of two would map all steps to
        # the same few lines of a cache, which takes a third more time. So the tiles of a row are odd.
        tiles = max(-(-(panel.right - panel.left) // TILE) for panel in self._panels) | 1
        self._across = TILE * tiles + 2  # columns of a band, with its border
        self._threads = max(1, min(bands.threads, height // LEAST))
        own = max(1, height // self._threads // TILE)
        self._rows = TILE * max(1, min(own, round(TILES / tiles)))  # of a band

    def _parts(self) -> list[Part]:
        """The parts that threads take one by one: more than threads, in case one of them is slowed down."""
        height, threads = self._height, self._threads
        parts = 1 if threads == 1 else max(threads, height // PART)
        return list(pairwise([*(height * k // parts // TILE * TILE for k in range(parts)), height]))

    def _zeros(self, channels: int) -> Map:
        """A map of the whole image."""
        group = self._bands.group
        return zeros((channels // group, self._height + TILE + 1, self._width + 2, group), self._bands.dtype)

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
                self._stop()

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

    @abstractmethod
    def _stop(self) -> None:
        """Ends the waiting of all threads, since one of them has failed."""

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise RuntimeError("The encoding was cancelled.")

    def _finish(
        self,
        worker: Worker,
        stage: Stage | Convolution,
        inputs: dict[str, Any],
        output: Map,
        band: Band,
        kept: Map | None,
    ) -> None:
        """Stores a stage's result for a band in `output`, plus the same band of `kept` if there is one."""
        panel = band.panel
        place = (slice(None), band.rows, slice(panel.low + 1, panel.high + 1))
        target, left = output[place], panel.low - panel.left
        if kept is None:
            worker.run(inputs, stage.output, target, left)
        elif self._bands.dtype == np.float32:  # added as it is stored, which saves a pass over memory
            worker.run(inputs, stage.change, target, left, kept[place])
        else:  # NumPy cannot add bfloat16
            inputs[stage.kept] = worker.kept.copied(kept, band, self._across)
            worker.run(inputs, stage.output, target, left)

    def _bands_of(self, part: Part, height: int) -> Iterator[Band]:
        for panel in self._panels:
            for low in range(*part, height):
                self._check()
                yield Band(low, min(low + height, part[1]), low == part[0], panel)


class Order:
    """Hands out the parts of all stages to threads, in order.

    A part of a stage reads its own rows and some of the two parts beside it, which the stage before must have
    made. So a thread can begin the next stage while others end this one. Two maps are enough: a part
    overwrites rows that only the same three parts of the stage before have read.
    """

    def __init__(self, stages: int, parts: int) -> None:
        self._waiting = deque((stage, part) for stage in range(stages) for part in range(parts))
        self._made = [0] * parts  # stages of each part
        self._changed, self._stopped = Condition(), False

    def tasks(self) -> Iterator[tuple[int, int]]:
        """Stages and parts for one thread. Each is done when the thread asks for the next."""
        while (task := self._next()) is not None:
            yield task
            with self._changed:
                self._made[task[1]] += 1
                self._changed.notify_all()

    def _next(self) -> tuple[int, int] | None:
        with self._changed:
            if not self._waiting:
                return None
            stage, part = self._waiting.popleft()
            beside = slice(max(part - 1, 0), part + 2)
            self._changed.wait_for(lambda: self._stopped or min(self._made[beside]) >= stage)
            return None if self._stopped else (stage, part)

    def stop(self) -> None:
        """No thread gets another task, nor waits for one."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


class Trunk(Job):
    """The stages of a network, one after the other."""

    def __init__(self, bands: Bands, image: Map, cancelled: Event) -> None:
        _, height, width = image.shape
        super().__init__(bands, height, width, cancelled)
        self._rows_of = self._parts()
        self._order = Order(len(bands.stages), len(self._rows_of))
        source = zeros((3, height + TILE + 1, width + 2, 1), np.dtype(np.float32))
        self._inner(source)[..., 0] = image
        widest = max(stage.channels for stage in bands.stages)
        # The image, the first map, and two that take turns.
        self._maps = [source, self._zeros(bands.stages[0].channels)]
        self._maps += [self._zeros(widest) for _ in range(2)]

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
        """Computes parts of stages, as long as there are some."""
        worker, seen = Worker(self._bands.net), Scratch()
        shape = len(self._map(0)), self._rows + TILE + 1, self._across, self._bands.group
        middle = Middle(zeros(shape, self._bands.dtype))
        before = 0
        for turn, part in self._order.tasks():
            stage, source, output = self._bands.stages[turn], self._map(turn - 1), self._map(turn)
            kept = self._map(0) if stage.keeps_first else source
            if turn != before and len(output) != len(source):
                worker = Worker(self._bands.net)  # frees memory, for nothing has the same size as before
            before = turn
            height = self._rows // 2 if stage.expands else self._rows
            for band in self._bands_of(self._rows_of[part], height):
                if stage.middle:
                    self._make_middle(worker, stage, source, middle.whole, band, seen)
                    inputs = {stage.middle: middle.of(band)}
                else:
                    inputs = {stage.source: seen.copied(source, band, self._across, stage.halo)}
                self._finish(worker, stage, inputs, output, band, kept if stage.kept else None)

    def _stop(self) -> None:
        self._order.stop()

    def _make_middle(
        self, worker: Worker, stage: Stage, source: Map, middle: Map, band: Band, seen: Scratch
    ) -> None:
        """Makes the rows low - 1 to high + 1 of a stage's middle; the band before has made the first two.

        Tiles always begin at the same rows and columns, so that the result is the same to the last bit
        whatever the bands, panels and parts.
        """
        panel, low = band.panel, band.low
        first, last = low + 1, min(band.high + 1, self._height)
        if band.starts:
            first -= TILE
            middle[:, :, panel.right - panel.left + 1 :] = 0  # to the right of the image
        else:
            middle[:, TILE - 1 : TILE + 1] = middle[:, self._rows + TILE - 1 :]
        if last > first:
            inputs = seen.copied(source, band._replace(low=first, high=last), self._across, 1)
            columns = slice(1, panel.right - panel.left + 1)
            target = middle[:, first - low + TILE : last - low + TILE, columns]
            worker.run({stage.source: inputs}, stage.middle, target)
        if low == 0:
            middle[:, :TILE] = 0  # above the image
        middle[:, last - low + TILE :] = 0  # below it
