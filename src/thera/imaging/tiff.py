"""Read and write TIFF with tifffile: any depth, BigTIFF, written strip by strip."""

import logging
import struct
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from thera.errors import ImageFileError, UnreadableImage

from .deflate import PIECE, deflate, in_order, regrouped
from .metadata import (
    EXIF_IFD,
    GPS_IFD,
    NODATA_TAG,
    ORIENTATION,
    X_RESOLUTION,
    Y_RESOLUTION,
    Metadata,
    geo_tags,
    tiff_exif,
    upright_exif,
    upright_xmp,
)
from .picture import Colour, Layout, Picture, straight, turned, widened

logging.getLogger("tifffile").addHandler(logging.NullHandler())  # its warnings are for programmers

_XMP, _ICC, _IPTC, _RESOLUTION_UNIT, _DESCRIPTION = 700, 34675, 33723, 296, 270
_UNSPECIFIED, _ASSOCIATED, _UNASSOCIATED = 0, 1, 2
_BYTE, _ASCII, _LONG, _UNDEFINED, _LONG8 = 1, 2, 4, 7, 16
_PHOTOMETRIC = {"grey": "minisblack", "rgb": "rgb", "cmyk": "separated"}

#: CMYK and alpha.
MOST_CHANNELS = 5
#: The offsets of a TIFF end at 4 GiB. Some room is left for directories and metadata.
CLASSIC_LIMIT = 2**32 - 2**25


def read_tiff(path: Path, check_size: Callable[[int, int], None]) -> Picture:
    """Reads the one image of a TIFF file, turned upright."""
    from tifffile import TiffFile

    with TiffFile(path) as file:
        _check_complete(file)
        pages = sum(not cast(Any, page).is_reduced for page in _pages(file))
        if pages > 1 and file.is_ome:
            raise ImageFileError(
                f"The file is an OME-TIFF of {pages} planes, which no other format holds: write .ome.tif, or"
                " split it."
            )
        # ImageJ writes the planes of large stacks after a single page.
        planes = max(pages, cast(Any, file.imagej_metadata or {}).get("images", 1))
        if file.is_imagej and planes > 1:
            raise ImageFileError(_stack_advice(path, planes, file.series[0].axes))
        if pages > 1:
            raise ImageFileError(f"The file holds {pages} pages; Thera scales single images: split it.")
        page: Any = file.pages.first
        check_size(page.imagewidth, page.imagelength)
        if page.imagedepth > 1 or page.dtype is None or page.dtype.kind not in "buif":
            raise UnreadableImage("The TIFF stores its samples in a way Thera does not read: convert it.")
        samples, colour, alpha, notes = _samples(path, page)
        orientation = _value(page, ORIENTATION, 1)
        with path.open("rb") as raw:
            exif = upright_exif(tiff_exif(raw))
        georeference = geo_tags(page.tags)
        if georeference is None:
            notes = (*notes, "the georeference is damaged and was left out")
        metadata = Metadata(
            icc=_bytes(page, _ICC),
            exif=exif,
            xmp=upright_xmp(_bytes(page, _XMP)),
            dpi=_dpi(page),
            iptc=_iptc(page, file.byteorder),
            tiff_tags=georeference or (),
        )
        covers = tuple(page.extrasamples) != (_UNSPECIFIED,)
        if _value(page, NODATA_TAG) is not None:
            remedy = "a GeoTIFF keeps" if find_spec("rasterio") else "with thera[geo] a GeoTIFF keeps"
            notes = (*notes, f"nodata counts like any other value in a picture; {remedy} it apart")
    picture = Picture(samples, colour, alpha, covers, metadata, notes, format="tiff")
    return picture.upright(orientation if orientation in range(1, 9) else 1)


def _stack_advice(path: Path, planes: int, axes: str) -> str:
    """How to scale a stack of ImageJ's: as OME-TIFF, which says what its planes are."""
    copy = str(path.with_suffix(".ome.tif"))
    return (
        f"The file is an ImageJ stack of {planes} planes, which Thera scales as OME-TIFF: save it as one."
        f" In Python: import tifffile; tifffile.imwrite({copy!r}, tifffile.imread({str(path)!r}),"
        f" metadata={{'axes': {axes!r}}})"
    )


def _pages(file: Any) -> Iterator[Any]:
    """The pages of a TIFF. A damaged file may point back to an earlier page: there they end."""
    seen: set[int] = set()
    for page in file.pages:
        if page.offset in seen:
            return
        seen.add(page.offset)
        yield page


