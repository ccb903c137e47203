"""Encoded tiles on disk, up to a number of bytes."""

from __future__ import annotations

import hashlib
import logging
import os
import time
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError
from thera.files import reason_of, replacing

logger = logging.getLogger("thera.serve")
_SUFFIX = ".block.npz"


class Disk:
    """Arrays in files, up to `most` bytes in all; those read longest ago go first.

    Files are written whole or not at all, carry a checksum, and are dropped when they are found damaged: what
    is not here is computed again. An .npz of half floats is half of what `HeatField.save` writes.
    """

    def __init__(self, folder: str | Path, most: int) -> None:
        self.folder, self.most = Path(folder), most
        self._lock = Lock()
        self._reported = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in self.folder.glob(".*.part"):  # of a server that was killed, not of one that runs
                with suppress(FileNotFoundError):  # another server may share the folder, here and below
                    if time.time() - path.stat().st_mtime > 3600:
                        path.unlink()
            found = []
            for path in self.folder.glob(f"*{_SUFFIX}"):
                with suppress(FileNotFoundError):
                    found.append((path, path.stat()))
        except OSError as error:
            raise ImageFileError(
                f"The cache {folder} cannot be used ({error.strerror or error}): name another folder."
            ) from error
        found.sort(key=lambda each: each[1].st_mtime_ns)
        self._sizes = OrderedDict((path.name, status.st_size) for path, status in found)
        self._shrink()

    @property
    def nbytes(self) -> int:
        return sum(self._sizes.values())

    def get(self, key: Hashable) -> NDArray | None:
        path = self._path(key)
        try:
            with np.load(path, allow_pickle=False) as file:
                array: NDArray = file["array"]
            os.utime(path)  # the order of the next start
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError):
            self._remove(path)
            with self._lock:
                self._sizes.pop(path.name, None)
            return None
        with self._lock:
            if path.name in self._sizes:
                self._sizes.move_to_end(path.name)
        return array

    def put(self, key: Hashable, array: NDArray) -> None:
        """Keeps an array. A full disk is no error: it is reported, and the array will be computed again."""
        if array.nbytes > self.most:
            return
        path = self._path(key)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)  # somebody may have deleted it
            with replacing(path) as file:
                np.savez(file, allow_pickle=False, array=array)
            size = path.stat().st_size
        except (ImageFileError, OSError) as error:
            self._report(error)
            return
        self._reported = False
        with self._lock:
            self._sizes.pop(path.name, None)
            self._sizes[path.name] = size
        self._shrink()

    @staticmethod
    def _remove(path: Path) -> None:
        with suppress(OSError):  # the folder may be gone, or not ours any more
            path.unlink(missing_ok=True)

    def _report(self, error: Exception) -> None:
        """Says once, not for every tile, that nothing can be kept."""
        if not self._reported:
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            logger.warning("The cache %s keeps nothing now: %s.", self.folder, reason.rstrip("."))
        self._reported = True

    def _path(self, key: Hashable) -> Path:
        return self.folder / (hashlib.sha256(repr(key).encode()).hexdigest()[:40] + _SUFFIX)

    def _shrink(self) -> None:
        with self._lock:
            total = sum(self._sizes.values())
            while total > self.most:
                name, size = self._sizes.popitem(last=False)
                self._remove(self.folder / name)
                total -= size
