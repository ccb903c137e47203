"""Read and write JPEG XL with imagecodecs: 8 and 16 bits and floats, lossless unless a quality is given.

imagecodecs knows the samples only. Size, colour space and metadata are read and written here.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from thera.errors import ImageFileError

from .metadata import Metadata, upright_exif, upright_xmp
from .picture import Layout, Picture, straight

_CONTAINER = b"\0\0\0\x0cJXL \r\n\x87\n" + b"\0\0\0\x14ftypjxl \0\0\0\0jxl "
SIGNATURES = (b"\xff\x0a", b"\0\0\0\x0cJXL ")
#: Widths per height that a header may name by a number.
_RATIOS = ((1, 1), (6, 5), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))
_SRGB = (1, 13)
_XYB, _GREY = 2, 1
_CUSTOM = 2
#: Primaries in H.273, and the numbers of the same primaries and white in a JPEG XL.
_PRIMARIES = {1: (1, 1), 9: (9, 1), 11: (11, 11), 12: (11, 1)}


@dataclass
class Header:
    """What the head of a codestream says. `cicp`: the colour space by its numbers in H.273, if it has any."""

    width: int
    height: int
    animated: bool = False
    premultiplied: bool = False
    cicp: bytes | None = None
    other_colours: bool = False  # an ICC profile, a gamma or primaries of its own
    colours_at: tuple[int, int] = (0, 0)  # the bits that name the colour space
    extra_fields: bool = False


class _Bits:
    """Reads a codestream bit by bit, the lowest of each byte first."""

    def __init__(self, data: bytes) -> None:
        self._bits, self._length, self.at = int.from_bytes(data, "little"), 8 * len(data), 0

    def read(self, count: int) -> int:
        start, self.at = self.at, self.at + count
        if self.at > self._length:
            raise ImageFileError("The header of the JPEG XL is cut short.")
        return (self._bits >> start) & ((1 << count) - 1)

    def choice(self, *choices: tuple[int, int]) -> int:
        """A number in one of four forms, each an offset and a number of bits."""
        offset, count = choices[self.read(2)]
        return offset + self.read(count)

    def enum(self) -> int:
        return self.choice((0, 0), (1, 0), (2, 4), (18, 6))


def parse_header(codestream: bytes) -> Header:
    """The header of a codestream."""
    return _header(_Bits(codestream[2:4096]))


def _header(bits: _Bits) -> Header:
    header = Header(*_size(bits))
    if bits.read(1):  # everything is as usual: 8 bits, sRGB
        return header
    header.extra_fields = bool(bits.read(1))
    if header.extra_fields:
        bits.read(3)  # the orientation, which the decoder applies
        if bits.read(1):
            _size(bits)
        if bits.read(1):  # a preview
            header.other_colours = True
            return header
        header.animated = bool(bits.read(1))
        if header.animated:
            return header
    _depth(bits)
    bits.read(1)
    for _ in range(bits.choice((0, 0), (1, 0), (2, 4), (1, 12))):
        if not bits.read(1):
            header.premultiplied |= _extra_channel(bits)
    bits.read(1)
    start = bits.at
    _colours(bits, header)
    header.colours_at = start, bits.at
    return header


def _size(bits: _Bits) -> tuple[int, int]:
    small = bits.read(1)

    def side() -> int:
        return 8 * (bits.read(5) + 1) if small else bits.choice((1, 9), (1, 13), (1, 18), (1, 30))

    height = side()
    ratio = bits.read(3)
    return (height * _RATIOS[ratio - 1][0] // _RATIOS[ratio - 1][1] if ratio else side()), height


def _depth(bits: _Bits) -> None:
    if bits.read(1):
        bits.choice((32, 0), (16, 0), (24, 0), (1, 6))
        bits.read(4)
    else:
        bits.choice((8, 0), (10, 0), (12, 0), (1, 6))


def _extra_channel(bits: _Bits) -> bool:
    """Skips the description of a channel. True if it is an alpha that the colours were multiplied by."""
    kind = bits.enum()
    _depth(bits)
    bits.choice((0, 0), (3, 0), (4, 0), (1, 3))
    bits.read(8 * bits.choice((0, 0), (0, 4), (16, 5), (48, 10)))
    if kind == 2:  # a spot colour
        bits.read(64)
    if kind == 5:  # a colour filter
        bits.choice((1, 0), (0, 2), (3, 4), (19, 8))
    return kind == 0 and bool(bits.read(1))


def _colours(bits: _Bits, header: Header) -> None:
    if bits.read(1):
        return
    has_icc, space = bits.read(1), bits.enum()
    if has_icc or space == _XYB:
        header.other_colours = True
        return
    white = bits.enum()
    if white == _CUSTOM:
        header.other_colours = True
        return
    primaries = 1 if space == _GREY else bits.enum()
    if primaries == _CUSTOM or bits.read(1):
        header.other_colours = True
        return
    transfer = bits.enum()
    bits.enum()  # the rendering intent
    for number, pair in _PRIMARIES.items():
        if pair == (primaries, white) and (number, transfer) != _SRGB:
            header.cicp = bytes([number, transfer, 0, 1])
    header.other_colours = (primaries, white) not in _PRIMARIES.values()


def with_colours(codestream: bytes, grey: bool, cicp: bytes | None) -> bytes:
    """A lossless codestream of imagecodecs, which calls all 16-bit samples and floats linear, with its true
    colour space: sRGB unless `cicp` says another."""
    bits = _Bits(codestream[2:66])
    header = _header(bits)
    primaries, transfer = (cicp[0], cicp[1]) if cicp else _SRGB
    # What follows the colours is all by default: tone mapping, extensions, the transform. Then a byte begins.
    rest = [(bits.read(count), count) for count in ([1] if header.extra_fields else []) + [2, 1]]
    assert [value for value, _ in rest] == ([1] if header.extra_fields else []) + [0, 1], rest
    colours, white = _PRIMARIES[primaries]
    fields = [(0, 1), (0, 1), *_enum(_GREY if grey else 0), *_enum(white), *([] if grey else _enum(colours))]
    fields += [(0, 1), *_enum(transfer), *_enum(1), *rest]
    start = header.colours_at[0]
    head = int.from_bytes(codestream[2:66], "little") & ((1 << start) - 1)
    for value, count in fields:
        head |= value << start
        start += count
    return codestream[:2] + head.to_bytes(-(-start // 8), "little") + codestream[2 - (-bits.at // 8) :]


def _enum(value: int) -> list[tuple[int, int]]:
    """A number as values and counts of bits."""
    if value < 2:
        return [(value, 2)]
    return [(2, 2), (value - 2, 4)] if value < 18 else [(3, 2), (value - 18, 6)]


def boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The boxes of a container: names and contents. A bare codestream counts as one box."""
    if data.startswith(SIGNATURES[0]):
        yield b"jxlc", data
        return
    at = 0
    while at + 8 <= len(data):
        size, name = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if size == 1 and at + 16 <= len(data):
            (size,) = struct.unpack_from(">Q", data, start)
            start += 8
        end = at + size if size else len(data)
        if end < start or end > len(data):
            raise ImageFileError("The JPEG XL is damaged or cut short.")
        yield name, data[start:end]
        at = end