def _check_complete(file: Any) -> None:
    """Refuses an open TIFF that says that a further page or its description lies beyond its end.

    The library takes such a file for one with fewer pages and without a description.
    """
    kind, handle, size = file.tiff, file.filehandle, file.filehandle.size
    for page in _pages(file):
        handle.seek(page.offset)
        (count,) = struct.unpack(kind.tagnoformat, handle.read(kind.tagnosize))
        entries = handle.read(count * kind.tagsize)
        offset = handle.read(kind.offsetsize)
        ends = [struct.unpack(kind.offsetformat, offset)[0]] if len(offset) == kind.offsetsize else []
        for at in range(0, len(entries) - kind.tagsize + 1, kind.tagsize):
            code, dtype = struct.unpack_from(f"{kind.byteorder}HH", entries, at)
            if (code, dtype) == (_DESCRIPTION, _ASCII):
                wide = "Q" if kind.tagsize == 20 else "I"
                length, start = struct.unpack_from(f"{kind.byteorder}2{wide}", entries, at + 4)
                if length > struct.calcsize(wide):  # a shorter one is in the entry itself
                    ends.append(start + length - 1)
        if max(ends, default=0) >= size:
            raise ImageFileError(
                f"The TIFF is damaged or cut short (it has {size:,} bytes, and refers to byte {max(ends):,})."
            )


def check_complete(path: Path) -> None:
    """Refuses a TIFF that refers to what lies beyond its end. One that the library cannot open is let by."""
    from tifffile import TiffFile

    try:
        with TiffFile(path) as file:
            _check_complete(file)
    except ImageFileError as error:
        raise ImageFileError(f"{path}: {error}") from None
    except Exception:  # of files that are no TIFFs for the library, any
        return


def _samples(path: Path, page: Any) -> tuple[NDArray, Colour, bool, tuple[str, ...]]:
    """H×W×C samples, their colour model, whether alpha follows, and notes of what was changed."""
    kind, compression = (getattr(value, "name", "") for value in (page.photometric, page.compression))
    if page.samplesperpixel > MOST_CHANNELS:  # refused before a small file takes gigabytes
        raise _too_many(page.samplesperpixel)
    if kind == "YCBCR" and compression not in ("JPEG", "OJPEG"):
        with Image.open(path, formats=("TIFF",)) as image:  # libtiff reads all subsamplings
            image.load()
            samples = np.asarray(image.convert("RGB"))
        # Pillow has turned it upright; the caller expects it as it is stored.
        return turned(samples, _value(page, ORIENTATION, 1), back=True), "rgb", False, ()
    samples = page.asarray()
    if page.axes.startswith("S"):  # stored plane by plane
        samples = np.moveaxis(samples, 0, -1)
    samples = samples.reshape(page.imagelength, page.imagewidth, -1)
    notes: tuple[str, ...] = ()

    indices = samples.shape[2] == 1 and samples.dtype == np.uint8
    if kind == "PALETTE" or (indices and page.colormap is not None):  # which some files do not say
        palette = np.moveaxis(page.colormap, 0, -1)  # entries×3, always of 16 bits
        samples = (palette[samples[..., 0]] >> 8).astype(np.uint8)
        return samples, "rgb", False, ("the palette became full colour",)
    if samples.dtype == bool:
        samples = samples.astype(np.uint8) * 255
        notes = ("one bit a pixel became 8-bit grey",)
    elif samples.dtype.kind == "u" and page.bitspersample < 8 * samples.dtype.itemsize:
        samples = widened(samples, page.bitspersample)
        notes = (f"{page.bitspersample} bits a sample became {8 * samples.dtype.itemsize}",)
    if kind == "MINISWHITE":
        samples = np.iinfo(samples.dtype).max - samples if samples.dtype.kind == "u" else -samples

    colours: dict[str, tuple[Colour, int]] = {
        "MINISBLACK": ("grey", 1),
        "MINISWHITE": ("grey", 1),
        "RGB": ("rgb", 3),
        "YCBCR": ("rgb", 3),
        "SEPARATED": ("cmyk", 4),
    }
    if kind not in colours or samples.shape[2] < colours[kind][1]:
        raise ImageFileError(f"The TIFF holds {kind or 'unknown'} samples: convert them to RGB first.")
    colour, count = colours[kind]
    extra = samples.shape[2] - count
    if extra > 1:
        raise _too_many(samples.shape[2])
    if extra and tuple(page.extrasamples) == (_ASSOCIATED,):
        samples = straight(samples)
    return samples, colour, bool(extra), notes


def _too_many(channels: int) -> UnreadableImage:
    remedy = "." if find_spec("rasterio") else ", with: pip install 'thera[geo]'."
    return UnreadableImage(
        f"The TIFF has {channels} channels, and does not declare them as grey, RGB or CMYK with an alpha at"
        f" most, as pictures do: `thera upscale` scales its bands into another TIFF{remedy}"
    )


def _value(page: Any, code: int, default: Any = None) -> Any:
    tag = page.tags.get(code)
    return default if tag is None else tag.value


def _bytes(page: Any, code: int) -> bytes | None:
    """The value of a tag of bytes; None if it has another type."""
    value = _value(page, code)
    return value if isinstance(value, bytes) else None


