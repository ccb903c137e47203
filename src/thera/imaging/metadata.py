"""The metadata of an image file, updated when the image is resized or turned."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from PIL import ExifTags, Image

from .formats import Format

ORIENTATION = int(ExifTags.Base.Orientation)
#: Orientations whose rows are columns, that start at the right, and that start at the bottom.
SIDEWAYS, FROM_RIGHT, FROM_BOTTOM = (5, 6, 7, 8), (2, 3, 6, 7), (3, 4, 7, 8)
X_RESOLUTION, Y_RESOLUTION = int(ExifTags.Base.XResolution), int(ExifTags.Base.YResolution)
RESOLUTION_UNIT = int(ExifTags.Base.ResolutionUnit)
EXIF_IFD, GPS_IFD = int(ExifTags.IFD.Exif), int(ExifTags.IFD.GPSInfo)

#: The tags of a TIFF's first directory that describe the picture, not how it is stored.
DESCRIPTIVE = {
    int(tag)
    for tag in (
        ExifTags.Base.ImageDescription,
        ExifTags.Base.Make,
        ExifTags.Base.Model,
        ExifTags.Base.Software,
        ExifTags.Base.DateTime,
        ExifTags.Base.Artist,
        ExifTags.Base.HostComputer,
        ExifTags.Base.Copyright,
        ExifTags.Base.XPTitle,
        ExifTags.Base.XPComment,
        ExifTags.Base.XPAuthor,
        ExifTags.Base.XPKeywords,
        ExifTags.Base.XPSubject,
    )
}

#: Starts of descriptions in which programs store the shape of the image, which will change.
_MACHINE_WRITTEN = ('{"shape":', "ImageJ=", "<?xml", "<OME")

#: A JPEG segment holds 65,533 bytes including a signature. Pillow splits ICC profiles, but not these.
_JPEG_LIMITS = {"exif": 65_533, "xmp": 65_504, "iptc": 65_506}
#: The highest resolution per inch that a format can carry.
_MOST_DPI = {"png": (2**31 - 1) * 0.0254, "bmp": (2**31 - 1) * 0.0254, "jpeg": 65_535.0, "tiff": 2.0**31}
_XMP_AXIS = re.compile(rb"(?<=tiff:)[XY](?=Resolution)")
_XMP_RESOLUTION = re.compile(rb"""(tiff:[XY]Resolution(?:\s*=\s*["']|>\s*))[\d./]+""")
_NAMES = {
    "icc": "ICC profile",
    "exif": "EXIF block",
    "xmp": "XMP packet",
    "dpi": "resolution",
    "iptc": "IPTC block",
    "cicp": "colour space (cICP)",
}
#: Formats that have a place for more than the libraries write into them.
_NOT_WRITTEN = {"jxl": "a JPEG XL", "avif": "such an AVIF"}
#: The keyword under which the comment of a JPEG is held among the texts, as PNG names it.
COMMENT = "Comment"


@dataclass(frozen=True)
class TiffTag:
    """One tag of a TIFF file as tifffile writes it: code, type, count and value."""

    code: int
    dtype: int
    count: int
    value: Any


@dataclass(frozen=True)
class Metadata:
    """The metadata of a picture. The EXIF block has orientation 1 and no thumbnail.

    `iptc` is the record of news agencies. `text` are the keyword texts of a PNG, or the comment of a JPEG.
    `cicp` names primaries, transfer, matrix and range of the colours by their numbers in H.273. `png_colour`
    are gAMA, cHRM and sRGB chunks of a PNG, and `tiff_tags` the georeference of a map.
    """

    icc: bytes | None = None
    exif: bytes | None = None
    xmp: bytes | None = None
    dpi: tuple[float, float] | None = None
    iptc: bytes | None = None
    cicp: bytes | None = None
    text: tuple[tuple[str, str], ...] = ()
    png_colour: tuple[tuple[bytes, bytes], ...] = ()
    tiff_tags: tuple[TiffTag, ...] = field(default=(), repr=False)

    def resized(self, old: tuple[int, int], new: tuple[int, int]) -> "Metadata":
        """The metadata after resizing from `old` to `new`, both (height, width)."""
        return replace(
            self,
            exif=_exif_with_size(self.exif, new) if self.exif else None,
            xmp=_xmp_with_size(self.xmp, new) if self.xmp else None,
            tiff_tags=tuple(_georeferenced(tag, old, new) for tag in self.tiff_tags),
        )

    def at(self, dpi: float) -> "Metadata":
        """The metadata with another resolution, in pixels per inch."""
        return replace(
            self,
            exif=_exif_with_dpi(self.exif, dpi) if self.exif else None,
            xmp=_XMP_RESOLUTION.sub(rb"\g<1>%d/1000" % round(1000 * dpi), self.xmp) if self.xmp else None,
            dpi=(dpi, dpi),
        )

    def transposed(self) -> "Metadata":
        """The metadata after exchanging rows and columns, which also exchanges the two resolutions."""
        return replace(
            self,
            exif=_exif_transposed(self.exif) if self.exif else None,
            xmp=_XMP_AXIS.sub(lambda axis: b"Y" if axis[0] == b"X" else b"X", self.xmp) if self.xmp else None,
            dpi=self.dpi and (self.dpi[1], self.dpi[0]),
        )

    def fitting(self, form: Format) -> tuple["Metadata", list[str]]:
        """The metadata that `form` can store, and a reason for each part that it cannot."""
        reasons = {}
        for name in _NAMES:
            value = getattr(self, name)
            if value is not None and name not in form.carries:
                reasons[name] = f"{form.name.upper()} has no place for the {_NAMES[name]}"
                if form.name in _NOT_WRITTEN:
                    reasons[name] = f"the {_NAMES[name]} is not written into {_NOT_WRITTEN[form.name]}"
            elif form.name == "jpeg" and len(value or ()) > _JPEG_LIMITS.get(name, 2**31):
                reasons[name] = f"the {_NAMES[name]} is larger than a JPEG can carry"
        if self.dpi is not None and max(self.dpi) > _MOST_DPI.get(form.name, math.inf):
            reasons["dpi"] = f"a resolution of {max(self.dpi):g} per inch is more than the format can carry"
        if form.light and self.cicp and self.cicp[0] != 1:
            reasons["cicp"] = f"{form.name.upper()} has no place for the {_NAMES['cicp']}"
        if form.name == "jxl" and self.cicp and not _in_jxl(*self.cicp[:2]):
            reasons["cicp"] = "a JPEG XL has no number for this colour space"
        dropped: dict[str, Any] = dict.fromkeys(reasons)
        if "text" not in form.carries:
            dropped["text"] = tuple(
                (key, text) for key, text in self.text if "comment" in form.carries and key == COMMENT
            )
            lost = [key for key, text in self.text if (key, text) not in dropped["text"]]
            if lost:
                reasons["text"] = f"{form.name.upper()} has no place for the text {' and '.join(lost)}"
        kept = replace(self, **dropped)
        return kept, list(reasons.values())


def _in_jxl(primaries: int, transfer: int) -> bool:
    """True if a JPEG XL has a number for this colour space."""
    return primaries in (1, 9, 11, 12) and transfer in (1, 8, 13, 16, 17, 18)


def upright_exif(exif: Image.Exif) -> bytes | None:
    """The EXIF block as bytes, with its orientation reset and without the thumbnail of the old size.

    None when it is empty or too damaged to be written again.
    """
    try:
        if ORIENTATION in exif:
            exif[ORIENTATION] = 1
        block = exif.tobytes()
        return block if len(exif) or exif.get_ifd(EXIF_IFD) or exif.get_ifd(GPS_IFD) else None
    except Exception:  # a broken EXIF block may raise anything, but the picture is still good
        return None


def upright_xmp(xmp: str | bytes | None) -> bytes | None:
    """The XMP packet with its orientation reset."""
    if isinstance(xmp, str):
        xmp = xmp.encode()
    return _replace_in_xmp(xmp, "tiff:Orientation", 1) if xmp else None


def tiff_exif(file: BinaryIO) -> Image.Exif:
    """The descriptive tags of a TIFF or BigTIFF and its EXIF and GPS directories."""
    file.seek(0)
    header = file.read(16)
    if header[2:4] not in (b"+\0", b"\0+"):
        header = header[:8]
    first = _directory(file, header, None, None)
    exif = Image.Exif()
    for tag, value in first.items():
        if tag in DESCRIPTIVE and not (isinstance(value, str) and value.startswith(_MACHINE_WRITTEN)):
            exif[tag] = value
    for pointer in (EXIF_IFD, GPS_IFD):
        if isinstance(first.get(pointer), int):
            exif.get_ifd(pointer).update(_directory(file, header, pointer, first[pointer]))
    return exif


def _directory(file: BinaryIO, header: bytes, group: int | None, offset: int | None) -> dict[int, Any]:
    from PIL import TiffImagePlugin

    ifd = TiffImagePlugin.ImageFileDirectory_v2(header, group=group)
    file.seek(ifd.next if offset is None else offset)
    ifd.load(file)
    entries = dict(ifd)
    return {tag: v[0] if isinstance(v, tuple) and len(v) == 1 else v for tag, v in entries.items()}


def _exif_with_size(block: bytes, size: tuple[int, int]) -> bytes:
    exif = Image.Exif()
    exif.load(block)
    height, width = size
    for tags, wide, high in (
        (exif, ExifTags.Base.ImageWidth, ExifTags.Base.ImageLength),
        (exif.get_ifd(EXIF_IFD), ExifTags.Base.ExifImageWidth, ExifTags.Base.ExifImageHeight),
    ):
        for tag, value in ((int(wide), width), (int(high), height)):
            if tag in tags:
                tags[tag] = value
    return exif.tobytes()


def _exif_with_dpi(block: bytes, dpi: float) -> bytes:
    exif = Image.Exif()
    exif.load(block)
    for tag, value in ((X_RESOLUTION, dpi), (Y_RESOLUTION, dpi), (RESOLUTION_UNIT, 2)):
        if tag in exif:
            exif[tag] = value
    return exif.tobytes()


def _exif_transposed(block: bytes) -> bytes:
    exif = Image.Exif()
    exif.load(block)
    if X_RESOLUTION in exif and Y_RESOLUTION in exif:
        exif[X_RESOLUTION], exif[Y_RESOLUTION] = exif[Y_RESOLUTION], exif[X_RESOLUTION]
    return exif.tobytes()


def _xmp_with_size(xmp: bytes, size: tuple[int, int]) -> bytes:
    height, width = size
    for name, value in (
        ("tiff:ImageWidth", width),
        ("tiff:ImageLength", height),
        ("exif:PixelXDimension", width),
        ("exif:PixelYDimension", height),
    ):
        xmp = _replace_in_xmp(xmp, name, value)
    return xmp


def _replace_in_xmp(xmp: bytes, name: str, value: int) -> bytes:
    """Sets a number, which XMP stores as an attribute or as an element."""
    number = str(value).encode()
    xmp = re.sub(rb"(%s\s*=\s*[\"'])\d+" % name.encode(), rb"\g<1>" + number, xmp)
    return re.sub(rb"(<%s>\s*)\d+" % name.encode(), rb"\g<1>" + number, xmp)


def _per_pixel(value: tuple[float, ...], down: float, across: float) -> tuple[float, ...]:
    """ModelPixelScale: the ground one pixel covers, (x, y, z)."""
    return (value[0] / across, value[1] / down, *value[2:])


def _tie_points(value: tuple[float, ...], down: float, across: float) -> tuple[float, ...]:
    """ModelTiepoint: (column, row, level, x, y, z) for each point."""
    return tuple(v * (across, down, 1, 1, 1, 1)[i % 6] for i, v in enumerate(value))


def _transformation(value: tuple[float, ...], down: float, across: float) -> tuple[float, ...]:
    """ModelTransformation: a 4×4 matrix from (column, row, level, 1) to the ground."""
    return tuple(v / (across, down, 1, 1)[i % 4] for i, v in enumerate(value))


_GEOREFERENCE: dict[int, Callable[[tuple[float, ...], float, float], tuple[float, ...]]] = {
    33550: _per_pixel,
    33922: _tie_points,
    34264: _transformation,
}
_DOUBLE, _SHORT, _TEXT = 12, 3, 2
#: GDAL's tag for the value that stands for no data, as text.
NODATA_TAG = 42113
#: The tags of a georeference: their type, and of how many numbers they have a multiple. The three above, the
#: GeoKeys and GDAL's own.
_GEO_TAGS = {
    33550: (_DOUBLE, 3),
    33922: (_DOUBLE, 6),
    34264: (_DOUBLE, 16),
    34735: (_SHORT, 4),
    34736: (_DOUBLE, 1),
    34737: (_TEXT, 0),
    42112: (_TEXT, 0),
    NODATA_TAG: (_TEXT, 0),
}


def geo_tags(tags: Iterable[Any]) -> tuple[TiffTag, ...] | None:
    """The georeference among the tags of a TIFF, as tifffile reads them; None if a part of it is malformed.

    Half a georeference would put a picture in the wrong place.
    """
    found = []
    for tag in tags:
        if tag.code in _GEO_TAGS:
            kind, multiple = _GEO_TAGS[tag.code]
            value = tag.value if isinstance(tag.value, tuple | str) else (tag.value,)
            if kind == _TEXT:
                good = isinstance(value, str)
            else:
                good = not isinstance(value, str) and bool(value) and not len(value) % multiple
                good = good and all(_is_number(number, kind) for number in value)
            if not good:
                return None
            found.append(TiffTag(tag.code, kind, len(value), value))
    return tuple(found)


def _is_number(value: Any, kind: int) -> bool:
    if kind == _SHORT:
        return isinstance(value, int) and 0 <= value < 2**16
    return isinstance(value, int | float) and math.isfinite(value)


def _georeferenced(tag: TiffTag, old: tuple[int, int], new: tuple[int, int]) -> TiffTag:
    adjust = _GEOREFERENCE.get(tag.code)
    if adjust is None:
        return tag
    return replace(tag, value=adjust(tag.value, new[0] / old[0], new[1] / old[1]))
