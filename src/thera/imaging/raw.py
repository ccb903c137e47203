"""Read camera RAW files with LibRaw: developed with the camera's white balance, 16 bits, sRGB."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from thera.errors import ImageFileError
from thera.optional import require

from .metadata import Metadata, tiff_exif, upright_exif
from .picture import Picture

#: sRGB's transfer function, as LibRaw takes it: the power and the slope near black.
_SRGB = (2.4, 12.92)


def read_raw(path: Path, check_size: Callable[[int, int], None]) -> Picture:
    """Reads and develops a RAW file. LibRaw turns it upright."""
    rawpy = require("rawpy", "raw", "This camera RAW file")
    try:
        with rawpy.imread(str(path)) as raw:
            check_size(raw.sizes.width, raw.sizes.height)
            samples = raw.postprocess(use_camera_wb=True, no_auto_bright=True, output_bps=16, gamma=_SRGB)
    except rawpy.LibRawError as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error
        raise ImageFileError(f"The RAW file cannot be developed ({reason}).") from error
    metadata = Metadata(exif=upright_exif(_exif(path)))
    picture = Picture.of_channels(np.ascontiguousarray(samples), metadata, "raw")
    return picture.noted("the RAW file was developed with the camera's white balance")


def _exif(path: Path) -> Image.Exif:
    """The EXIF block of the many RAW files that are TIFFs; otherwise an empty one."""
    with path.open("rb") as file:
        try:
            return tiff_exif(file)
        except Exception:  # there are as many kinds of RAW as cameras
            return Image.Exif()
