"""The images of a folder, by identifiers that cannot leave it.

An identifier is a file's path within the folder, `maps/berlin.tif`. Followed by `:8x` it is the same
picture as an image of eight times its pixels a side.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from thera.errors import ImageFileError, UnknownImage
from thera.files import reason_of
from thera.imaging.formats import READABLE_SUFFIXES

_ENLARGED = re.compile(r"(.+):([0-9]{1,4})x", re.DOTALL)


@dataclass(frozen=True)
class ImageFile:
    """A file of the folder, served `zoom` times as large. Its `version` changes with its content."""

    name: str
    path: Path
    version: tuple[int, ...]
    zoom: int = 1

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        """The key of everything that is computed from the file."""
        return str(self.path), self.version

    @property
    def identifier(self) -> str:
        """The percent-encoded identifier in a URI."""
        return identifier_of(self.name if self.zoom == 1 else f"{self.name}:{self.zoom}x")


def identifier_of(name: str) -> str:
    """A name as an identifier, percent-encoded."""
    return quote(name, safe=":")


class Folder:
    """A folder of images to serve, each at up to `zoom` times its own size."""

    def __init__(self, path: str | Path, zoom: int = 8) -> None:
        try:
            self.path = Path(path).resolve(strict=True)
        except OSError as error:
            raise ImageFileError(f"The folder {path} cannot be served: {reason_of(error)}.") from error
        if not self.path.is_dir():
            raise ImageFileError(f"{path} is no folder: give the folder that the images are in.")
        self.zoom, self._root = zoom, str(self.path)

    def find(self, encoded: str) -> ImageFile:
        """The image of a percent-encoded identifier.

        A file that is named so is taken before one that is named so up to its `:8x`.
        """
        try:
            name = unquote_to_bytes(encoded).decode()
        except UnicodeDecodeError:
            raise UnknownImage("The identifier is not UTF-8: encode it so, then by percent signs.") from None
        try:
            return self._file(name)
        except UnknownImage:
            larger = _ENLARGED.fullmatch(name)
            if larger is None or not 2 <= int(larger[2]) <= self.zoom:
                raise
            image = self._file(larger[1])
            return ImageFile(image.name, image.path, image.version, int(larger[2]))

    def _file(self, name: str) -> ImageFile:
        unknown = UnknownImage(f"There is no image {name!r} here.")
        parts = name.split("/")
        # Hidden files are not for everyone; "" and ".." would name another place.
        if any(not part or part.startswith(".") or not part.isprintable() for part in parts):
            raise unknown
        if "." in parts[-1] and os.path.splitext(name)[1].lower() not in READABLE_SUFFIXES:
            raise unknown
        # Every tile comes this way: `os.path` takes a third of the time of `pathlib`.
        try:
            path = os.path.realpath(os.path.join(self._root, name), strict=True)
            status = os.stat(path)
        except (OSError, ValueError):  # nothing there, not a name at all, a circle of links
            raise unknown from None
        if not path.startswith(os.path.join(self._root, "")) or not stat.S_ISREG(status.st_mode):
            raise unknown
        version = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
        return ImageFile(name, Path(path), version)

    def names(self) -> Iterator[str]:
        """The names of all images, those of a folder before those of the folders in it."""
        for root, folders, files in os.walk(self.path):
            folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
            for file in sorted(files):
                name = (Path(root) / file).relative_to(self.path).as_posix()
                if file.lower().endswith(READABLE_SUFFIXES):
                    with suppress(UnknownImage):
                        yield self._file(name).name
