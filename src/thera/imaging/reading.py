"""Read image files: samples at full depth, colour model, alpha and metadata, turned upright."""

import math
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from thera.errors import ImageFileError, TheraError, UnreadableImage
from thera.files import reason_of
from thera.optional import require

from . import jxl, light, raw, tiff
from .avif import depth_and_colours, named_colours
from .formats import RAW_SUFFIXES
from .metadata import (
    COMMENT,
    ORIENTATION,
    RESOLUTION_UNIT,
    SIDEWAYS,
    X_RESOLUTION,
    Y_RESOLUTION,
    Metadata,
    upright_exif,
    upright_xmp,
)
from .picture import BAND_SAMPLES, Colour, Picture, turned, widened
from .png import png_chunk
from .quiet import quiet

#: The plug-ins of Pillow that may read a file. None of them interprets code or runs another program.
PILLOW_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "AVIF", "DDS", "TGA")
#: An image with more pixels counts as a decompression bomb, unless the caller allows it.
MAX_PIXELS = 2**28

_HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
#: Texts of a PNG that hold metadata, which is read and written as such.
_METADATA_TEXTS = ("XML:com.adobe.xmp", "Raw profile type exif")
#: The number of the IPTC block among Photoshop's blocks in a JPEG.
_IPTC = 0x0404
_TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def read(path: str | Path, max_pixels: int = MAX_PIXELS) -> Picture:
    """Reads an image file and turns the image upright.

    Raises ImageFileError for anything but one complete, still image.
    """
    path = Path(path)
    head = _head(path)
    try:
        with _bounded(), quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # decoders warn of oddities that they handle
            return _read(path, head, max_pixels)
    except UnidentifiedImageError:
        if head[4:12] in (b"ftypavif", b"ftypavis"):  # of a damaged AVIF, Pillow says nothing else
            raise ImageFileError(f"{path} is damaged or cut short.") from None
        raise UnreadableImage(f"{path} is not an image that Thera reads: {_readable()} are.") from None
    except TheraError as error:
        named = type(error)(f"{path}: {error}")
        named.problem = f"{path}: {error.problem}"
        raise named from error.__cause__
    except MemoryError:
        raise ImageFileError(f"{path} does not fit in memory.") from None
    except Exception as error:  # for damaged files, decoders raise anything: struct.error, KeyError, …
        # GDAL reads TIFFs that tifffile does not. Of other damaged files it would make up the rest.
        kind = UnreadableImage if head[:4] in _TIFF_MAGIC else ImageFileError
        raise kind(f"{path} {_problem(error)}.") from error


def decoded(image: Image.Image) -> Image.Image:
    """A Pillow image with its pixels, of which nothing but the head may have been read so far."""
    try:
        image.load()
    except MemoryError:
        raise ImageFileError("The image does not fit in memory.") from None
    except Exception as error:  # as above
        raise ImageFileError(f"The image {_problem(error)}.") from error
    return image


def _problem(error: Exception) -> str:
    """What is wrong with an image that a decoder did not read."""
    reason = str(error).strip().rstrip(".").splitlines()
    detail = f" ({reason[0]})" if reason else ""
    unknown = isinstance(error, NotImplementedError) or detail.startswith((" (Unsupported", " (Unimpl"))
    return ("is stored in a way that Thera does not read" if unknown else "is damaged or cut short") + detail


