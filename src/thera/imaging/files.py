"""Scaling image files. Everything that can fail is checked before anything is computed."""

import math
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError, InvalidInput
from thera.files import replacing
from thera.memory import human_bytes, physical_memory
from thera.models import Model
from thera.tiled import Options, Plan, TiledField, make_plan
from thera.values.planes import Plane
from thera.values.ranges import Range
from thera.values.transfer import LINEAR, SRGB

from .avif import named_colours
from .formats import DEEP_AVIF, FORMATS, Format, format_of
from .metadata import Metadata
from .picture import Layout, Picture, over
from .reading import MAX_PIXELS, read
from .sizing import TargetSize
from .writing import encode

#: Measured bytes per pixel that encoders hold if they cannot write row by row, without and with alpha.
HELD_BYTES = {
    "jpeg": (6, 6),
    "webp": (12, 36),
    "avif": (40, 50),
    "bmp": (6, 6),
    "jxl": (96, 120),
    "exr": (40, 50),
    "hdr": (40, 40),
}


@dataclass(frozen=True)
class PictureOutput:
    """A picture file that is about to be written, with everything checked."""

    picture: Picture  # the input, as the format can hold it
    layout: Layout  # of the output
    output: Path
    form: Format
    metadata: Metadata
    quality: int | None
    notes: tuple[str, ...]

    @property
    def held(self) -> int:
        """Bytes that the encoder holds."""
        per_pixel = 0 if self.form.streams else HELD_BYTES[self.form.name][self.layout.alpha]
        if self.form.name == "avif":
            per_pixel *= self.layout.dtype.itemsize
        return per_pixel * self.layout.height * self.layout.width

    @property
    def disk(self) -> int:
        """Bytes that the file takes at most. Lossy ones are assumed to take half of the raw size."""
        return math.ceil(self.layout.nbytes * (0.5 if self.form.lossy else 1.0))

    def write(self, bands: Iterable[NDArray]) -> None:
        """Writes the rows of the output, whole or not at all."""
        if self.picture.alpha and not self.layout.alpha:
            bands = map(self._on_white, bands)
        with replacing(self.output) as file:
            encode(file, self.layout, self.metadata, bands, self.form, self.quality)

    def _on_white(self, band: NDArray) -> NDArray:
        """Samples with alpha on white. They are scaled before that, so that edges stay clean."""
        span = Range.of(band)
        white = 0.0 if self.layout.colour == "cmyk" else 1.0
        return over(band[..., :-1], band[..., -1:], (span, span), white)


@dataclass(frozen=True)
class FileScaling(PictureOutput):
    """An image file that is about to be scaled into another: read, planned and checked."""

    model: Model
    options: Options
    plan: Plan
    planes: list[Plane]  # of the picture

    @property
    def tiles(self) -> int:
        return self.plan.tiles

    @property
    def depth(self) -> str:
        return self.layout.depth

    @property
    def work(self) -> tuple[float, float]:
        """The effort of encoding, in pixels (see `Plan`), and pixels to render."""
        if TiledField(self.model, self.planes[0], self.options).is_identity(*self.plan.grid):
            return 0.0, 0.0
        times = len(self.planes) * self.options.rotations
        return times * self.plan.effort, times * math.prod(self.plan.size)

    def run(self, progress: Callable[[float], object] = lambda pixels: None) -> None:
        """Writes the output, whole or not at all."""
        self.write(self.bands(progress))

    def bands(self, progress: Callable[[float], object]) -> Iterator[NDArray]:
        """The output from the top down, n×W'×C samples at a time, all planes side by side."""
        fields = [TiledField(self.model, plane, self.options) for plane in self.planes]
        layout = replace(self.layout, alpha=self.picture.alpha)
        every = [field.rows(self.plan, lambda pixels: progress(pixels / len(fields))) for field in fields]
        for strips in zip(*every, strict=True):
            rows, cols, _ = strips[0]
            band = self.picture.empty_rows(len(rows), layout)
            for plane, strip in zip(self.planes, strips, strict=True):
                plane.put(strip.values, rows, cols, band)
            yield band


