"""Scaling image files: everything that can fail is checked before the first multiplication."""

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from thera.errors import ImageFileError, InvalidInput
from thera.files import check_place, replacing
from thera.memory import human_bytes, physical_memory
from thera.models import Model
from thera.tiled import Options, Plan
from thera.values.ranges import Range

from .formats import FORMATS, Format, format_of
from .metadata import Metadata
from .picture import Layout, Picture
from .reading import MAX_PIXELS, read
from .sizing import TargetSize
from .upscaling import Scaling, prepare
from .writing import encode

#: Bytes for each pixel held by encoders that cannot write as rows come, without and with alpha, as measured.
HELD_BYTES = {"jpeg": (6, 6), "webp": (12, 36), "avif": (40, 50), "bmp": (6, 6)}


@dataclass(frozen=True)
class FileScaling:
    """An image file about to be scaled into another: read, planned and checked."""

    scaling: Scaling
    output: Path
    form: Format
    metadata: Metadata
    quality: int | None
    notes: tuple[str, ...]

    @property
    def model(self) -> Model:
        return self.scaling.model

    @property
    def plan(self) -> Plan:
        return self.scaling.plan

    @property
    def tiles(self) -> int:
        return self.plan.tiles

    @property
    def depth(self) -> str:
        return self.scaling.layout.depth

    def run(self, progress: Callable[[int], object] = lambda pixels: None) -> None:
        """Writes the output, whole or not at all."""
        bands = self.scaling.bands(progress)
        with replacing(self.output) as file:
            encode(file, self.scaling.layout, self.metadata, bands, self.form, self.quality)


@dataclass(frozen=True)
class FileOptions:
    """How pictures are read and written.

    `form`: the output's format; by its name unless given. `quality`: of JPEG, WebP and AVIF.
    `strip`: leave metadata behind.
    `alpha`: "cover", or "data" for a channel of its own whose colours count also where it is 0.
    """

    form: Format | None = None
    quality: int | None = None
    overwrite: bool = False
    strip: bool = False
    alpha: Literal["cover", "data"] = "cover"
    max_pixels: int = MAX_PIXELS

    def read(self, source: Path) -> Picture:
        """The picture in a file, with as much of what it carries as is wanted."""
        picture = read(source, self.max_pixels)
        picture = replace(picture, covers=picture.covers and self.alpha == "cover")
        return replace(picture, metadata=Metadata()) if self.strip else picture


def prepare_file(
    picture: Picture,
    output: Path,
    model: Model,
    target: TargetSize,
    options: Options | None = None,
    file: FileOptions | None = None,
) -> FileScaling:
    """Checks all that scaling a picture into the file `output` needs."""
    options, file = options or Options(), file or FileOptions()
    form = file.form or format_of(output)
    size = target.for_image(picture.layout.size)
    picture, dtype, notes = suited(picture, form)
    metadata, lost = picture.metadata.resized(picture.layout.size, size).fitting(form)

    layout = replace(picture.layout, height=size[0], width=size[1], dtype=dtype)
    check_limits(layout, form)
    check_disk(layout, form, output)
    kept = 0 if form.streams else HELD_BYTES[form.name][picture.alpha] * size[0] * size[1]
    scaling = prepare(model, picture, size, options, output_memory=kept, dtype=dtype)
    available = physical_memory()
    if available is not None and scaling.plan.memory > available:
        raise InvalidInput(
            f"The plan needs {human_bytes(scaling.plan.memory)} of memory and this machine has"
            f" {human_bytes(available)}: lower --memory."
        )
    return FileScaling(scaling, output, form, metadata, file.quality, (*picture.notes, *notes, *lost))


def suited(picture: Picture, form: Format) -> tuple[Picture, np.dtype, list[str]]:
    """The picture as `form` can hold it, the type of its samples there, and what had to be given up."""
    notes = []
    if picture.colour == "cmyk" and not form.cmyk:
        raise ImageFileError(f"{form.name.upper()} holds no CMYK: write TIFF or JPEG.")
    if picture.alpha and not form.alpha:
        opaque = picture.samples[..., -1].min() == Range.of(picture.samples[..., -1]).high
        if not opaque:
            loss = "the image was put on white" if picture.covers else "the alpha channel was left out"
            notes.append(f"{form.name.upper()} knows no transparency: {loss}")
        picture = picture.without_alpha()
    dtype = picture.samples.dtype
    if dtype.str[1:] not in form.depths:
        span = Range.of(picture.samples)
        if dtype != np.uint16 and span != Range(0.0, 1.0):
            able = dtype.str[1:] in FORMATS["tiff"].depths
            raise ImageFileError(
                f"{form.name.upper()} cannot hold {picture.layout.depth} values from {span.low:g} to"
                f" {span.high:g}: {'write TIFF' if able else 'make them 32-bit or floats first'}."
            )
        dtype = np.dtype(form.depths[-1])
        notes.append(f"{picture.layout.depth} samples became {8 * dtype.itemsize}-bit")
    return picture, dtype, notes


def holds(form: Format, picture: Picture) -> bool:
    """Whether a picture fits in `form` as it is."""
    return (
        (form.cmyk or picture.colour != "cmyk")
        and (form.alpha or not picture.alpha)
        and picture.samples.dtype.str[1:] in form.depths
    )


def default_suffix(name: Path, picture: Picture, form: Format | None = None) -> str:
    """The ending of an output: of the format asked for; else the input's own if its format holds the picture
    as it is, else PNG's or TIFF's."""
    if form is not None:
        return form.suffix
    for own in FORMATS.values():
        if name.suffix.lower() in own.suffixes and holds(own, picture):
            return name.suffix
    return ".png" if holds(FORMATS["png"], picture) else ".tif"


def check_output(source: Path, output: Path, file: FileOptions) -> None:
    """Refuses an output that cannot be written, must not be replaced, or is no image format."""
    if file.form is None:
        format_of(output)
    check_place(output, file.overwrite, source)


def check_limits(layout: Layout, form: Format) -> None:
    """Refuses a size that the format cannot hold."""
    if max(layout.size) > form.max_side:
        raise ImageFileError(
            f"{form.name.upper()} holds {form.max_side:,} pixels a side at most and the output has"
            f" {layout.width:,}×{layout.height:,}: write {_larger(layout)}."
        )
    pixels = layout.height * layout.width
    if (form.max_pixels and pixels > form.max_pixels) or (form.max_bytes and 4 * pixels > form.max_bytes):
        raise ImageFileError(
            f"{form.name.upper()} cannot hold an output of {layout.width:,}×{layout.height:,}:"
            f" write {_larger(layout)}."
        )


def _larger(layout: Layout) -> str:
    """Formats that hold an image of this size."""
    able = [
        form.name.upper() for form in FORMATS.values() if form.streams and max(layout.size) <= form.max_side
    ]
    return " or ".join(able)


def check_disk(layout: Layout, form: Format, output: Path) -> None:
    """Refuses an output for which the disk has no room: its raw size, or half of that in a lossy format."""
    needed = math.ceil(layout.nbytes * (0.5 if form.lossy else 1.0))
    free = shutil.disk_usage(output.parent).free
    if needed > free:
        raise ImageFileError(
            f"The output of {layout.width:,}×{layout.height:,} may take {human_bytes(needed)} and"
            f" {output.parent} has {human_bytes(free)} free: make room or choose another folder."
        )