def _head(path: Path) -> bytes:
    """The first bytes of a file."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except FileNotFoundError:
        raise ImageFileError(f"{path} does not exist.") from None
    except IsADirectoryError:
        raise ImageFileError(f"{path} is a folder; an image file was expected.") from None
    except PermissionError:
        raise ImageFileError(f"{path} may not be read: check its permissions.") from None
    except OSError as error:  # such as a link to itself, a name that is too long, or a failing disk
        raise ImageFileError(f"{path} could not be read: {reason_of(error)}.") from error
    if not head:
        raise ImageFileError(f"{path} is empty.")
    return head


def _read(path: Path, head: bytes, max_pixels: int) -> Picture:
    def check(width: int, height: int) -> None:
        _check_size(width, height, max_pixels)

    for applies, reader in (
        (path.suffix.lower() in RAW_SUFFIXES, raw.read_raw),
        (head[:4] in _TIFF_MAGIC, tiff.read_tiff),
        (head.startswith(jxl.SIGNATURES), jxl.read_jxl),
        (head.startswith(light.EXR_MAGIC), light.read_exr),
        (head.startswith(light.HDR_MAGIC), light.read_hdr),
    ):
        if applies:
            return reader(path, check)
    if head[4:8] == b"ftyp" and head[8:12] in _HEIC_BRANDS:
        return _read_heic(path, max_pixels)
    with Image.open(path, formats=PILLOW_FORMATS) as image:
        _check_size(image.width, image.height, max_pixels)
        frames = getattr(image, "n_frames", 1)
        if frames > 1 and image.format != "MPO":  # in MPO files of phones, the other frames are previews
            raise ImageFileError(f"This is an animation of {frames} frames; Thera scales single images.")
        depth, colours = depth_and_colours(path) if image.format == "AVIF" else (8, None)
        if image.format == "PNG" and ";16" in _stored(image):
            picture = _read_deep(path, image, "png", 16)
        elif depth > 8:
            picture = _read_deep(path, image, "avif", depth)
        else:
            picture = from_pillow(image)
        if image.format == "PNG":
            colours = png_chunk(path, b"cICP")
        picture = replace(picture, metadata=replace(picture.metadata, cicp=colours))
        if frames > 1:
            others = "another picture" if frames == 2 else f"{frames - 1} other pictures"
            picture = replace(
                picture, notes=(*picture.notes, f"{others} in the file: only the first is kept")
            )
        return picture


def _read_deep(path: Path, image: Image.Image, form: Literal["png", "avif"], depth: int) -> Picture:
    """Reads samples with imagecodecs, because Pillow reduces more than 8 bits to 8."""
    import imagecodecs

    orientation, metadata = _metadata(image)
    decode = imagecodecs.png_decode if form == "png" else imagecodecs.avif_decode
    samples = decode(path.read_bytes())
    samples = samples.reshape(*samples.shape[:2], -1)
    picture = Picture.of_channels(widened(samples, depth), metadata, form).upright(orientation)
    return picture if depth == 16 else replace(picture, bits=depth)


def _stored(image: Image.Image) -> str:
    """Pillow's name of how a file stores its pixels ("RGB;16B", "L;4"), known until they are decoded."""
    tiles = getattr(image, "tile", ())
    return str(tiles[0][3]) if tiles else ""


def from_pillow(image: Image.Image) -> Picture:
    """A Pillow image as a `Picture`, upright and with its metadata.

    >>> from_pillow(Image.new("LA", (4, 3))).layout.channels
    2
    """
    # Pillow scales greys of 2 and 4 bits to 8, but not the value that stands for transparency.
    factor = {"L;2": 85, "L;4": 17}.get(_stored(image), 1)
    orientation, metadata = _metadata(image)
    form = {"MPO": "jpeg"}.get(image.format or "", (image.format or "").lower())
    notes = []
    if image.mode == "1":
        image = image.convert("L")
        notes.append("one bit a pixel became 8-bit grey")
    elif image.mode in ("P", "PA"):
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
        notes.append("the palette became full colour")
    elif image.mode in ("La", "RGBa"):
        image = image.convert({"La": "LA", "RGBa": "RGBA"}[image.mode])
    elif image.mode in ("YCbCr", "HSV", "RGBX"):
        image = image.convert("RGB")
    if image.mode in ("L", "RGB") and "transparency" in image.info:
        if factor > 1:
            image = image.copy()
            image.info["transparency"] *= factor
        image = image.convert({"L": "LA", "RGB": "RGBA"}[image.mode])
    colours: dict[str, tuple[Colour, bool]] = {
        "L": ("grey", False),
        "LA": ("grey", True),
        "I": ("grey", False),
        "F": ("grey", False),
        "RGB": ("rgb", False),
        "RGBA": ("rgb", True),
        "CMYK": ("cmyk", False),
    }
    mode = "I" if image.mode.startswith("I;16") else image.mode
    if mode not in colours:
        raise ImageFileError(f"The image is stored as {image.mode}, a colour model Thera does not scale.")
    colour, alpha = colours[mode]
    samples = _upright_samples(image, orientation)
    if orientation in SIDEWAYS:
        metadata = metadata.transposed()
    return Picture(samples, colour, alpha, metadata=metadata, notes=tuple(notes), format=form)


