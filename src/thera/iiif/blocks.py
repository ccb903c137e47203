"""Encoded tiles of all pictures: made when they are first needed, kept in memory and on disk.

A tile keeps its cells, pixels and features, as half floats. They change a rendering by less than a tenth of
1/255.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thera.field import HeatField
from thera.field.grid import Box
from thera.field.head import Head
from thera.field.psf import to_numpy
from thera.lru import LRU
from thera.memory import release_freed
from thera.models import Model
from thera.tiled import TiledField, tile_side
from thera.values.planes import Plane

from .cache import Disk

#: Sides in cells: larger tiles are encoded with less overlap, smaller ones are there sooner.
LARGEST_TILE, SMALLEST_TILE = 192, 64
#: Bytes that encoding one tile may take, where that leaves a tile at all.
ENCODING_MEMORY = 1 << 30

Cells = NDArray[np.float16]  # (h, w, 3 + C): pixels, then features


class Shared:
    """Deduplicates concurrent identical computations. One that nobody waits for any more is cancelled."""

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
                # Now, and not when the task has ended: the next request must not find a cancelled task.
                if self._running.get(key, (None,))[0] is task:
                    del self._running[key]
                task.cancel()


@dataclass(frozen=True)
class HalfField:
    """The field of a tile as it is kept; what is cropped of it becomes a field of single floats."""

    head: Head
    cells: Cells

    def crop(self, rows: slice, cols: slice) -> HeatField:
        return HeatField.of(self.head, self.cells[rows, cols, :3], self.cells[rows, cols, 3:])


class GatheredTiles:
    """Tiles that were collected for one rendering."""

    def __init__(self) -> None:
        self.fields: dict[Box, HalfField] = {}

    def get(self, tile: Box, encode: Callable[[], list[HeatField]]) -> list[HalfField]:
        return [self.fields[tile]]


class Blocks:
    """All tiles of a server. `encoders` encode as many at once as they are; `readers` read files."""

    def __init__(
        self, model: Model, memory: LRU[Any], disk: Disk | None, encoders: Executor, readers: Executor
    ) -> None:
        self.model, self._memory, self._disk = model, memory, disk
        self._encoders, self._readers = encoders, readers
        self._shared = Shared()
        self.encoded = 0  # tiles so far
        # Rendering is done on the CPU, whatever encodes.
        head = model.encode(np.zeros((1, 1, 3), np.float32)).head
        self._head = Head(to_numpy(head.weight), to_numpy(head.bias), head.components, head.kappa)
        self.identity = _identity(model, self._head)
        self.side = min(LARGEST_TILE, max(SMALLEST_TILE, tile_side(model.info, ENCODING_MEMORY)))

    async def field(self, key: Hashable, plane: Plane, needed: Callable[[TiledField], Box]) -> TiledField:
        """The field of a plane, with all tiles at hand of the box that is `needed`.

        Unknown tiles are encoded one after the other. `key` tells the picture from all others.
        """
        tiles = GatheredTiles()
        field = TiledField(self.model, plane, side=self.side, tiles=tiles)
        plane_key = (key, plane.group.bands[0], self.identity, self.side)
        for tile in field.tiles(needed(field)):
            tiles.fields[tile] = HalfField(self._head, await self._tile((plane_key, tile), field, tile))
        return field

    async def _tile(self, key: Hashable, field: TiledField, tile: Box) -> Cells:
        cells = self._memory.get(key)
        if cells is None:
            cells = await self._shared.get(key, lambda: self._make(key, field, tile))
        return cells

    async def _make(self, key: Hashable, field: TiledField, tile: Box) -> Cells:
        run, cells = asyncio.get_running_loop().run_in_executor, None
        if self._disk is not None:
            cells = await run(self._readers, self._stored, key, tile)
        return await run(self._encoders, self._encode, key, field, tile) if cells is None else cells

    def _stored(self, key: Hashable, tile: Box) -> Cells | None:
        assert self._disk is not None
        cells = self._disk.get(key)
        if cells is None or cells.dtype != np.float16 or cells.shape[:2] != _size(tile):
            return None
        self._memory.put(key, cells)
        return cells

    def _encode(self, key: Hashable, field: TiledField, tile: Box) -> Cells:
        """The cells of a tile, which are kept even if nobody waits for them any more."""
        (part,) = field.encode(tile)
        cells = np.empty((*_size(tile), 3 + part.features.shape[2]), np.float16)
        cells[..., :3], cells[..., 3:] = to_numpy(part.pixels), to_numpy(part.features)
        self.encoded += 1
        self._memory.put(key, cells)
        if self._disk is not None:
            self._disk.put(key, cells)
        release_freed()
        return cells


def _size(box: Box) -> tuple[int, int]:
    return box[2] - box[0], box[3] - box[1]


def _identity(model: Model, head: Head) -> str:
    """A name that differs from network to network: a digest of what its file says, and of its last layer."""
    facts = json.dumps(model.info.metadata, sort_keys=True, default=str), model.info.precision
    digest = hashlib.sha256(repr(facts).encode())
    digest.update(np.ascontiguousarray(head.weight).tobytes() + np.ascontiguousarray(head.bias).tobytes())
    return digest.hexdigest()
