"""What Pillow does not do with AVIF: bits a sample, and the colour space by number."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from .metadata import Metadata
from .picture import Layout

#: Enough for the boxes before the pixels, with their profile.
_HEAD = 1 << 20


def depth_and_colours(path: Path) -> tuple[int, bytes | None]:
    """Bits a sample of an AVIF, and its colour space by its numbers in H.273 if that is not sRGB."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    at = head.find(b"av1C")
    flags = head[at + 6] if 0 <= at < len(head) - 6 else 0
    depth = 8 if not flags & 0x40 else 12 if flags & 0x20 else 10
    at = head.find(b"colrnclx")
    if not 0 <= at <= len(head) - 12:
        return depth, None
    return depth, named_colours(*struct.unpack_from(">HH", head, at + 8))


def named_colours(primaries: int, transfer: int) -> bytes | None:
    """A colour space as PNG's cICP has it, for samples that are RGB in full range.

    None if it is sRGB or not specified. Files call sRGB by the names of similar transfer functions, too.
    """
    unspecified = primaries in (0, 2) or transfer in (0, 2)
    if unspecified or (primaries == 1 and transfer in (1, 6, 13)) or max(primaries, transfer) > 255:
        return None
    return bytes([primaries, transfer, 0, 1])


def write_deep_avif(
    file: BinaryIO, layout: Layout, metadata: Metadata, bands: Iterable[NDArray], quality: int
) -> None:
    """Writes bands of rows of 16-bit samples as an AVIF of `layout.bits` bits, without chroma subsampling."""
    import imagecodecs

    full = 2 ** (layout.bits or 12) - 1
    samples = np.concatenate([np.rint(band * (full / 65535)).astype(np.uint16) for band in bands])
    primaries, transfer = (metadata.cicp or (1, 13))[:2]
    code = imagecodecs.avif_encode(
        samples[..., 0] if layout.channels == 1 else samples,
        level=quality,
        speed=6,
        bitspersample=layout.bits or 12,
        pixelformat="400" if layout.channels == 1 else "444",
        primaries=primaries,
        transfer=transfer,
        matrix=9 if primaries == 9 else 6,
    )
    file.write(code)
