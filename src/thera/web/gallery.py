"""The pictures of an open page: their files, their pixels, and the fields made of them."""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.field import HeatField
from thera.imaging.reading import read
from thera.memory import physical_memory
from thera.models import Model, load, shipped
from thera.web.encoding import Region, encode
from thera.web.packing import MOST_COMPONENTS
from thera.web.pixels import as_png, displayed, eight_bits, shrunk

#: Pixels of a picture, or of a part of one, that is encoded in one piece: a quarter of a gigabyte of packed
#: field. On a small machine, fewer.
MOST_CELLS = min(1 << 20, (physical_memory() or 4 << 30) // 4096)
#: Pixels of a picture that is opened unless asked otherwise: each takes 12 bytes as long as it is.
MOST_SHOWN = min(1 << 27, (physical_memory() or 4 << 30) // 64)
#: Pixels of the plain picture that the page gets; a larger one is made smaller.
MOST_PIXELS = 1 << 22
#: Bytes of fields that are kept.
FIELD_BYTES = 1 << 30
#: Bytes of a file's name: file systems take 255, and the name of a result is longer than its picture's.
NAME_BYTES = 200


@dataclass(frozen=True)
class Entry:
    """One picture: its file as it came, and how it is shown."""

    id: str
    name: str
    path: Path
    pixels: NDArray[np.float32]  # H×W×3, as displayed
    notes: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int]:
        H, W = self.pixels.shape[:2]
        return H, W

    @property
    def whole(self) -> bool:
        """Whether it is small enough to be encoded in one piece."""
        return self.shape[0] * self.shape[1] <= MOST_CELLS

    def describe(self) -> dict[str, object]:
        (height, width), notes = self.shape, list(self.notes)
        facts = {"id": self.id, "name": self.name, "width": width, "height": height}
        return {**facts, "whole": self.whole, "notes": notes}

    def png(self) -> bytes:
        """The plain picture, of at most MOST_PIXELS."""
        H, W = self.shape
        pixels = eight_bits(self.pixels)
        if H * W > MOST_PIXELS:
            factor = (MOST_PIXELS / (H * W)) ** 0.5
            pixels = shrunk(pixels, (max(1, round(H * factor)), max(1, round(W * factor))))
        return as_png(pixels)


class Gallery:
    """Pictures by their names in the page's addresses, models by theirs, and the fields made last."""

    def __init__(
        self,
        engine: str = "auto",
        device: str = "auto",
        precision: str = "f32",
        max_pixels: int | None = None,
    ) -> None:
        self._options = engine, device, precision
        self._max_pixels = MOST_SHOWN if max_pixels is None else max_pixels
        self._entries: dict[str, Entry] = {}
        self._models: dict[str, Model] = {}
        self._fields: OrderedDict[tuple[str, str, Region | None], HeatField] = OrderedDict()
        self._lock, self._encoding = Lock(), Lock()

    @cached_property
    def folder(self) -> Path:
        """Where files are that came through the page, and those that were made for it."""
        return Path(tempfile.mkdtemp(prefix="thera-app-"))

    def close(self) -> None:
        if "folder" in self.__dict__:
            shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, path: Path, name: str | None = None) -> Entry:
        """Reads a picture; `name` is what its owner calls it."""
        picture = read(path, self._max_pixels)
        notes = list(picture.notes)
        if picture.alpha:
            notes.append("transparency is shown on white; a download keeps it")
        if picture.metadata.icc:
            notes.append(
                "its colour profile is kept in downloads, and the view shows its numbers as they are"
            )
        entry = Entry(secrets.token_urlsafe(9), name or path.name, path, displayed(picture), tuple(notes))
        self._entries[entry.id] = entry
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

    def find(self, id: str) -> Entry | None:
        return self._entries.get(id)

    def all(self) -> list[Entry]:
        return list(self._entries.values())

    def remove(self, entry: Entry) -> None:
        self._entries.pop(entry.id, None)
        with self._lock:
            for key in [key for key in self._fields if key[0] == entry.id]:
                del self._fields[key]
        if "folder" in self.__dict__ and self.folder in entry.path.parents:
            shutil.rmtree(entry.path.parent, ignore_errors=True)

    def model(self, name: str) -> Model:
        with self._lock:
            if name not in self._models:
                self._models[name] = load(name, *self._options)
            return self._models[name]

    def live(self, name: str) -> bool:
        """Whether a page can evaluate this model's fields itself."""
        known = {model.name: model.spec.components for model in shipped()}  # which need not be loaded
        components = known[name] if name in known else self.model(name).info.components
        return components <= MOST_COMPONENTS

    def field(
        self,
        entry: Entry,
        model: str,
        region: Region | None = None,
        progress: Callable[[float], object] = lambda share: None,
    ) -> HeatField:
        """The field of a picture or of a part of it, from the last ones or made now."""
        key = entry.id, model, region
        with self._encoding:
            with self._lock:
                if key in self._fields:
                    self._fields.move_to_end(key)
                    return self._fields[key]
            check_region(entry, region)
            field = encode(self.model(model), entry.pixels, region, progress)
            with self._lock:
                self._fields[key] = field
                while len(self._fields) > 1 and sum(map(_nbytes, self._fields.values())) > FIELD_BYTES:
                    self._fields.popitem(last=False)
        return field


def check_region(entry: Entry, region: Region | None) -> None:
    """Refuses what is no part of the picture, or too much of it."""
    H, W = entry.shape
    top, left, bottom, right = region or (0, 0, H, W)
    if not (0 <= top < bottom <= H and 0 <= left < right <= W):
        raise InvalidInput(f"The region {region} is no part of a picture of {H}×{W}: ask for one within it.")
    if (bottom - top) * (right - left) > MOST_CELLS:
        raise InvalidInput(
            f"{right - left}×{bottom - top} pixels are more than the {MOST_CELLS:,} that are encoded in one "
            "piece: zoom in, or download the result at the size you want."
        )


def safe_name(name: str) -> str:
    """A file name with nothing in it that means something to a file system.

    >>> safe_name("../../etc/päss wd.PNG")
    'päss wd.PNG'
    """
    last = re.split(r"[/\\]", name)[-1]
    kept = re.sub(r"[\x00-\x1f\x7f<>:\"|?*]", "", last)
    return kept.encode(errors="ignore")[-NAME_BYTES:].decode(errors="ignore").strip(". ") or "picture"


def _nbytes(field: HeatField) -> int:
    return int(field.pixels.nbytes + field.features.nbytes)
