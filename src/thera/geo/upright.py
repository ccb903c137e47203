"""Rasters with an EXIF orientation, which GDAL ignores: it gives pixels as they are stored."""

import re
import warnings
from pathlib import Path
from typing import Any

from PIL import Image

from thera.field.grid import Box
from thera.imaging.metadata import FROM_BOTTOM, FROM_RIGHT, ORIENTATION, SIDEWAYS
from thera.imaging.reading import PILLOW_FORMATS


def orientation_of(dataset: Any) -> int:
    """The orientation of an open raster, 1 to 8 as in EXIF.

    It is 1 for a georeferenced raster, whose georeference describes the pixels as they are stored.
    """
    placed = dataset.crs is not None or not dataset.transform.is_identity or dataset.gcps[0] or dataset.rpcs
    found = 1 if placed else _read_orientation(Path(dataset.name), dataset.driver)
    return found if found in range(1, 9) else 1


def _read_orientation(path: Path, driver: str) -> Any:
    from tifffile import TiffFile

    try:
        if driver == "GTiff":
            with TiffFile(path) as file:
                tag = file.pages.first.tags.get(ORIENTATION)
            return 1 if tag is None else tag.value
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about large images; nothing is decoded here
            with Image.open(path, formats=PILLOW_FORMATS) as image:
                return image.getexif().get(ORIENTATION, 1)
    except Exception:  # not a picture, or a damaged EXIF block
        return 1


def stored(box: Box, shape: tuple[int, int], orientation: int) -> Box:
    """The box in the file that holds the box (top, left, bottom, right) of an upright raster of `shape`.

    >>> stored((0, 0, 2, 5), (48, 40), 6)
    (35, 0, 40, 2)
    """
    top, left, bottom, right = box
    if orientation in FROM_BOTTOM:
        top, bottom = shape[0] - bottom, shape[0] - top
    if orientation in FROM_RIGHT:
        left, right = shape[1] - right, shape[1] - left
    return (left, top, right, bottom) if orientation in SIDEWAYS else (top, left, bottom, right)


def upright_tags(tags: dict[str, str], orientation: int) -> dict[str, str]:
    """The tags of a file, with x and y resolution exchanged if the raster is turned sideways.

    >>> upright_tags({"EXIF_Make": "Maker", "EXIF_XResolution": "(72)"}, 6)
    {'EXIF_Make': 'Maker', 'EXIF_YResolution': '(72)'}
    """
    if orientation not in SIDEWAYS:
        return tags
    other = {"X": "Y", "Y": "X"}
    return {
        re.sub("[XY](?=Resolution|RESOLUTION)", lambda axis: other[axis[0]], key): value
        for key, value in tags.items()
    }