def _upright_samples(image: Image.Image, orientation: int) -> NDArray:
    """The samples of an image, turned upright. It is copied in bands: Pillow's own array is two copies."""
    image.load()
    rows = max(1, BAND_SAMPLES // (image.width * len(image.getbands())))
    stored: NDArray | None = None
    for top in range(0, image.height, rows):
        band = np.asarray(image.crop((0, top, image.width, min(top + rows, image.height))))
        band = band.reshape(*band.shape[:2], -1)
        if stored is None:
            size = image.size if orientation in SIDEWAYS else image.size[::-1]
            samples = np.empty((*size, band.shape[2]), band.dtype.newbyteorder("="))
            stored = turned(samples, orientation, back=True)
        stored[top : top + len(band)] = band
    return samples


def _read_heic(path: Path, max_pixels: int) -> Picture:
    pillow_heif = require("pillow_heif", "heic", "This HEIC image")
    heic = pillow_heif.open_heif(path, convert_hdr_to_8bit=False)
    width, height = heic.size
    _check_size(width, height, max_pixels)
    exif = Image.Exif()
    exif.load(heic.info.get("exif") or b"")
    # libheif has already turned the picture, even if its EXIF names another orientation.
    nclx = heic.info.get("nclx_profile") or {}
    metadata = Metadata(
        icc=heic.info.get("icc_profile"),
        exif=upright_exif(exif),
        xmp=upright_xmp(heic.info.get("xmp")),
        cicp=named_colours(nclx.get("color_primaries", 2), nclx.get("transfer_characteristics", 2)),
    )
    samples, depth = np.asarray(heic), int(heic.info.get("bit_depth") or 8)
    samples = samples.reshape(*samples.shape[:2], -1)
    if samples.dtype == np.uint16 and depth < 16:  # the library appends zeros, so that white would be grey
        samples = widened(samples >> (16 - depth), depth)
        return replace(Picture.of_channels(samples, metadata, "heic"), bits=depth)
    return Picture.of_channels(samples, metadata, "heic")


def _metadata(image: Image.Image) -> tuple[int, Metadata]:
    """The orientation to apply, and the metadata of the image after it is applied."""
    info: dict[Any, Any] = image.info
    try:
        exif = image.getexif()
        orientation = exif.get(ORIENTATION, 1)
    # A damaged block is dropped.
    except (struct.error, ValueError, TypeError, KeyError, OSError, SyntaxError):
        exif, orientation = Image.Exif(), 1
    gamma, corners, srgb = info.get("gamma"), info.get("chromaticity"), info.get("srgb")
    colour = []
    if gamma:
        colour.append((b"gAMA", struct.pack(">I", round(gamma * 100_000))))
    if corners:
        colour.append((b"cHRM", struct.pack(f">{len(corners)}I", *(round(v * 100_000) for v in corners))))
    if srgb is not None:
        colour.append((b"sRGB", struct.pack(">B", srgb)))
    comment, photoshop = info.get("comment"), info.get("photoshop") or {}
    text = [(k, str(v)) for k, v in getattr(image, "text", {}).items() if k not in _METADATA_TEXTS]
    if comment:
        text.append((COMMENT, _decoded(comment)))
    return orientation if orientation in range(1, 9) else 1, Metadata(
        icc=info.get("icc_profile") or None,
        exif=upright_exif(exif),
        xmp=upright_xmp(info.get("xmp")),
        dpi=_dpi(image, exif),
        iptc=photoshop.get(_IPTC) or None,
        text=tuple(text),
        png_colour=tuple(colour),
    )


def _dpi(image: Image.Image, exif: Image.Exif) -> tuple[float, float] | None:
    """The resolution per inch, if the file has one. For a JPEG without, Pillow makes up 72."""
    dpi: Any = image.info.get("dpi")
    if image.format in ("JPEG", "MPO") and image.info.get("jfif_unit") not in (1, 2):
        per_inch = {2: 1.0, 3: 2.54}.get(exif.get(RESOLUTION_UNIT, 2))
        x: Any = exif.get(X_RESOLUTION)
        try:
            dpi = per_inch and [per_inch * float(v) for v in (x, exif.get(Y_RESOLUTION, x))]
        except (TypeError, ValueError, ZeroDivisionError):  # it is missing, or no number
            return None
    return (float(dpi[0]), float(dpi[1])) if dpi and all(0 < v < math.inf for v in dpi) else None


def _decoded(comment: str | bytes) -> str:
    """A comment, whose encoding a file does not name."""
    if isinstance(comment, str):
        return comment
    try:
        return comment.decode()
    except UnicodeDecodeError:
        return comment.decode("latin-1")


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width <= 0 or height <= 0:
        raise ImageFileError(f"The image is {width}×{height}: it has no pixels to scale.")
    if width * height > max_pixels:
        raise ImageFileError(
            f"The image claims {width:,}×{height:,} pixels, more than the limit of {max_pixels:,}",
            "pass --max-pixels (max_pixels=) if this is right",
        )


@contextmanager
def _bounded() -> Iterator[None]:
    """Lifts Pillow's own limit on pixels, because `_check_size` limits every decoder."""
    limit = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def _readable() -> str:
    return "PNG, JPEG, JPEG XL, WebP, AVIF, TIFF, BMP, OpenEXR, HDR, HEIC, camera RAW, still GIF, TGA and DDS"
