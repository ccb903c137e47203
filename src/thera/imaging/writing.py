"""Write image files: completely or not at all, and band by band if the format allows it."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from thera.files import replacing

from .avif import write_deep_avif
from .formats import Format, format_of
from .jxl import write_jxl
from .light import write_exr, write_hdr
from .metadata import COMMENT, Metadata
from .picture import Layout, Picture
from .png import write_png
from .tiff import write_tiff

#: The default quality: differences are invisible without a magnifier. At 100, WebP and JPEG XL lose nothing.
QUALITY = {"jpeg": 95, "webp": 95, "avif": 90, "jxl": 100}


def write(
    path: str | Path,
    picture: Picture,
    *,
    form: Format | None = None,
    quality: int | None = None,
) -> None:
    """Writes a picture from memory."""
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
    elif form.name == "exr":
        write_exr(file, layout, bands)
    elif form.name == "hdr":
        write_hdr(file, layout, bands)
    elif form.name == "jxl":
        write_jxl(file, layout, metadata, bands, QUALITY["jxl"] if quality is None else quality)
    elif form.name == "avif" and layout.dtype == np.uint16:
        write_deep_avif(file, layout, metadata, bands, QUALITY["avif"] if quality is None else quality)
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
    """Collects the bands in one Pillow image (up to four bytes per pixel), which Pillow encodes."""
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
    if form.name == "jpeg":
        options["comment"] = dict(metadata.text).get(COMMENT)
        options["extra"] = _photoshop_segment(metadata.iptc) if metadata.iptc else None
    if form.lossy:
        options["quality"] = QUALITY[form.name] if quality is None else quality
    if form.name in ("jpeg", "avif"):
        options["subsampling"] = "4:4:4"  # no chroma subsampling: it would discard computed pixels
    if form.name == "webp" and options["quality"] == 100:
        options |= {"lossless": True, "exact": True}
    image.save(file, form.name.upper(), **{key: value for key, value in options.items() if value is not None})


def _photoshop_segment(iptc: bytes) -> bytes:
    """The segment of a JPEG in which Photoshop, and all others, keep the IPTC block."""
    block = b"Photoshop 3.0\0" + b"8BIM\x04\x04\0\0" + struct.pack(">I", len(iptc)) + iptc
    block += bytes(len(block) % 2)
    return b"\xff\xed" + struct.pack(">H", len(block) + 2) + block
