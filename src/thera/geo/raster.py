"""The description of a raster file: shape, georeference, bands and tags."""

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from thera.errors import ImageFileError, InvalidInput, UnreadableImage
from thera.field.grid import Box
from thera.imaging.metadata import ORIENTATION, SIDEWAYS
from thera.imaging.quiet import quiet
from thera.imaging.reading import PILLOW_FORMATS
from thera.imaging.tiff import check_complete
from thera.optional import require
from thera.values.bands import Bands, Group
from thera.values.ranges import holds

from . import safe

#: File extensions of rasters, and the GDAL drivers that read them.
DRIVERS = {".tif": "GTiff", ".tiff": "GTiff", ".vrt": "VRT", ".jp2": "JP2OpenJPEG"}
#: The extensions that only rasters have.
RASTER_ONLY = (".vrt", ".jp2")
#: Sample types that can be scaled, as NumPy writes them.
TYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8")
#: Hyperspectral images have hundreds of bands. A damaged file may claim 65,535, and would take hours.
MOST_BANDS = 4096
#: Bytes of GDAL's cache of blocks.
CACHE = 64 << 20
#: Bytes of samples per window in a pass over the whole raster.
PASS_BYTES = 16 << 20
#: Tags that describe the old pixels, and are wrong for the new ones.
_STALE = ("STATISTICS_", "EXIF_Orientation", "EXIF_PixelXDimension", "EXIF_PixelYDimension")
#: Tags about how a file stores its pixels, or that are handled elsewhere.
_STRUCTURE = ("IMAGE_STRUCTURE", "DERIVED_SUBDATASETS", "SUBDATASETS", "RPC", "xml:")