def _iptc(page: Any, byteorder: str) -> bytes | None:
    """The IPTC block. Many programs call its bytes numbers of four bytes."""
    value = _value(page, _IPTC)
    if isinstance(value, tuple) and all(isinstance(number, int) and 0 <= number < 2**32 for number in value):
        return struct.pack(f"{byteorder}{len(value)}I", *value)
    return _bytes(page, _IPTC)


def _dpi(page: Any) -> tuple[float, float] | None:
    """The resolution per inch; TIFF may give it per centimetre."""
    per_inch = {2: 1.0, 3: 2.54}.get(_value(page, _RESOLUTION_UNIT, 2))
    values = [_value(page, X_RESOLUTION), _value(page, Y_RESOLUTION)]
    if per_inch is None or not all(isinstance(v, tuple) and len(v) == 2 and all(v) for v in values):
        return None
    x, y = (per_inch * n / d for n, d in values)
    return x, y


def write_tiff(file: BinaryIO, layout: Layout, metadata: Metadata, bands: Iterable[NDArray]) -> None:
    """Writes bands of rows (n×W×C) from the top down as one TIFF, or BigTIFF when it may pass 4 GiB."""
    from tifffile import TiffWriter

    rows = max(1, PIECE // (layout.width * layout.channels * layout.dtype.itemsize))
    shape = (layout.height, layout.width) + ((layout.channels,) if layout.channels > 1 else ())
    exif = Image.Exif()
    exif.load(metadata.exif or b"")
    directories = {code: tags for code in (EXIF_IFD, GPS_IFD) if (tags := exif.get_ifd(code))}
    big = layout.nbytes > CLASSIC_LIMIT
    with TiffWriter(file, bigtiff=big, byteorder="<") as writer:
        writer.write(
            in_order(_compressed_strip, regrouped(bands, rows)),
            shape=shape,
            dtype=layout.dtype,
            photometric=_PHOTOMETRIC[layout.colour],
            planarconfig="contig" if layout.channels > 1 else None,
            extrasamples=(_UNASSOCIATED if layout.covers else _UNSPECIFIED,) if layout.alpha else None,
            rowsperstrip=rows,
            compression="adobe_deflate",
            predictor=3 if layout.dtype.kind == "f" else 2,
            iccprofile=metadata.icc,
            resolution=metadata.dpi,
            resolutionunit="inch" if metadata.dpi else None,
            extratags=_extra_tags(exif, metadata, directories, big),
            metadata=None,
            software=False,
        )
    if directories:
        _append_directories(file, directories, big)


def _compressed_strip(strip: NDArray) -> bytes:
    """A strip as TIFF stores it: differences along the rows, compressed."""
    import imagecodecs

    difference = imagecodecs.floatpred_encode if strip.dtype.kind == "f" else imagecodecs.delta_encode
    return deflate(difference(np.ascontiguousarray(strip), axis=1).tobytes(), wbits=15)


def _extra_tags(
    exif: Image.Exif, metadata: Metadata, directories: dict[int, dict[int, Any]], big: bool
) -> list[tuple[int, int, int, Any, bool]]:
    tags: list[tuple[int, int, int, Any, bool]] = []
    for code, value in exif.items():
        if code not in (EXIF_IFD, GPS_IFD, ORIENTATION, X_RESOLUTION, Y_RESOLUTION, _RESOLUTION_UNIT):
            if isinstance(value, str):
                tags.append((code, _ASCII, 0, value, True))
            elif isinstance(value, bytes):
                tags.append((code, _BYTE, len(value), value, True))
    if metadata.xmp:
        tags.append((_XMP, _BYTE, len(metadata.xmp), metadata.xmp, True))
    if metadata.iptc:
        tags.append((_IPTC, _UNDEFINED, len(metadata.iptc), metadata.iptc, True))
    tags += [(tag.code, tag.dtype, tag.count, tag.value, True) for tag in metadata.tiff_tags]
    # tifffile refuses pointers to EXIF and GPS, so placeholders with the preceding code are written first.
    tags += [(code - 1, _LONG8 if big else _LONG, 1, 0, True) for code in directories]
    return tags


def _append_directories(file: BinaryIO, directories: dict[int, dict[int, Any]], big: bool) -> None:
    """Writes EXIF and GPS after the image, and turns their placeholders into pointers to them."""
    from PIL import TiffImagePlugin
    from tifffile import TiffFile

    header = b"II+\0\x08\0\0\0" + bytes(8) if big else b"II*\0\x08\0\0\0"
    for code, entries in directories.items():
        ifd = TiffImagePlugin.ImageFileDirectory_v2(header, group=code)
        for tag, value in entries.items():
            ifd[tag] = value
        offset = file.seek(0, 2)
        offset += file.write(bytes(offset % 2))  # directories start at even offsets
        file.write(ifd.tobytes(offset))
        file.seek(0)
        with TiffFile(file) as written:
            tag = cast(Any, written.pages.first).tags[code - 1]
        file.seek(tag.offset)
        file.write(struct.pack("<H", code))
        file.seek(tag.valueoffset)
        file.write(struct.pack("<Q" if big else "<I", offset))
