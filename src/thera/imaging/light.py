"""Read and write pictures of light: Radiance HDR with imagecodecs, OpenEXR with its own library."""

import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError
from thera.optional import require

from .metadata import Metadata
from .picture import Layout, Picture, straight

EXR_MAGIC, HDR_MAGIC = b"\x76\x2f\x31\x01", (b"#?RADIANCE", b"#?RGBE")
#: Samples are proportional to light, with the primaries of sRGB.
LINEAR = bytes([1, 8, 0, 1])
_HDR_SIZE = re.compile(rb"\n-Y\s+(\d+)\s+\+X\s+(\d+)\n")

CheckSize = Callable[[int, int], None]


def read_hdr(path: Path, check_size: CheckSize) -> Picture:
    """Reads a Radiance HDR picture."""
    import imagecodecs

    data = path.read_bytes()
    size = _HDR_SIZE.search(data[:65_536])
    if size is None:
        raise ImageFileError("The HDR picture has no size, or is stored turned: convert it.")
    check_size(int(size[2]), int(size[1]))
    samples = np.asarray(imagecodecs.rgbe_decode(data), np.float32)
    return Picture.of_channels(samples, Metadata(cicp=LINEAR), "hdr")


def write_hdr(file: BinaryIO, layout: Layout, bands: Iterable[NDArray]) -> None:
    """Writes bands of rows of RGB floats as a Radiance HDR picture, which knows no light below 0."""
    import imagecodecs

    samples = np.maximum(_whole(layout, bands), 0)
    if layout.channels == 1:
        samples = np.repeat(samples, 3, axis=2)
    file.write(imagecodecs.rgbe_encode(np.ascontiguousarray(samples)))


def read_exr(path: Path, check_size: CheckSize) -> Picture:
    """Reads the colours, or the luminance, of the first part of an OpenEXR picture."""
    openexr = require("OpenEXR", "exr", "This OpenEXR picture")
    with openexr.File(str(path), header_only=True) as file:
        windows = [np.array(file.header()[name]) for name in ("dataWindow", "displayWindow")]
    width, height = (int(side) for side in windows[0][1] - windows[0][0] + 1)
    check_size(width, height)
    with openexr.File(str(path)) as file:
        parts, channels = len(file.parts), file.channels()
        found = next((name for name in ("RGBA", "RGB", "Y") if name in channels), None)
        if found is None:
            raise ImageFileError(f"The OpenEXR picture holds {', '.join(channels)}: expected RGB or Y.")
        others = [name for name in channels if name != found]
        samples: NDArray = np.array(channels[found].pixels)
    if samples.dtype.kind != "f":
        raise ImageFileError("The OpenEXR picture holds whole numbers: expected floats.")
    samples = samples.reshape(*samples.shape[:2], -1)
    if found == "RGBA":
        samples = straight(samples)
    picture = Picture.of_channels(samples, Metadata(cicp=LINEAR), "exr")
    if others:
        picture = picture.noted(f"further channels in the file ({', '.join(others)}): only {found} is kept")
    if parts > 1:
        picture = picture.noted(f"the file has {parts} parts: only the first is kept")
    if np.any(windows[0] != windows[1]):
        picture = picture.noted("pixels outside of the data window were left out")
    return picture


def write_exr(file: BinaryIO, layout: Layout, bands: Iterable[NDArray]) -> None:
    """Writes bands of rows of floats as an OpenEXR picture. Its alpha is premultiplied."""
    openexr = require("OpenEXR", "exr", "An OpenEXR picture")
    samples = _whole(layout, bands)
    if layout.channels == 2:  # there is no name for grey with alpha
        samples = np.concatenate([np.repeat(samples[..., :1], 3, axis=2), samples[..., 1:]], axis=2)
    if layout.alpha:
        samples = np.concatenate([samples[..., :-1] * samples[..., -1:], samples[..., -1:]], axis=2)
    channels: dict[str, Any] = {"Y": samples[..., 0]}
    if samples.shape[2] > 1:
        channels = {"RGBA" if layout.alpha else "RGB": samples}
    channels = {name: np.ascontiguousarray(pixels) for name, pixels in channels.items()}
    header = {"compression": openexr.ZIP_COMPRESSION, "type": openexr.scanlineimage}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "picture.exr")
        with openexr.File(header, channels) as picture:
            picture.write(path)
        file.write(Path(path).read_bytes())


def _whole(layout: Layout, bands: Iterable[NDArray]) -> NDArray:
    return np.concatenate(list(bands)).reshape(layout.height, layout.width, layout.channels)
