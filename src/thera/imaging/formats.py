"""The image formats that Thera writes, and what each can store."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from thera.errors import ImageFileError, InvalidInput
from thera.files import folder_given

#: Kinds of metadata.
Carried = frozenset[str]
USUAL: Carried = frozenset({"icc", "exif", "xmp", "dpi"})


@dataclass(frozen=True)
class Format:
    """One output format and its limits.

    `depths` are the sample types that it can store, as NumPy names ("u1", "u2", "f4", …), widest last.
    """

    name: str
    suffixes: tuple[str, ...]
    depths: tuple[str, ...] = ("u1",)
    alpha: bool = True
    cmyk: bool = False
    lossy: bool = False
    max_side: int = 2**31 - 1
    max_bytes: int | None = None
    max_pixels: int | None = None
    carries: Carried = USUAL
    streams: bool = False
    light: bool = False  # samples are linear light

    @property
    def suffix(self) -> str:
        return self.suffixes[0]


FORMATS = {
    form.name: form
    for form in (
        Format("png", (".png",), ("u1", "u2"), carries=USUAL | {"text", "cicp"}, streams=True),
        Format(
            "jpeg",
            (".jpg", ".jpeg", ".jfif"),
            alpha=False,
            cmyk=True,
            lossy=True,
            max_side=65_535,
            carries=USUAL | {"iptc", "comment"},
        ),
        Format("webp", (".webp",), lossy=True, max_side=16_383, carries=USUAL - {"dpi"}),
        # The two limits are those of libavif's reader: it would not open a larger file.
        Format(
            "avif",
            (".avif",),
            lossy=True,
            max_side=32_768,
            max_pixels=16_384 * 16_384,
            carries=USUAL - {"dpi"},
        ),
        Format(
            "tiff",
            (".tif", ".tiff"),
            ("u1", "u2", "u4", "i1", "i2", "i4", "f2", "f4", "f8"),
            cmyk=True,
            carries=USUAL | {"iptc"},
            streams=True,
        ),
        # imagecodecs writes no ICC profile.
        Format("jxl", (".jxl",), ("u1", "u2", "f4"), lossy=True, carries=frozenset({"exif", "xmp", "cicp"})),
        Format("exr", (".exr",), ("f2", "f4"), carries=frozenset({"cicp"}), light=True),
        Format("hdr", (".hdr",), ("f4",), alpha=False, carries=frozenset({"cicp"}), light=True),
        Format("bmp", (".bmp",), alpha=False, max_bytes=2**32 - 2**16, carries=frozenset({"dpi"})),
    )
}

#: An AVIF of 10 or 12 bits, by imagecodecs, which writes the colour space by number and nothing else.
DEEP_AVIF = replace(FORMATS["avif"], depths=("u2",), carries=frozenset({"cicp"}))

#: Suffixes of camera RAW files.
RAW_SUFFIXES = (".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf", ".pef", ".srw")
#: Suffixes of files that can be read but not written: such images are written as PNG.
READ_ONLY_SUFFIXES = (".gif", ".heic", ".heif", ".hif", ".tga", ".dds", *RAW_SUFFIXES)
READABLE_SUFFIXES = (*(s for form in FORMATS.values() for s in form.suffixes), *READ_ONLY_SUFFIXES)


def format_named(name: str) -> Format:
    """The format called `name`: "png", "jpeg" or "jpg", "tiff" or "tif", …

    >>> format_named("jpg").name
    'jpeg'
    """
    wanted = "." + name.lower().lstrip(".")
    for form in FORMATS.values():
        if wanted[1:] == form.name or wanted in form.suffixes:
            return form
    raise InvalidInput(f"{name!r} is not a format Thera writes: choose one of {', '.join(FORMATS)}.")


def format_of(path: Path) -> Format:
    """The format that the suffix of an output names.

    >>> format_of(Path("scan.TIF")).name
    'tiff'
    """
    for form in FORMATS.values():
        if path.suffix.lower() in form.suffixes:
            return form
    if os.path.isdir(path):  # False for a name that is too long, where Path.is_dir would raise
        raise folder_given(path)
    given = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
    raise ImageFileError(
        f"The output {path.name!r} {given}, which names no format Thera writes:"
        f" end it in one of {', '.join(form.suffix for form in FORMATS.values())}."
    )
