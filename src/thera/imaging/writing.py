"""Writing image files: whole or not at all, in bands where the format allows it."""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray
from PIL import Image

from thera.errors import ImageFileError

from .formats import Format, format_of
from .metadata import Metadata
from .picture import Layout, Picture
from .png import write_png
from .tiff import write_tiff

#: JPEG, WebP and AVIF at their default: differences that one has to look for with a magnifier.
QUALITY = {"jpeg": 95, "webp": 95, "avif": 90}


def write(
    path: str | Path,
    picture: Picture,
    *,
    form: Format | None = None,
    quality: int | None = None,
) -> None:
    """Writes a picture that is whole in memory."""
    path = Path(path)
    with replacing(path) as file:
        encode(file, picture.layout, picture.metadata, [picture.samples], form or format_of(path), quality)


def encode(
    file: BinaryIO,
    layout: Layout,
    metadata: Metadata,
    bands: Iterable[NDArray],
    form: Format,
    quality: int | None = None,
) -> None:
    """Writes bands of rows (n×W×C) from the top down as one image of format `form`."""
    if form.name == "png":
        write_png(file, layout, metadata, bands)
    elif form.name == "tiff":
        write_tiff(file, layout, metadata, bands)
    else:
        _write_pillow(file, layout, metadata, bands, form, quality)


def _write_pillow(
    file: BinaryIO,
    layout: Layout,
    metadata: Metadata,
    bands: Iterable[NDArray],
    form: Format,
    quality: int | None,
) -> None:
    """Assembles the bands in one Pillow image, of four bytes a pixel, and has Pillow encode it."""
    image = Image.new(layout.mode, (layout.width, layout.height))
    row = 0
    for band in bands:
        image.paste(Image.fromarray(band[..., 0] if layout.channels == 1 else band, layout.mode), (0, row))
        row += len(band)
    options: dict[str, Any] = {
        "icc_profile": metadata.icc,
        "exif": metadata.exif,
        "xmp": metadata.xmp,
        "dpi": metadata.dpi,
    }
    if form.lossy:
        options["quality"] = QUALITY[form.name] if quality is None else quality
    if form.name in ("jpeg", "avif"):
        options["subsampling"] = "4:4:4"  # colours keep every pixel that was computed for them
    if form.name == "webp" and options["quality"] == 100:
        options |= {"lossless": True, "exact": True}
    image.save(file, form.name.upper(), **{key: value for key, value in options.items() if value is not None})


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that becomes `path` when all went well, and otherwise leaves nothing behind."""
    # Named before it is made: a signal at any moment finds a name to remove.
    temporary = partial_path(path)
    try:
        with temporary.open("x+b") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        if error.errno is None:
            raise
        raise ImageFileError(f"{path} could not be written: {reason_of(error)}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def partial_path(path: Path) -> Path:
    """A new name beside `path` for what becomes `path` when it is whole."""
    return path.with_name(f".{path.stem[:40]}-{os.urandom(4).hex()}.part")


def partial_stem(path: Path) -> str | None:
    """The stem, up to 40 letters of it, of what a file or folder was to become, if its name says so.

    >>> partial_stem(partial_path(Path("photo.png")))
    'photo'
    """
    name = re.fullmatch(r"\.(.*)-[0-9a-f]{8}\.part", path.name)
    return None if name is None else name[1]


def reason_of(error: OSError) -> str:
    """Why a file could not be written, within a sentence."""
    if error.errno == errno.ENOSPC:
        return "the disk is full"
    return (error.strerror or str(error)).lower()
