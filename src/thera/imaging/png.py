"""Write PNG at 8 or 16 bits, band by band. Pillow writes neither 16-bit colour nor bands."""

import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin

from .deflate import PIECE, deflate, in_order, regrouped
from .metadata import Metadata
from .picture import Layout

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPE = {1: 0, 2: 4, 3: 2, 4: 6}
_PAETH = 4


def write_png(file: BinaryIO, layout: Layout, metadata: Metadata, bands: Iterable[NDArray]) -> None:
    """Writes bands of rows (n×W×C, uint8 or uint16) from the top down as one PNG."""
    file.write(_SIGNATURE)
    bits, colour = 8 * layout.dtype.itemsize, _COLOUR_TYPE[layout.channels]
    header = struct.pack(">IIBBBBB", layout.width, layout.height, bits, colour, 0, 0, 0)
    PngImagePlugin.putchunk(file, b"IHDR", header)
    for name, data in _metadata_chunks(metadata):
        PngImagePlugin.putchunk(file, name, data)

    pixel = layout.channels * layout.dtype.itemsize
    rows = max(1, PIECE // (layout.width * pixel))
    checksum = zlib.adler32(b"")
    PngImagePlugin.putchunk(file, b"IDAT", b"\x78\x9c")

    def compress(piece: tuple[NDArray[np.uint8], NDArray[np.uint8], bool]) -> tuple[bytes, bytes]:
        group, above, last = piece
        filtered = paeth(group, above, pixel).tobytes()
        return filtered, deflate(filtered, wbits=-15, last=last)

    for filtered, compressed in in_order(compress, _pieces(regrouped(bands, rows), layout.height)):
        checksum = zlib.adler32(filtered, checksum)
        PngImagePlugin.putchunk(file, b"IDAT", compressed)
    PngImagePlugin.putchunk(file, b"IDAT", struct.pack(">I", checksum))
    PngImagePlugin.putchunk(file, b"IEND")


def _pieces(
    groups: Iterable[NDArray], height: int
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8], bool]]:
    """Each group of rows as bytes, the row above it, and whether it is the last group."""
    above, done = None, 0
    for group in groups:
        done += len(group)
        big_endian = group.astype(group.dtype.newbyteorder(">"), copy=False)
        rows = np.ascontiguousarray(big_endian).view(np.uint8).reshape(len(group), -1)
        yield rows, np.zeros_like(rows[0]) if above is None else above, done == height
        above = rows[-1]


def paeth(rows: NDArray[np.uint8], above: NDArray[np.uint8], pixel: int) -> NDArray[np.uint8]:
    """The rows minus their Paeth prediction (of left, up and up-left, the nearest to left + up - up-left).

    `pixel` is the number of bytes per pixel. The result has PNG's filter byte in front of each row.
    """
    up = np.concatenate([above[None], rows[:-1]])
    left, corner = np.zeros_like(rows), np.zeros_like(rows)
    left[:, pixel:] = rows[:, :-pixel]
    corner[:, pixel:] = up[:, :-pixel]
    a, b, c = left.astype(np.int16), up.astype(np.int16), corner.astype(np.int16)
    from_left, from_up, from_corner = np.abs(b - c), np.abs(a - c), np.abs(a + b - 2 * c)
    prediction = np.where(from_up <= from_corner, up, corner)
    np.copyto(prediction, left, where=(from_left <= from_up) & (from_left <= from_corner))
    filtered = np.empty((len(rows), rows.shape[1] + 1), np.uint8)
    filtered[:, 0] = _PAETH
    np.subtract(rows, prediction, out=filtered[:, 1:])
    return filtered


def png_chunk(path: Path, wanted: bytes) -> bytes | None:
    """The data of the first chunk of that name before the pixels of a PNG; None if there is none."""
    with path.open("rb") as file:
        file.seek(len(_SIGNATURE))
        while len(head := file.read(8)) == 8:
            length, name = struct.unpack(">I4s", head)
            if name == wanted:
                return file.read(length)
            if name in (b"IDAT", b"IEND"):
                break
            file.seek(length + 4, 1)
    return None


def _metadata_chunks(metadata: Metadata) -> Iterator[tuple[bytes, bytes]]:
    """The metadata chunks that Pillow writes, taken from a PNG of one pixel."""
    info = PngImagePlugin.PngInfo()
    own = [(b"cICP", metadata.cicp)] if metadata.cicp else []
    for name, data in [*own, *metadata.png_colour]:
        info.add(name, data)
    for key, value in metadata.text:
        info.add_text(key, value)
    if metadata.xmp:
        info.add_itxt("XML:com.adobe.xmp", metadata.xmp.decode("utf-8", "replace"))
    file = io.BytesIO()
    carried = {"icc_profile": metadata.icc, "exif": metadata.exif, "dpi": metadata.dpi}
    Image.new("L", (1, 1)).save(file, "PNG", pnginfo=info, **{k: v for k, v in carried.items() if v})
    file.seek(len(_SIGNATURE))
    while True:
        length, name = struct.unpack(">I4s", file.read(8))
        data = file.read(length)
        file.read(4)  # skip the checksum: putchunk computes it again
        if name == b"IEND":
            return
        if name not in (b"IHDR", b"IDAT"):
            yield name, data
