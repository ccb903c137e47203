"""Fields of large pictures, block by block: encoded when first needed, kept in memory and on disk.

A block is a square of cells with their features and pixels as half floats, (h, w, C + 3). It is encoded with
the halo that the network's view needs, so that it equals the same cells of the whole picture's field; half
floats change a rendering by less than a tenth of 1/255.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thera.field import HeatField
from thera.field.head import Head
from thera.field.psf import to_numpy
from thera.imaging.tiling import ENCODER_BYTES, Plan
from thera.lru import Memory
from thera.models import Model
from thera.values.planes import Plane

from .cache import Disk

#: Cells a side: larger blocks are encoded with less overlap, smaller ones are there sooner.
LARGEST_BLOCK, SMALLEST_BLOCK = 192, 64
#: Bytes that encoding one block may take, where that leaves a block at all.
ENCODING_MEMORY = 1 << 30

Box = tuple[int, int, int, int]  # top, left, bottom, right, in cells


class Shared:
    """One computation for all who ask for the same thing at once; it ends when nobody waits for it."""

    def __init__(self) -> None:
        self._running: dict[Hashable, tuple[asyncio.Task[Any], list[object]]] = {}

    async def get(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        if key not in self._running:
            self._running[key] = asyncio.create_task(make()), []
        task, waiting = self._running[key]
        waiting.append(me := object())
        try:
            return await asyncio.shield(task)
        finally:
            waiting.remove(me)
            if task.done() or not waiting:
                # At once: who comes next must not find a task that was given up.
                if self._running.get(key, (None,))[0] is task:
                    del self._running[key]
                task.cancel()


@dataclass(frozen=True)
class Field:
    """The field of one plane of a picture, of which some cells may be known: its key and its blocks' plan."""

    key: Hashable
    plane: Plane
    plan: Plan

    @property
    def shape(self) -> tuple[int, int]:
        return self.plan.source

    def touched(self, box: Box) -> list[Box]:
        """The blocks that have cells of a box."""
        top, left, bottom, right = box
        return [
            (t, le, b, r)
            for t, b in pairwise(self.plan.rows)
            for le, r in pairwise(self.plan.cols)
            if t < bottom and b > top and le < right and r > left
        ]


class Blocks:
    """All fields of a server. `encoders` encode as many blocks at once as they are; `readers` read files."""

    def __init__(
        self, model: Model, memory: Memory, disk: Disk | None, encoders: Executor, readers: Executor
    ) -> None:
        self.model, self._memory, self._disk = model, memory, disk
        self._encoders, self._readers = encoders, readers
        self._shared = Shared()
        self.encoded = 0  # blocks so far
        # Rendering is the processor's, whatever encodes.
        head = model.encode(np.zeros((1, 1, 3), np.float32)).head
        self.head = Head(to_numpy(head.weight), to_numpy(head.bias), head.components, head.kappa)
        self.identity = _identity(model, self.head)
        self.side = block_side(model)

    def _field(self, key: Hashable, plane: Plane) -> Field:
        shape = plane.samples.shape[:2]
        rows, cols = ((*range(0, length, self.side), length) for length in shape)
        info = self.model.info
        plan = Plan(shape, shape, rows, cols, info.halo, info.alignment, reach=0, memory=0, encoded=0)
        return Field((key, plane.channels.start, self.identity, self.side), plane, plan)

    async def crop(self, key: Hashable, plane: Plane, box: Box) -> HeatField:
        """The field of the cells of a box; blocks that are not known are encoded, one after the other.

        `key` tells the picture from all others.
        """
        field = self._field(key, plane)
        top, left, bottom, right = box
        cells: NDArray[np.float32] | None = None
        for block in field.touched(box):
            known = await self._block(field, block)
            if cells is None:
                cells = np.empty((bottom - top, right - left, known.shape[2]), np.float32)
            t, le = max(top, block[0]), max(left, block[1])
            b, r = min(bottom, block[2]), min(right, block[3])
            part = known[t - block[0] : b - block[0], le - block[1] : r - block[1]]
            cells[t - top : b - top, le - left : r - left] = part
        assert cells is not None, box
        return HeatField.of(self.head, cells[..., :3], cells[..., 3:])

    async def _block(self, field: Field, block: Box) -> NDArray[np.float16]:
        known = self._memory.get((field.key, block))
        if known is None:
            known = await self._shared.get((field.key, block), lambda: self._make(field, block))
        return known

    async def _make(self, field: Field, block: Box) -> NDArray[np.float16]:
        run = asyncio.get_running_loop().run_in_executor
        known = None
        if self._disk is not None:
            known = await run(self._readers, self._stored, field, block)
        return await run(self._encoders, self._encode, field, block) if known is None else known

    def _stored(self, field: Field, block: Box) -> NDArray[np.float16] | None:
        assert self._disk is not None
        known = self._disk.get((field.key, block))
        if known is None or known.dtype != np.float16 or known.shape[:2] != _size(block):
            return None
        self._memory.put((field.key, block), known, known.nbytes)
        return known

    def _encode(self, field: Field, block: Box) -> NDArray[np.float16]:
        """A block's cells; they are kept also when nobody waits for them any more."""
        top, left, bottom, right = block
        H, W = field.shape
        above, below = field.plan.with_halo(top, bottom, H)
        before, behind = field.plan.with_halo(left, right, W)
        encoded = self.model.encode(field.plane.cells(above, before, below, behind))
        part = encoded.crop(slice(top - above, bottom - above), slice(left - before, right - before))
        cells = np.empty((*_size(block), 3 + part.features.shape[2]), np.float16)
        cells[..., :3], cells[..., 3:] = to_numpy(part.pixels), to_numpy(part.features)
        self.encoded += 1
        self._memory.put((field.key, block), cells, cells.nbytes)
        if self._disk is not None:
            self._disk.put((field.key, block), cells)
        return cells


def block_side(model: Model) -> int:
    """Cells a side of the blocks of a model: as large as its encoder may be given."""
    spec = model.info.spec
    per_pixel = ENCODER_BYTES[spec.backbone] + ENCODER_BYTES[spec.variant]
    fits = math.isqrt(ENCODING_MEMORY // per_pixel) - 2 * (model.info.halo + model.info.alignment)
    return min(LARGEST_BLOCK, max(SMALLEST_BLOCK, fits // 8 * 8))


def _size(box: Box) -> tuple[int, int]:
    return box[2] - box[0], box[3] - box[1]


def _identity(model: Model, head: Head) -> str:
    """What tells fields of one network from those of another: all that its file says, and its last layer."""
    told = json.dumps(model.info.metadata, sort_keys=True, default=str), model.info.precision
    digest = hashlib.sha256(repr(told).encode())
    digest.update(np.ascontiguousarray(head.weight).tobytes() + np.ascontiguousarray(head.bias).tobytes())
    return digest.hexdigest()
