"""Maps as ncnn keeps them in memory, and one thread's calls of a net that read and write them.

A map is an array of groups × rows × columns × channels of a group, as ncnn wants it, with a border of zeros:
`TILE` rows above, and one row or column on the other sides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import ncnn
import numpy as np
from numpy.typing import NDArray

from thera.errors import ModelError

Map = NDArray[Any]

TILE = 4  # the side of the squares that ncnn's Winograd transforms compute
ALIGNMENT = 64  # bytes of the longest vectors


class Panel(NamedTuple):
    """The columns `low` to `high` of a map, made from those of `left` to `right`."""

    low: int
    high: int
    left: int
    right: int


class Band(NamedTuple):
    """The rows `low` to `high` of a panel; `starts` is true for the first of a part."""

    low: int
    high: int
    starts: bool
    panel: Panel

    @property
    def rows(self) -> slice:
        """Its rows in a map, which has a border."""
        return slice(self.low + TILE, self.high + TILE)


class Worker:
    """Runs parts of a net in one thread."""

    def __init__(self, net: Any) -> None:
        self._net = net
        # ncnn's own pools would keep all memory that was ever used.
        self._pools = ncnn.PoolAllocator(), ncnn.PoolAllocator()
        self.kept = Scratch()

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

    def run(
        self, inputs: Mapping[str, Any], output: str, target: Map, left: int = 0, kept: Map | None = None
    ) -> None:
        """Stores a result in `target`, plus `kept` if there is one.

        The result may have more columns: `left` of them are left out on the left, the others on the right.
        """
        result = self.extract(inputs, output)
        groups, rows, width, group = target.shape
        layout = result.c, result.h, result.elempack, result.elemsize
        if layout != (groups, rows, group, group * target.itemsize):
            raise ModelError("ncnn gave a result of an unexpected shape: use another engine, such as onnx.")
        columns = result.w
        # NumPy takes long to learn the type and shape of a `Mat`, but not if it is one line of numbers.
        result.dims, result.w, result.h, result.c = 1, groups * result.cstep * group, 1, 1
        result.elempack, result.elemsize = 1, target.itemsize
        # Some unused memory follows each group.
        whole = np.frombuffer(result, target.dtype).reshape(groups, -1)[:, : rows * columns * group]
        made = whole.reshape(groups, rows, columns, group)[:, :, left : left + width]
        if kept is None:
            target[:] = made
        else:
            np.add(made, kept, out=target)


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


class Middle:
    """A band of the result between a stage's two convolutions. `whole` also holds the rows around it."""

    def __init__(self, whole: Map) -> None:
        self.whole = whole
        self._views: dict[int, Any] = {}  # making one takes Python, for which threads wait in turn

    def of(self, band: Band) -> Any:
        """What the second convolution reads."""
        height = band.high - band.low
        if height not in self._views:
            self._views[height] = view(self.whole, TILE - 1, height + TILE + 1)
        return self._views[height]


class Scratch:
    """Copies parts of maps to one place in memory, without gaps between rows or channels, as ncnn needs.

    The memory is reused. The view that ncnn reads is made anew only when a size changes.
    """

    def __init__(self) -> None:
        self._memory = zeros((0,), np.dtype(np.uint8))
        self._sizes: tuple[Any, ...] = ()
        self._copy, self._view = self._memory, None

    def copied(self, whole: Map, band: Band, across: int, halo: int = 0) -> Any:
        """A band of a map with a halo of so many pixels, in a copy that zeros widen to `across` columns."""
        panel, rows = band.panel, band.rows
        part = whole[:, rows.start - halo : rows.stop + halo, panel.left + 1 - halo : panel.right + 1 + halo]
        sizes = part.shape, across, halo
        if sizes != self._sizes:
            self._sizes = sizes
            groups, height, width, group = part.shape
            shape = groups, height, across - 2 + 2 * halo, group
            size = math.prod(shape) * part.itemsize
            if size > len(self._memory):
                self._memory = zeros((size,), np.dtype(np.uint8))
            copy = self._memory[:size].view(part.dtype).reshape(shape)
            copy[:, :, width:] = 0
            self._copy, self._view = copy[:, :, :width], view(copy, 0, height)
        self._copy[:] = part
        return self._view
