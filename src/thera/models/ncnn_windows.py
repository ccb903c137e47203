"""Pro's Swin layers in ncnn: a few windows at a time, so that what attention needs stays in the caches.

A layer reads no pixels beyond its windows, so each map is overwritten window by window. Between layers, maps
have the layout of `ncnn_maps`; for a layer, its windows are copied to pixels × channels and back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from threading import Barrier, Event
from typing import Any, NamedTuple

import ncnn
import numpy as np
from numpy.typing import NDArray

from thera.kernels.swin.sizes import ALIGNED_WIDTH, AREA, SHIFT, WIDTH, WINDOW
from thera.models.beside import taken
from thera.models.ncnn_bands import Bands, Job
from thera.models.ncnn_graph import Attention, Convolution
from thera.models.ncnn_maps import TILE, Map, Scratch, Worker

WINDOWS = 8  # that are computed at once, at most
APART = -100.0  # added to the logits of pixels that the cyclic shift moved together from opposite borders


class Windows:
    """The steps of `ncnn_graph.pro`. `net` computes attention and norms, on pixels × channels."""

    def __init__(self, net: Any, steps: Sequence[Convolution | Attention]) -> None:
        self.net, self.steps = net, steps

    def result(self, bands: Bands, trunk: Map, cancelled: Event) -> Map:
        """The features from those of EDSR, both groups × rows × columns × channels of a group."""
        job = SwinJob(self, bands, trunk, cancelled)
        del trunk  # frees memory
        return job.result()


class Piece(NamedTuple):
    """Some windows side by side. `rows` and `columns` are those of a map, with its border."""

    rows: Any
    columns: Any
    number: int
    wraps: tuple[bool, bool]  # down and along

    def of(self, whole: Map) -> Map:
        """The pixels of these windows: a view, or a copy if they wrap around."""
        part = whole[:, self.rows, self.columns]
        return np.ascontiguousarray(part) if any(self.wraps) else part

    def windows(self, part: Map) -> Map:
        """Windows × rows × columns × groups × channels of a group: a view."""
        groups, _, _, group = part.shape
        return part.reshape(groups, WINDOW, self.number, WINDOW, group).transpose(2, 1, 3, 0, 4)


class SwinJob(Job):
    """The features of one image."""

    def __init__(self, windows: Windows, bands: Bands, trunk: Map, cancelled: Event) -> None:
        rows, columns = (reflected(n) for n in trunk.shape[1:3])
        super().__init__(bands, len(rows), len(columns), cancelled)
        self._net, self._steps, self._shape = windows.net, windows.steps, trunk.shape
        source = self._zeros(trunk.shape[0] * bands.group)
        self._inner(source)[:] = trunk[:, rows][:, :, columns]
        self._maps = {"trunk": source}
        self._maps |= {name: self._zeros(ALIGNED_WIDTH) for name in "fxy"}
        self._waiting: list[deque[Any]] = [
            deque(self._parts()) if isinstance(step, Convolution) else self._pieces(step.shifted)
            for step in self._steps
        ]
        self._together = Barrier(self._threads)

    def result(self) -> Map:
        self._run()
        groups, height, width, _ = self._shape
        values = self._inner(self._maps["y"])[:groups, :height, :width]
        self._maps.clear()  # frees memory for what follows
        return values

    def _work(self) -> None:
        convolutions, layers = Worker(self._bands.net), Layers(self._net, self._bands.dtype)
        seen = Scratch()
        for step, waiting in zip(self._steps, self._waiting, strict=True):
            source, target = self._maps[step.reads], self._maps[step.writes]
            if isinstance(step, Attention):
                layers.start(step)
                for piece in left(waiting):
                    self._check()
                    layers.run(piece, source, target)
            else:
                target = target[: step.channels // self._bands.group]
                kept = self._maps[step.adds] if step.adds else None
                bands = (band for part in left(waiting) for band in self._bands_of(part, self._rows))
                for band in bands:
                    inputs = {step.source: seen.copied(source, band, self._across, 1)}
                    self._finish(convolutions, step, inputs, target, band, kept)
            self._together.wait()
            self._maps.pop("trunk", None)  # frees memory

    def _stop(self) -> None:
        self._together.abort()

    def _pieces(self, shifted: bool) -> deque[Piece]:
        """All windows, a few of a row at a time."""
        offset, across = SHIFT * shifted, self._width // WINDOW
        parts = -(-across // WINDOWS)
        cuts = [across * k // parts * WINDOW + offset for k in range(parts + 1)]
        tops = range(offset, self._height + offset, WINDOW)
        return deque(self._piece(top, low, high) for top in tops for low, high in pairwise(cuts))

    def _piece(self, top: int, low: int, high: int) -> Piece:
        """Windows that start at row `top`, in the columns from `low` to `high`."""
        count, wraps = (high - low) // WINDOW, (top + WINDOW > self._height, high > self._width)
        if not any(wraps):
            return Piece(slice(top + TILE, top + WINDOW + TILE), slice(low + 1, high + 1), count, wraps)
        rows = np.arange(top, top + WINDOW) % self._height + TILE
        return Piece(rows[:, None], np.arange(low, high) % self._width + 1, count, wraps)


class Layers:
    """Computes Swin layers and norms in one thread, some windows at a time."""

    def __init__(self, net: Any, dtype: np.dtype[Any]) -> None:
        self._worker, self._itemsize = Worker(net), dtype.itemsize
        self._masks: dict[tuple[int, tuple[bool, bool]], NDArray[np.float32]] = {}

    def start(self, step: Attention) -> None:
        self._step = step
        self._masks.clear()

    def run(self, piece: Piece, source: Map, target: Map) -> None:
        """Computes some windows of a map."""
        step = self._step
        # Memory of ncnn's own: it computes norms in place where it knows that nobody else uses the memory.
        mat = ncnn.Mat(WIDTH, piece.number * AREA, elemsize=self._itemsize, elempack=1)
        for pixels, cells in alike(mat, piece.windows(piece.of(source))):
            pixels[:] = cells
        inputs = {step.source: mat}
        if step.mask:
            inputs[step.mask] = ncnn.Mat(self._mask(piece))
        result = self._worker.extract(inputs, step.output)
        part = piece.of(target)
        for pixels, cells in alike(result, piece.windows(part)):
            cells[:] = pixels
        if any(piece.wraps):
            target[:, piece.rows, piece.columns] = part

    def _mask(self, piece: Piece) -> NDArray[np.float32]:
        """What is added to the logits: (heads · windows) × pixels × pixels."""
        key = piece.number, piece.wraps
        if key not in self._masks:
            mask = self._step.table[positions()].transpose(2, 0, 1)[:, None] + separation(*key)
            self._masks[key] = np.ascontiguousarray(mask.reshape(-1, AREA, AREA))  # as ncnn takes it to be
        return self._masks[key]


def left(waiting: deque[Any]) -> Iterator[Any]:
    """What no thread has taken."""
    while (item := taken(waiting)) is not None:
        yield item


def alike(mat: Any, windows: Map) -> Iterator[tuple[Map, Map]]:
    """Views of pixels × channels and of windows, of the same shape, that together hold all channels."""
    group = windows.shape[-1]
    pixels = mat.numpy().reshape(*windows.shape[:3], WIDTH)
    groups, rest = divmod(WIDTH, group)
    whole = pixels[..., : groups * group]
    yield whole.reshape(*whole.shape[:3], groups, group), windows[..., :groups, :]
    if rest:
        yield pixels[..., -rest:], windows[..., groups, :rest]


def reflected(n: int) -> NDArray[np.int64]:
    """The indices 0 … n-1, continued by reflection to the next multiple of the window."""
    period = max(2 * (n - 1), 1)
    at = np.arange(-(-n // WINDOW) * WINDOW) % period
    return np.minimum(at, period - at)


def positions() -> NDArray[np.int64]:
    """64×64: the row of the bias table for each pair of pixels of a window."""
    at = np.indices((WINDOW, WINDOW)).reshape(2, AREA)
    down, along = at[:, :, None] - at[:, None] + WINDOW - 1
    return down * (2 * WINDOW - 1) + along


def separation(count: int, wraps: tuple[bool, bool]) -> NDArray[np.float32]:
    """Windows × 64 × 64: `APART` for pixels from opposite borders. Only the last window wraps along."""
    half = np.arange(WINDOW) >= SHIFT
    sides = np.zeros((count, WINDOW, WINDOW), np.int64)
    sides += 2 * (half & wraps[0])[:, None]
    sides[-1] += half & wraps[1]
    at = sides.reshape(count, AREA)
    return np.where(at[:, :, None] != at[:, None], np.float32(APART), np.float32(0))