@dataclass(frozen=True)
class Raster:
    """The description of a raster file. It holds no pixels and no open file."""

    path: Path
    shape: tuple[int, int]
    dtype: np.dtype
    nodata: tuple[float | None, ...]
    masked: bool
    crs: Any
    transform: Any
    gcps: tuple[list[Any], Any]
    rpcs: Any
    colours: tuple[Any, ...]
    descriptions: tuple[str | None, ...]
    units: tuple[str | None, ...]
    scales: tuple[float, ...]
    offsets: tuple[float, ...]
    tags: dict[str | None, dict[str, str]] = field(repr=False)
    band_tags: tuple[dict[str, str], ...] = field(repr=False)
    blocks: tuple[int, int]
    stored: tuple[int, ...] = ()  # where its bands are in the file, counted from 0
    together: tuple[tuple[int, ...], ...] | None = None  # bands that are seen together, if that was asked for
    orientation: int = 1  # of the file's pixels, as in EXIF; all other fields describe upright pixels
    covers: bool = True  # True if alpha says where the other bands are valid

    @property
    def count(self) -> int:
        return len(self.nodata)

    @property
    def declared(self) -> float | None:
        """The nodata value to write: a GeoTIFF holds only one, so the first that fits the sample type."""
        return next((value for value in self.nodata if value is not None and holds(self.dtype, value)), None)

    @cached_property
    def bands(self) -> Bands:
        """The meaning of its bands. Numbers that are not finite are always nodata."""
        names = [colour.name for colour in self.colours]
        nan = math.nan if self.dtype.kind == "f" else None
        nodata = tuple(nan if value is None else value for value in self.nodata)
        if self.together is not None:
            alphas = (self.covers and names[group[0]] == "alpha" for group in self.together)
            return Bands(tuple(map(Group, self.together, alphas)), nodata)
        return Bands.named(names, nodata, self.covers)

    def windows(self) -> Iterator[Box]:
        """Windows that cover the raster: whole blocks, as far as they fit in `PASS_BYTES`."""
        H, W = self.shape
        high, wide = self.blocks
        wide = W if wide >= W else wide * max(1, 2048 // wide)
        rows = PASS_BYTES // (wide * self.count * self.dtype.itemsize)
        high = max(1, rows // high * high or rows)
        for top in range(0, H, high):
            for left in range(0, W, wide):
                yield top, left, min(top + high, H), min(left + wide, W)


@contextmanager
def gdal() -> Iterator[None]:
    """GDAL as in `environment`, and no warnings about georeferences; for the main thread."""
    rasterio = require("rasterio", "geo", "A raster")
    with environment(), warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        yield


def environment() -> Any:
    """GDAL with a bounded cache, all cores and masks inside files, for the thread that enters it."""
    import rasterio

    return rasterio.Env(GDAL_CACHEMAX=CACHE, GDAL_NUM_THREADS="ALL_CPUS", GDAL_TIFF_INTERNAL_MASK=True)


def opened(path: Path, driver: str | None = None) -> Any:
    """An open raster file, which closes itself; by default with the driver that GDAL chooses.

    The bands of a Sentinel-2 folder are one raster.
    """
    import rasterio

    product = safe.parts(path)
    try:
        with quiet():
            return rasterio.open(path if product is None else safe.virtual(*product), driver=driver)
    except rasterio.errors.RasterioError as error:
        if not (path if product is None else product[0]).exists():
            raise ImageFileError(f"{path} does not exist.") from None
        raise UnreadableImage(f"{path} cannot be read as a raster: {first_line(error)}.") from error


def is_raster(path: Path, placed: bool = False) -> bool:
    """True if a file has what only a raster has: a georeference, nodata, a mask, or more than four bands.

    Other TIFFs are pictures. So are palette images without nodata, and all files if rasterio is missing.
    Files of other formats are pictures, unless `placed` and they have a georeference, as from a world file.
    """
    suffix = path.suffix.lower()
    known = suffix in DRIVERS
    if safe.is_product(path):
        return True
    if not (known or placed) or find_spec("rasterio") is None:
        return False
    try:
        with gdal(), opened(path, driver=DRIVERS.get(suffix)) as dataset:
            if dataset.count > MOST_BANDS:
                return True
            nodata = known and any(value is not None for value in dataset.nodatavals)
            if any(colour.name == "palette" for colour in dataset.colorinterp):
                return nodata
            if dataset.crs is not None or not dataset.transform.is_identity or dataset.gcps[0]:
                return True
            return known and (nodata or bool(_rpcs(dataset)) or _masked(dataset) or dataset.count > 4)
    except ImageFileError:  # the picture reader has a better message
        return suffix in RASTER_ONLY


def _rpcs(dataset: Any) -> Any:
    """The rational polynomials of an open raster; None if it has none, or none that rasterio understands."""
    try:
        return dataset.rpcs
    except ValueError:
        return None


def _masked(dataset: Any) -> bool:
    """True if the file or its bands have masks of their own. Masks made from nodata or alpha do not count."""
    return any([flag.name for flag in flags] in ([], ["per_dataset"]) for flags in dataset.mask_flag_enums)


def describe(path: str | Path, groups: Sequence[Sequence[int]] | None = None) -> Raster:
    """Describes a raster file. Raises ImageFileError, with one sentence, if it cannot be scaled.

    `groups`: the bands to take, counted from 0, one or three that are seen together at a time.
    """
    path = Path(path)
    with gdal(), opened(path) as dataset:
        if not dataset.count:
            if not dataset.subdatasets:
                raise UnreadableImage(f"{path} holds no raster.")
            raise ImageFileError(
                f"{path} holds {len(dataset.subdatasets)} rasters: give the name of one of them as the input,"
                f" such as '{dataset.subdatasets[0]}'."
            )
        if dataset.count > MOST_BANDS:
            raise ImageFileError(
                f"{path} has {dataset.count:,} bands, and Thera scales {MOST_BANDS:,} at most: split it"
                " (gdal_translate -b)."
            )
        if min(dataset.shape) < 1:
            raise ImageFileError(f"{path} has no pixels, or is damaged ({dataset.width}×{dataset.height}).")
        if dataset.driver == "GTiff" and path.is_file():
            check_complete(path)
        order = [band for group in groups or () for band in group] or list(range(dataset.count))
        if max(order) >= dataset.count or min(order) < 0:
            raise InvalidInput(f"{path} has {dataset.count} bands: there is no band {max(order) + 1}.")

        def of(values: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(values[band] for band in order)

        types = set(of(dataset.dtypes))
        if len(types) > 1:
            raise ImageFileError(
                f"{path} has bands of {' and '.join(sorted(types))}: convert them to one type"
                " (gdal_translate -ot Float32)."
            )
        name = types.pop()
        if name.startswith("complex"):  # also complex_int16, which NumPy does not know
            raise ImageFileError(f"{path} holds complex numbers ({name}): scale its amplitude, or its parts.")
        dtype = np.dtype(name)
        if dtype.str[1:] not in TYPES:
            raise ImageFileError(f"{path} holds {dtype} numbers: expected at most 32 bits, or floats.")
        colours = of(dataset.colorinterp)
        masked = _masked(dataset)
        together = None
        if groups is not None:
            # A mask is also made of an alpha that is not among the bands.
            masked |= any(colour.name == "alpha" for colour in dataset.colorinterp)
            masked &= not any(colour.name == "alpha" for colour in colours)
            places = iter(range(len(order)))
            together = tuple(tuple(next(places) for _ in group) for group in groups)
        if any(colour.name == "palette" for colour in colours):
            raise ImageFileError(
                f"{path} holds palette indices, which cannot be interpolated: expand it first"
                " (gdal_translate -expand rgba)."
            )
        orientation = _orientation(dataset)
        shape, blocks = (dataset.height, dataset.width), dataset.block_shapes[0]
        if orientation in SIDEWAYS:
            shape, blocks = shape[::-1], blocks[::-1]
        spaces = (name for name in dataset.tag_namespaces() if name and not name.startswith(_STRUCTURE))
        return Raster(
            path=path,
            shape=shape,
            dtype=dtype,
            nodata=of(dataset.nodatavals),
            masked=masked,
            crs=dataset.crs,
            transform=dataset.transform,
            gcps=dataset.gcps,
            rpcs=_rpcs(dataset),
            colours=colours,
            descriptions=of(dataset.descriptions),
            units=of(dataset.units),
            scales=of(dataset.scales),
            offsets=of(dataset.offsets),
            tags={
                name: _lasting(_upright_tags(dataset.tags(ns=name), orientation)) for name in (None, *spaces)
            },
            band_tags=tuple(_lasting(dataset.tags(band)) for band in of(dataset.indexes)),
            blocks=blocks,
            stored=tuple(order),
            together=together,
            orientation=orientation,
        )


def _lasting(tags: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in tags.items() if not key.startswith(_STALE)}


def first_line(error: Exception) -> str:
    """The first line of a library's error message. Rasterio's may only point to the error before it."""
    before = error.__cause__ if "previous exception" in str(error) else None
    return str(before or error).strip().rstrip(".").splitlines()[0]


def _orientation(dataset: Any) -> int:
    """The orientation of an open raster, 1 to 8 as in EXIF. GDAL gives pixels as they are stored.

    It is 1 for a georeferenced raster, whose georeference describes the pixels as they are stored.
    """
    placed = dataset.crs is not None or not dataset.transform.is_identity or dataset.gcps[0] or _rpcs(dataset)
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


def _upright_tags(tags: dict[str, str], orientation: int) -> dict[str, str]:
    """The tags of a file, with x and y resolution exchanged if the raster is turned sideways.

    >>> _upright_tags({"EXIF_Make": "Maker", "EXIF_XResolution": "(72)"}, 6)
    {'EXIF_Make': 'Maker', 'EXIF_YResolution': '(72)'}
    """
    if orientation not in SIDEWAYS:
        return tags
    other = {"X": "Y", "Y": "X"}
    return {
        re.sub("[XY](?=Resolution|RESOLUTION)", lambda axis: other[axis[0]], key): value
        for key, value in tags.items()
    }
