"""Scaling image files: everything that can fail is checked before the first multiplication."""

import math
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from thera.errors import ImageFileError, InvalidInput
from thera.field import Filter
from thera.models import Model

from .formats import FORMATS, Format, format_of
from .metadata import Metadata
from .picture import Layout, Picture, Range
from .planes import without_alpha
from .reading import MAX_PIXELS, read
from .sizing import Wish, human_bytes, physical_memory
from .tiling import Plan
from .upscaling import Scaling, prepare
from .writing import encode, reason_of, replacing

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


def prepare_file(
    source: Path,
    output: Path | Callable[[Picture], Path],
    model: Model,
    wish: Wish,
    *,
    form: Format | None = None,
    quality: int | None = None,
    ensemble: bool = False,
    psf: Filter | None = None,
    memory: int | None = None,
    overwrite: bool = False,
    strip: bool = False,
    alpha: Literal["cover", "data"] = "cover",
    max_pixels: int = MAX_PIXELS,
) -> FileScaling:
    """Reads `source` and checks all that scaling it to `output` needs.

    `output` may depend on what was read.
    `alpha`: whether alpha covers, or is data of its own whose colours count also where it is 0.
    """
    if isinstance(output, Path):
        check_output(source, output, overwrite, form)
    picture = read(source, max_pixels)
    if not isinstance(output, Path):
        output = output(picture)
        check_output(source, output, overwrite, form)
    form = form or format_of(output)
    size = wish.for_image(picture.layout.size)
    picture = replace(picture, covers=picture.covers and alpha == "cover")
    if strip:
        picture = replace(picture, metadata=Metadata())
    picture, dtype, notes = suited(picture, form)
    metadata, lost = picture.metadata.resized(picture.layout.size, size).fitting(form)

    layout = replace(picture.layout, height=size[0], width=size[1], dtype=dtype)
    check_limits(layout, form)
    check_disk(layout, form, output)
    kept = 0 if form.streams else HELD_BYTES[form.name][picture.alpha] * size[0] * size[1]
    scaling = prepare(
        model,
        picture,
        size,
        ensemble=ensemble,
        psf=psf,
        memory=memory,
        output_memory=kept,
        dtype=dtype,
    )
    available = physical_memory()
    if available is not None and scaling.plan.memory > available:
        raise InvalidInput(
            f"The plan needs {human_bytes(scaling.plan.memory)} of memory and this machine has"
            f" {human_bytes(available)}: lower --memory."
        )
    return FileScaling(scaling, output, form, metadata, quality, (*picture.notes, *notes, *lost))


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
        picture = without_alpha(picture)
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


def check_output(source: Path, output: Path, overwrite: bool, form: Format | None = None) -> None:
    """Refuses an output that cannot be written, or that must not be, or as no image."""
    if form is None:
        format_of(output)
    check_place(output, overwrite, source)


def check_place(output: Path, overwrite: bool, source: Path | None = None) -> None:
    """Refuses a file that cannot be written, or that must not be: what exists, unless told, and the input."""
    try:
        kind = output.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        kind = 0
    except OSError as error:  # a name too long, a link to itself
        raise ImageFileError(f"{output} could not be written: {reason_of(error)}.") from error
    if stat.S_ISDIR(kind):
        raise ImageFileError(f"The output {output} is a folder; a file name was expected.")
    if not output.parent.is_dir():
        raise ImageFileError(f"The folder {output.parent} of the output does not exist: make it first.")
    if not os.access(output.parent, os.W_OK):
        raise ImageFileError(f"The folder {output.parent} may not be written to: check its permissions.")
    if kind:
        if source is not None and os.path.exists(source) and os.path.samefile(source, output):
            raise ImageFileError(f"The output {output} is the input itself: choose another name.")
        if not stat.S_ISREG(kind):
            raise ImageFileError(f"The output {output} is a pipe or a device: choose another name.")
        if not overwrite:
            raise ImageFileError(f"The output {output} exists: pass --overwrite to replace it.")


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