@dataclass(frozen=True)
class FileOptions:
    """How pictures are read and written.

    `form`: the output's format; by default the one that its name says.
    `quality`: the quality of JPEG, JPEG XL, WebP and AVIF. `strip`: drop all metadata.
    `alpha`: "cover" for transparency, or "data" for an ordinary channel: colours count even where it is 0.
    `linear`: scale in linear light, so that bright dots keep their light. None: if a picture becomes smaller.
    """

    form: Format | None = None
    quality: int | None = None
    overwrite: bool = False
    strip: bool = False
    alpha: Literal["cover", "data"] = "cover"
    max_pixels: int = MAX_PIXELS
    linear: bool | None = None

    def read(self, source: Path) -> Picture:
        """The picture in a file, with its metadata unless `strip` drops it."""
        picture = read(source, self.max_pixels)
        covers = picture.covers and self.alpha == "cover"
        picture = replace(picture, covers=covers)
        if not self.strip:
            return picture
        return replace(picture, metadata=Metadata(), transfer=picture.encoding)


def prepare_file(
    picture: Picture,
    output: Path,
    model: Model,
    target: TargetSize,
    options: Options | None = None,
    file: FileOptions | None = None,
) -> FileScaling:
    """Plans the scaling of a picture into the file `output`, and checks everything it needs."""
    options, file = options or Options(), file or FileOptions()
    size = target.for_image(picture.layout.size)
    if target.resolution is not None:
        picture = replace(picture, metadata=picture.metadata.at(target.resolution))
    result = check_picture(picture.scaled_to(size, file.linear), size, output, file)
    picture = result.picture
    planes = picture.planes(model.info.halo)  # this also refuses NaN before anything is computed
    held = picture.samples.nbytes + result.held
    advice = ", or write PNG or TIFF, which are written row by row" if result.held else ""
    plan = make_plan(model, picture.layout.size, size, options, planes=len(planes), held=held, advice=advice)
    available = physical_memory()
    if available is not None and plan.memory > available:
        raise InvalidInput(
            f"The plan needs {human_bytes(plan.memory)} of memory and this machine has"
            f" {human_bytes(available)}",
            "lower --memory",
        )
    return FileScaling(**vars(result), model=model, options=options, plan=plan, planes=planes)


def check_picture(picture: Picture, size: tuple[int, int], output: Path, file: FileOptions) -> PictureOutput:
    """Adapts a picture to the format of `output`, and checks that the file can hold it at `size`."""
    form = file.form or format_of(output)
    picture, dtype, notes = adapted(picture, form)
    metadata = picture.metadata.resized(picture.layout.size, size)
    if picture.written is not None and metadata.cicp is not None:
        metadata = replace(metadata, cicp=named_colours(metadata.cicp[0], picture.written))
    alpha = picture.alpha and form.alpha
    deep = _is_deep(form, picture)
    bits = picture.bits if deep else None
    layout = replace(picture.layout, height=size[0], width=size[1], dtype=dtype, alpha=alpha, bits=bits)
    if deep:
        form = DEEP_AVIF
    elif picture.bits is not None and dtype == np.uint16:
        notes.append(f"{picture.bits} bits a sample became 16")
    metadata, lost = metadata.fitting(form)
    check_limits(layout, form)
    notes = [*picture.notes, *notes, *lost]
    result = PictureOutput(picture, layout, output, form, metadata, file.quality, tuple(notes))
    check_disk(output, size, result.disk)
    return result


