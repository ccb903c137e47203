"""The pictures of an open page: their files, their samples, and the fields made of them."""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from thera.errors import InvalidInput, UnknownImage
from thera.field import Filter, HeatField
from thera.field.grid import Box
from thera.imaging.picture import Picture
from thera.imaging.reading import read
from thera.imaging.srgb import without_nodata
from thera.lru import LRU
from thera.memory import physical_memory, release_freed
from thera.models import Model, load, shipped
from thera.tiled import Options, TiledField, tile_side
from thera.tiled.plan import PROCESS_MEMORY
from thera.values.planes import Plane
from thera.web.jobs import FairLock
from thera.web.packing import MOST_COMPONENTS, PackedField
from thera.web.pixels import DisplayedPicture, as_png

#: Cells that are encoded for one view: a quarter of a gigabyte of packed field. On a small machine, fewer.
MOST_CELLS = min(1 << 20, (physical_memory() or 4 << 30) // 4096)
#: Pixels of a picture that is opened unless asked otherwise.
MOST_SHOWN = min(1 << 27, (physical_memory() or 4 << 30) // 32)
#: Pixels of the plain picture that the page gets; a larger one is made smaller.
MOST_PIXELS = 1 << 22
#: Bytes that the program takes, about, unless another number is given.
MEMORY = 5 << 28
#: Bytes of fields that are kept at least, however large the pictures are and while a file is made.
LEAST_KEPT = 64 << 20
#: Sides in cells of encoded tiles. Large ones have less overlap; small ones are there sooner and take less
#: memory. Of a picture that is encoded whole, of a part that is drawn live, of other parts, and the least.
LARGEST_TILE, LIVE_TILE, SOON_TILE, SMALLEST_TILE = 512, 320, 192, 64
#: Sides of the pictures that a model's speed is measured by: when there is time, and before its first job.
MEASURED, QUICK = 96, 64
#: Bytes of a file's name: file systems take 255, and the name of a result is longer than its picture's.
NAME_BYTES = 200


@dataclass(frozen=True)
class Entry:
    """One picture: its file as it came, its samples as the file had them, and how it is shown."""

    id: str
    name: str
    path: Path
    picture: Picture
    shown: DisplayedPicture
    notes: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.shown.shape

    @property
    def cells(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def whole(self) -> bool:
        """True if it is small enough for all of it to be encoded."""
        return self.cells <= MOST_CELLS

    def describe(self) -> dict[str, object]:
        (height, width), notes = self.shape, list(self.notes)
        facts = {"id": self.id, "name": self.name, "width": width, "height": height, "notes": notes}
        return {**facts, "whole": self.whole, "transparent": self.shown.transparent}


class KeptTiles:
    """The encoded tiles of one picture and model, among all that are kept."""

    def __init__(self, kept: LRU[Any], key: tuple[str, str, int], lock: FairLock) -> None:
        self._kept, self._key, self._lock = kept, key, lock

    def get(self, tile: Box, encode: Callable[[], list[HeatField]]) -> list[HeatField]:
        key = (*self._key, tile)
        fields = self._kept.get(key)
        if fields is None:
            with self._lock:  # whoever waited here finds the tile
                fields = self._kept.get(key)
                if fields is None:
                    fields = [_copied(field) for field in encode()]
                    self._kept.put(key, fields, sum(map(_nbytes, fields)))
                    release_freed()
        return fields


class Gallery:
    """Pictures by their names in the page's addresses, models by theirs, and the tiles encoded last."""

    def __init__(
        self,
        engine: str = "auto",
        device: str = "auto",
        precision: str = "auto",
        max_pixels: int | None = None,
        memory: int | None = None,
    ) -> None:
        self._options = engine, device, precision
        self._max_pixels = MOST_SHOWN if max_pixels is None else max_pixels
        self._memory = MEMORY if memory is None else memory
        self._entries: dict[str, Entry] = {}
        self._models: dict[str, Model] = {}
        self._kept: LRU[Any] = LRU(0)  # encoded tiles, and previews
        self._large_jobs = self._packing = 0  # jobs of large pictures, and bytes of fields, that are made now
        # Two encoders at once would be slower than one after the other, and need twice the memory.
        self._loading, self._encoding, self._counting = Lock(), FairLock(), Lock()
        #: Seconds for a million pixels that a model takes on this machine, where it was measured.
        self.speeds: dict[str, float] = {}
        self._share_memory()

    @cached_property
    def folder(self) -> Path:
        """Where files are that came through the page, and those that were made for it."""
        return Path(tempfile.mkdtemp(prefix="thera-app-"))

    def close(self) -> None:
        if "folder" in self.__dict__:
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- pictures

    def add(self, path: Path, name: str | None = None) -> Entry:
        """Reads a picture; `name` is what its owner calls it."""
        picture = read(path, self._max_pixels)
        notes = list(picture.notes)
        shown = DisplayedPicture(without_nodata(picture))
        if shown.transparent and not picture.alpha:
            notes.append("Nodata is shown on white.")
        elif shown.transparent:
            notes.append("Transparency is shown on white. PNG, WebP, AVIF, TIFF and JPEG XL keep it.")
        if picture.metadata.icc:
            notes.append("The view shows its colours in sRGB. A download keeps its colour profile.")
        entry = Entry(secrets.token_urlsafe(9), name or path.name, path, picture, shown, tuple(notes))
        self._entries[entry.id] = entry
        self._share_memory()
        release_freed()
        return entry

    @contextmanager
    def place(self, name: str) -> Iterator[Path]:
        """Where to put a file of this name: in a folder of its own, which is gone if anything goes wrong."""
        folder = self.folder / secrets.token_hex(8)
        folder.mkdir()
        try:
            yield folder / safe_name(name)
        except BaseException:  # whoever sent the file may have gone
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def find(self, id: str) -> Entry:
        if id not in self._entries:
            raise UnknownImage("This picture is not open any more: drop it again.")
        return self._entries[id]

    def all(self) -> list[Entry]:
        return list(self._entries.values())

    def remove(self, entry: Entry, keep_file: bool = False) -> None:
        """Closes a picture. `keep_file`: until the program ends, for a job that may still read it."""
        self._entries.pop(entry.id, None)
        self._kept.discard(lambda key: isinstance(key, tuple) and key[0] == entry.id)
        self._share_memory()
        if not keep_file and "folder" in self.__dict__ and self.folder in entry.path.parents:
            shutil.rmtree(entry.path.parent, ignore_errors=True)

    def preview(self, entry: Entry, most: int = MOST_PIXELS) -> bytes:
        """The plain picture as a PNG, of at most `most` pixels."""
        H, W = entry.shape
        factor = min(1.0, (most / (H * W)) ** 0.5)
        size = max(1, round(H * factor)), max(1, round(W * factor))
        means = partial(entry.shown.means, (0, 0, H, W), size)
        return self._kept.get_or_make((entry.id, "preview", most), lambda: memoryview(as_png(means())))

    # ---- memory

    def _share_memory(self) -> None:
        """Fields get half of what the process and the open pictures leave; the rest is for work.

        A large picture's job leaves them little as long as it runs.
        """
        share = max(LEAST_KEPT, (self._memory - PROCESS_MEMORY - self._held()) // 2)
        self._kept.resize(LEAST_KEPT if self._large_jobs else share)

    def _held(self) -> int:
        return sum(entry.picture.samples.nbytes for entry in self.all())

    @contextmanager
    def room_for(self, entry: Entry) -> Iterator[int]:
        """Bytes that a job may take, its picture included."""
        self._count_large(not entry.whole)
        try:
            held = self._held() - entry.picture.samples.nbytes + self._packing
            yield self._memory - self._kept.most - held
        finally:
            self._count_large(-(not entry.whole))

    def _count_large(self, change: int) -> None:
        with self._counting:  # jobs run in several threads
            self._large_jobs += change
            self._share_memory()

    # ---- fields

    @property
    def models(self) -> list[str]:
        """The models to choose from: those that were loaded, and those that ship."""
        return list(dict.fromkeys([*self._models, *self._shipped]))

    @cached_property
    def _shipped(self) -> dict[str, int]:
        """The components of each model that ships; it need not be loaded. Each tile asks for them."""
        return {model.name: model.spec.components for model in shipped()}

    def known(self, model: str) -> str:
        """The name itself; an error if there is no such model to choose."""
        if model not in self.models:
            raise InvalidInput(f"There is no model {model!r} here: choose {' or '.join(self.models)}.")
        return model

    def model(self, name: str) -> Model:
        with self._loading:
            if name not in self._models:
                self._models[name] = load(name, *self._options)
            return self._models[name]

    def live(self, name: str) -> bool:
        """True if a page can evaluate this model's fields itself."""
        known = self._shipped
        components = known[name] if name in known else self.model(name).info.components
        return components <= MOST_COMPONENTS

    def drawn_live(self, entry: Entry, model: str) -> bool:
        """True if a page can draw this picture itself: transparent ones are put on white by the program."""
        return self.live(model) and not entry.shown.transparent

    def options(self, psf: Filter | None, ensemble: bool = False, memory: int | None = None) -> Options:
        """Options of everything that is computed here: tiles are encoded one at a time."""
        return Options(psf, ensemble, memory, self._encoding)

    def fields(
        self, entry: Entry, model: str, psf: Filter | None = None, keep: bool = True
    ) -> list[tuple[Plane, TiledField]]:
        """The planes of a picture with their fields: of its colours, then of its transparency if it has any.

        Their tiles are kept from view to view if `keep`.
        """
        loaded = self.model(model)
        largest = LARGEST_TILE if entry.whole else SOON_TILE if keep else LIVE_TILE
        side = min(largest, max(SMALLEST_TILE, tile_side(loaded.info, self._memory - PROCESS_MEMORY)))
        options, found = self.options(psf), []
        for number, plane in enumerate(entry.shown.planes(loaded.info.halo)):
            kept = KeptTiles(self._kept, (entry.id, model, number), self._encoding) if keep else None
            found.append((plane, TiledField(loaded, plane, options, side=side, tiles=kept)))
        return found

    def measure(self, model: str, side: int = MEASURED, times: int = 3) -> None:
        """Finds out how long a model takes here, by the fastest of some encodings of a small picture."""
        loaded = self._models.get(model) or load(model, *self._options)
        picture = np.random.default_rng(0).random((side, side, 3), np.float32)
        spent = []
        with self._encoding:
            loaded.encode(picture[:8, :8])  # the first call also prepares the engine
        for _ in range(times):  # other programs may be busy
            with self._encoding:
                began = time.perf_counter()
                loaded.encode(picture)
                spent.append(time.perf_counter() - began)
        self.speeds[model] = min(spent) * 1e6 / side**2

    def seconds(self, cells: int, model: str) -> float | None:
        """How long a model takes to encode so many cells here, about; None for few of an unknown model."""
        if model not in self.speeds:
            if cells < QUICK**2:  # measuring takes longer
                return None
            self.model(model)
            self.measure(model, QUICK, 1)
        return self.speeds[model] * cells / 1e6

    def pack(
        self, entry: Entry, model: str, region: Box | None, progress: Callable[[float], object]
    ) -> memoryview | None:
        """Encodes a picture, or a part of it, and packs the field if a page can draw it.

        `progress` is called with the share done, and may raise to stop.
        """
        box = region or (0, 0, *entry.shape)
        check_region(entry, box)
        live, packed = self.drawn_live(entry, model), None
        # A page that draws a part of a large picture live needs no tiles of it.
        fields = self.fields(entry, model, keep=entry.whole or not live)
        parts = [(field, part) for _, field in fields for part in field.parts(box)]
        bytes_of = 8 * (1 + MOST_COMPONENTS // 2) * (box[2] - box[0]) * (box[3] - box[1]) * live
        self._packing += bytes_of
        try:
            with self.room_for(entry):
                for done, (field, part) in enumerate(parts, 1):
                    (cells,) = field.fields(part)
                    if live:
                        packed = packed or PackedField(box, cells.head)
                        packed.put(cells, part[:2])
                    progress(done / len(parts))
        finally:
            self._packing -= bytes_of
        return None if packed is None else packed.data


def check_region(entry: Entry, region: Box) -> None:
    """Refuses what is no part of the picture, or too much of it."""
    H, W = entry.shape
    top, left, bottom, right = region
    if not (0 <= top < bottom <= H and 0 <= left < right <= W):
        raise InvalidInput(f"The region {region} is no part of a picture of {H}×{W}: ask for one within it.")
    if (bottom - top) * (right - left) > MOST_CELLS:
        raise InvalidInput(
            f"{right - left}×{bottom - top} pixels are more than the {MOST_CELLS:,} that are encoded for one"
            " view: zoom in, or download the result at the size you want."
        )


def safe_name(name: str) -> str:
    """A file name with nothing in it that means something to a file system.

    >>> safe_name("../../etc/päss wd.PNG")
    'päss wd.PNG'
    """
    last = re.split(r"[/\\]", name)[-1]
    kept = re.sub(r"[\x00-\x1f\x7f<>:\"|?*]", "", last)
    return kept.encode(errors="ignore")[-NAME_BYTES:].decode(errors="ignore").strip(". ") or "picture"


def _copied(field: HeatField) -> HeatField:
    """The field without the halo that its arrays are views of."""
    xp = field.namespace
    return HeatField.of(field.head, *(xp.asarray(each, copy=True) for each in (field.pixels, field.features)))


def _nbytes(field: HeatField) -> int:
    return int(field.pixels.nbytes + field.features.nbytes)
