"""Writing files so that they appear whole or not at all, and saying why one cannot be written."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from thera.errors import ImageFileError, TheraError

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows has no such locks: what a killed process left there stays
    fcntl = None

#: Seconds between making a partial file and holding it, at most.
NEW = 2.0


@contextmanager
def replacing(path: Path, error: type[TheraError] = ImageFileError) -> Iterator[BinaryIO]:
    """A file to write that becomes `path` when all went well, and otherwise leaves nothing behind."""
    with replacing_path(path, error) as temporary, temporary.open("x+b") as file, held(temporary):
        yield file


@contextmanager
def replacing_path(path: Path, error: type[TheraError] = ImageFileError) -> Iterator[Path]:
    """A path for a new file or folder that becomes `path` when all went well; otherwise it is removed."""
    remove_stale(path)
    # Named before it is made: a signal at any moment finds a name to remove.
    temporary = partial_path(path)
    try:
        yield temporary
        if temporary.is_dir() and path.is_dir():
            shutil.rmtree(path)
        temporary.replace(path)
    except OSError as problem:
        if problem.errno is None:
            raise
        raise error(f"{path} could not be written: {reason_of(problem)}.") from problem
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def partial_path(path: Path) -> Path:
    """A new name beside `path` for what becomes `path` when it is whole."""
    return path.with_name(f".{path.stem[:40]}-{os.urandom(4).hex()}.part")


def partial_stem(path: Path) -> str | None:
    """The stem, up to 40 letters of it, of what a partial file or folder was to become; None for others.

    >>> partial_stem(partial_path(Path("photo.png")))
    'photo'
    """
    name = re.fullmatch(r"\.(.*)-[0-9a-f]{8}\.part", path.name)
    return None if name is None else name[1]


@contextmanager
def held(path: Path, required: bool = False) -> Iterator[None]:
    """Within it, a lock shows other processes that somebody writes this partial file or folder.

    A file system may have no locks. Then nothing is locked; with `required`, an OSError is raised.
    """
    handle = os.open(path, os.O_RDONLY) if fcntl else -1
    try:
        if fcntl:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if required:
                    raise
        yield
    finally:
        if fcntl:
            os.close(handle)


def remove_stale(path: Path) -> None:
    """Removes partial files and folders of an output that a killed process left behind.

    One that somebody holds is not touched, nor one that is so new that it may not be held yet.
    """
    if fcntl is None:
        return
    for other in _partials_in(path.parent):
        with suppress(OSError):
            if partial_stem(other) == path.stem[:40] and time.time() - other.stat().st_mtime > NEW:
                with held(other, required=True):
                    shutil.rmtree(other) if other.is_dir() else other.unlink()


@lru_cache(maxsize=256)
def _partials_in(folder: Path) -> tuple[Path, ...]:
    """The partial files and folders that were in a folder when this process first wrote to it.

    A folder may hold many thousand files, so it is not listed again for each that is written.
    """
    return tuple(folder.glob(".*.part"))


def reason_of(error: OSError) -> str:
    """Why a file could not be written, within a sentence."""
    if error.errno == errno.ENOSPC:
        return "the disk is full"
    return (error.strerror or str(error)).lower()


def folder_given(output: Path) -> ImageFileError:
    return ImageFileError(f"The output {output} is a folder; a file name was expected.")


def check_place(output: Path, overwrite: bool, source: Path | None = None) -> None:
    """Refuses a file that cannot be written, exists (unless `overwrite`), or is the input itself."""
    try:
        kind = output.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        kind = 0
    except OSError as error:  # a name too long, a link to itself
        raise ImageFileError(f"{output} could not be written: {reason_of(error)}.") from error
    if stat.S_ISDIR(kind):
        raise folder_given(output)
    if not output.parent.is_dir():
        raise ImageFileError(f"The folder {output.parent} of the output does not exist: make it first.")
    if not os.access(output.parent, os.W_OK):
        raise ImageFileError(f"The folder {output.parent} may not be written to: check its permissions.")
    if kind:
        if source is not None and os.path.exists(source) and os.path.samefile(source, output):
            raise ImageFileError(f"The output {output} is the input itself: choose another name.")
        if not stat.S_ISREG(kind):
            raise ImageFileError(f"The output {output} is a device: choose another name.")
        if not overwrite:
            raise ImageFileError(f"The output {output} exists: pass --overwrite to replace it.")


def cache_folder() -> Path:
    """Where this system keeps what Thera can compute again."""
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".cache"
    return Path(home) / "thera"


def recalled(name: str) -> dict[str, Any]:
    """What `remember` has kept in a file of the cache folder: nothing if the file is missing or damaged."""
    with suppress(OSError, ValueError, RuntimeError):  # the last where there is no home
        kept = json.loads((cache_folder() / name).read_bytes())
        if isinstance(kept, dict):
            return kept
    return {}


def remember(name: str, key: str, value: Any) -> None:
    """Keeps a value in a file of the cache folder, if it can be written: it is only a convenience."""
    with suppress(OSError, RuntimeError, TheraError):
        path = cache_folder() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps(recalled(name) | {key: value}, indent=1).encode())