def adapted(picture: Picture, form: Format) -> tuple[Picture, np.dtype, list[str]]:
    """The picture as `form` can hold it, its sample type in the file, and notes about what is lost."""
    notes = []
    if picture.colour == "cmyk" and not form.cmyk:
        raise ImageFileError(f"{form.name.upper()} holds no CMYK: write TIFF or JPEG.")
    dtype = picture.samples.dtype
    integers = np.dtype(form.depths[-1]).kind != "f"
    if dtype.kind == "f" and integers and picture.encoding == LINEAR:
        picture = replace(picture, written=SRGB)
        seen = picture.visible
        if seen.min() < 0 or seen.max() > 1:
            notes.append(f"{form.name.upper()} holds nothing beyond black and white: it was cut off")
    elif form.light and picture.encoding != LINEAR and dtype.kind != "f":
        picture = replace(picture, written=LINEAR)
    elif integers:
        cut = picture.without_darker()
        if cut is not picture and cut.planes(halo=1)[0].span == Range(0.0, 1.0):
            picture = cut
            notes.append(f"{form.name.upper()} holds nothing darker than black: shadows were cut off")
    if picture.alpha and not form.alpha:
        opaque = picture.samples[..., -1].min() == Range.of(picture.samples[..., -1]).high
        if not opaque:
            loss = "the image was put on white" if picture.covers else "the alpha channel was left out"
            notes.append(f"{form.name.upper()} has no transparency: {loss}")
        if opaque or not picture.covers:
            picture = picture.without_alpha()
    if dtype.str[1:] not in form.depths and not _is_deep(form, picture):
        widest = np.dtype(form.depths[-1])
        floats = dtype.kind == widest.kind == "f"  # they stay the same numbers
        span = picture.planes(halo=1)[0].span  # of what can be seen
        if not floats and dtype not in (np.uint8, np.uint16) and span != Range(0.0, 1.0):
            able = dtype.str[1:] in FORMATS["tiff"].depths
            raise ImageFileError(
                f"{form.name.upper()} cannot hold {picture.layout.depth} values from {span.low:g} to"
                f" {span.high:g}: {'write TIFF' if able else 'make them 32-bit or floats first'}."
            )
        if integers and picture.written is None and dtype.kind == "f" and picture.visible.max() > 1:
            notes.append(f"{form.name.upper()} holds nothing brighter than white: highlights were cut off")
        if not floats or widest.itemsize < dtype.itemsize:
            notes.append(f"{picture.layout.depth} samples became {8 * widest.itemsize}-bit")
        dtype = widest
    return picture, dtype, notes


def holds(form: Format, picture: Picture) -> bool:
    """True if `form` can hold a picture as it is."""
    return (
        (form.cmyk or picture.colour != "cmyk")
        and (form.alpha or not picture.alpha)
        and (picture.samples.dtype.str[1:] in form.depths or _is_deep(form, picture))
    )


def _is_deep(form: Format, picture: Picture) -> bool:
    """True if a picture is written as an AVIF of 10 or 12 bits, as it was read. These carry no profile."""
    return form.name == "avif" and picture.bits is not None and picture.metadata.icc is None


def default_suffix(name: Path, picture: Picture, form: Format | None = None) -> str:
    """The file extension of an output: that of `form` if given; else the input's own if its format can hold
    the picture as it is; else that of PNG or TIFF."""
    if form is not None:
        return form.suffix
    for own in FORMATS.values():
        if name.suffix.lower() in own.suffixes and holds(own, picture):
            return name.suffix
    return ".png" if holds(FORMATS["png"], picture) else ".tif"


def check_limits(layout: Layout, form: Format) -> None:
    """Refuses an output that is too large for its format."""
    if max(layout.size) > form.max_side:
        raise ImageFileError(
            f"{form.name.upper()} holds {form.max_side:,} pixels a side at most, and the output has"
            f" {layout.width:,}×{layout.height:,}: write {_larger(layout)}."
        )
    pixels = layout.height * layout.width
    if (form.max_pixels and pixels > form.max_pixels) or (form.max_bytes and 4 * pixels > form.max_bytes):
        raise ImageFileError(
            f"{form.name.upper()} cannot hold an output of {layout.width:,}×{layout.height:,}:"
            f" write {_larger(layout)}."
        )


def _larger(layout: Layout) -> str:
    """The formats that can hold an image of this size."""
    able = [
        form.name.upper() for form in FORMATS.values() if form.streams and max(layout.size) <= form.max_side
    ]
    return " or ".join(able)


def check_disk(output: Path, size: tuple[int, int], needed: int) -> None:
    """Refuses an output for whose `needed` bytes the disk has no room."""
    total, _, free = shutil.disk_usage(output.parent)
    if needed > free and total:  # /proc and others have no size: writing there says what is wrong
        raise ImageFileError(
            f"The output of {size[1]:,}×{size[0]:,} may take {human_bytes(needed)} while it is written, and"
            f" {output.parent} has {human_bytes(free)} free: make room or choose another folder."
        )