def read_jxl(path: Path, check_size: Callable[[int, int], None]) -> Picture:
    """Reads the one image of a JPEG XL file. The decoder has turned it upright."""
    import imagecodecs

    data = path.read_bytes()
    codestream, exif, xmp = _codestream(data), Image.Exif(), None
    for name, content in boxes(data):
        if name == b"brob":  # a box that is compressed
            name, content = content[:4], bytes(imagecodecs.brotli_decode(content[4:]))
        if name == b"Exif" and len(content) > 4:
            exif.load(content[4 + int.from_bytes(content[:4], "big") :])
        elif name == b"xml ":
            xmp = content
    if not codestream.startswith(SIGNATURES[0]):
        raise ImageFileError("The JPEG XL holds no picture.")
    header = parse_header(codestream)
    check_size(header.width, header.height)
    if header.animated:
        raise ImageFileError("This is an animation; Thera scales single images.")
    samples = imagecodecs.jpegxl_decode(data)
    samples = samples.reshape(*samples.shape[:2], -1)
    if samples.shape[2] > 4:
        raise ImageFileError(f"The JPEG XL has {samples.shape[2]} channels: convert it to RGB with alpha.")
    if header.premultiplied and samples.shape[2] in (2, 4):
        samples = straight(samples)
    metadata = Metadata(exif=upright_exif(exif), xmp=upright_xmp(xmp), cicp=header.cicp)
    picture = Picture.of_channels(np.ascontiguousarray(samples), metadata, "jxl")
    if header.other_colours:
        return picture.noted("the colour profile of the JPEG XL was not read: colours are taken as sRGB")
    return picture


def write_jxl(
    file: BinaryIO, layout: Layout, metadata: Metadata, bands: Iterable[NDArray], quality: int
) -> None:
    """Writes bands of rows as one JPEG XL; without any loss at a quality of 100."""
    import imagecodecs

    if quality < 100 and (layout.dtype != np.uint8 or metadata.cicp):
        # imagecodecs takes all bytes for sRGB, and all others for linear light.
        raise ImageFileError(
            "A JPEG XL of more than 8 bits, or of other colours than sRGB, is written without loss: leave out"
            " the quality."
        )

    samples = np.empty((layout.height, layout.width, layout.channels), layout.dtype)
    row = 0
    for band in bands:
        samples[row : row + len(band)] = band
        row += len(band)
    image = samples[..., 0] if layout.channels == 1 else samples
    if quality == 100:
        bare = imagecodecs.jpegxl_encode(image, lossless=True, usecontainer=False)
        code = with_colours(_codestream(bytes(bare)), layout.colour == "grey", metadata.cicp)
    else:
        # The distance that the format's own tool takes for a quality.
        distance = 0.1 + (100 - quality) * 0.09 if quality >= 30 else 6.4 + 2.5 ** ((30 - quality) / 5) / 6.25
        code = _codestream(bytes(imagecodecs.jpegxl_encode(image, distance=min(distance, 15.0))))
    exif = bytes(4) + metadata.exif.removeprefix(b"Exif\0\0") if metadata.exif else None
    file.write(_CONTAINER)
    # Level 10 is for depths of more than 12 bits.
    level = b"\x0a" if layout.dtype.itemsize > 1 else None
    for name, content in ((b"jxll", level), (b"Exif", exif), (b"xml ", metadata.xmp), (b"jxlc", code)):
        if content:
            file.write(_box(name, content))


def _box(name: bytes, content: bytes) -> bytes:
    if len(content) + 8 < 2**32:
        return struct.pack(">I4s", len(content) + 8, name) + content
    return struct.pack(">I4sQ", 1, name, len(content) + 16) + content


def _codestream(data: bytes) -> bytes:
    """The codestream in a file, without the container."""
    kept = ((b"jxlc", 0), (b"jxlp", 4))  # parts begin with their number
    return b"".join(content[skip:] for name, content in boxes(data) for kind, skip in kept if name == kind)
