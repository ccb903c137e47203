"""Writing image files: whole or not at all, in bands where the format allows it."""

import errno
import os
import tempfile
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
    mode = {"grey": "L", "rgb": "RGB", "cmyk": "CMYK"}[layout.colour] + ("A" if layout.alpha else "")
    image = Image.new(mode, (layout.width, layout.height))
    row = 0
    for band in bands:
        image.paste(Image.fromarray(band[..., 0] if layout.channels == 1 else band, mode), (0, row))
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
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.stem[:40]}-", suffix=".part", dir=path.parent)
    except OSError as error:
        raise ImageFileError(f"No file can be written in {path.parent}: {_reason(error)}.") from None
    os.close(handle)
    try:
        with open(temporary, "w+b") as file:  # by its name, which tifffile asks for
            yield file
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        if error.errno is None:
            raise
        raise ImageFileError(f"{path} could not be written: {_reason(error)}.") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the disk is full"
    return (error.strerror or str(error)).lower()
