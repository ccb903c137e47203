"""Scales a file as what it is: a georeferenced raster, or a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from thera.errors import InvalidInput, UnreadableImage
from thera.files import check_place
from thera.imaging.files import FileOptions, FileScaling, default_suffix, prepare_file
from thera.imaging.formats import FORMATS, format_of
from thera.imaging.picture import Picture
from thera.imaging.sizing import TargetSize
from thera.models import Model
from thera.tiled import Options
from thera.values.ranges import Stretch

from .jobs import check_raster_output
from .ome_tiff import OmeScaling, is_ome_tiff, prepare_ome_tiff
from .options import ALL, Choice, RasterOptions
from .raster import describe, is_raster
from .upscaling import RasterScaling, prepare_raster

#: A file that is about to be scaled.
Job = FileScaling | RasterScaling | OmeScaling


class Item(NamedTuple):
    """A file to scale into `output`; by default into a file in `folder` named `stem`."""

    source: Path
    folder: Path
    stem: str
    output: Path | None = None

    def named(self, suffix: str) -> Path:
        """The output with this extension, which is not added to a stem that already has it.

        >>> [Item(Path(name), Path("out"), name).named(".png").name for name in ("a.png", "a.gif")]
        ['a.png', 'a.gif.png']
        """
        there = self.stem == self.source.name and suffix == self.source.suffix
        name = self.stem if there else self.stem + suffix
        inner = self.source.stem  # a.ome of a.ome.tif, which becomes a_x2.ome.tif
        tiff = {suffix.lower(), self.source.suffix.lower()} <= {*FORMATS["tiff"].suffixes}
        if tiff and inner.lower().endswith(".ome") and self.stem.startswith(f"{inner}_"):
            name = inner[:-4] + self.stem.removeprefix(inner) + inner[-4:] + suffix
        return self.output or self.folder / name


@dataclass(frozen=True)
class Request:
    """Everything that the user asked for, whatever the file is.

    `stretch`, `cog` and `choice` are options of rasters. If one is given, pictures are scaled as rasters.
    """

    target: TargetSize
    options: Options = field(default_factory=Options)
    file: FileOptions = field(default_factory=FileOptions)
    stretch: Stretch | None = None
    cog: bool = False
    choice: Choice = ALL
    resume: bool = False

    @property
    def label(self) -> str:
        """The size as part of a file name."""
        resolution = self.choice.resolution
        return self.target.label if resolution is None else f"r{resolution:g}"

    def outputs(self, item: Item) -> list[Path]:
        """The files that an earlier call may have made of an item."""
        form = self.file.form
        suffixes = (form.suffix,) if form else (item.source.suffix, ".png", ".tif")
        return [item.named(suffix) for suffix in suffixes]

    def is_raster(self, item: Item) -> bool:
        """True if a file is scaled as a raster: input and output are rasters, or an option asks for it.

        OME-TIFFs count as rasters.
        """
        if self.cog or self.stretch is not None or self.choice != ALL or self.options.consistent:
            return True
        if not self.may_be_raster(item):
            return False
        return is_ome_tiff(item.source) or is_raster(item.source, placed=item.output is not None)

    def may_be_raster(self, item: Item) -> bool:
        """True if the output can be a raster."""
        form = self.file.form or (None if item.output is None else format_of(item.output))
        return form in (None, FORMATS["tiff"])


def prepare(item: Item, model: Callable[[], Model], request: Request, picture: Picture | None = None) -> Job:
    """Reads or describes a file, and checks everything that scaling it needs.

    `model` gives the model. It is called when the file was read and the output may be written, since a model
    may take seconds to load. `picture`: the picture in the file, if it was read before.
    """
    source, file = item.source, request.file
    if request.is_raster(item):
        return _prepare_raster(item, model, request)
    if request.resume:
        raise InvalidInput(f"--resume is for rasters, and {source} is a picture: leave it out.")
    if item.output is not None:  # a bad output is refused before anything is read
        check_place(item.output, file.overwrite, source)
    try:
        picture = picture or file.read(source)
    except UnreadableImage as problem:
        if not request.may_be_raster(item) or find_spec("rasterio") is None:
            raise
        try:
            describe(source)  # before the model is loaded: most such files are no rasters either
            return _prepare_raster(item, model, request)
        except UnreadableImage:
            raise problem from None
    output = item.output or item.named(default_suffix(source, picture, file.form))
    if item.output is None:
        check_place(output, file.overwrite, source)
    return prepare_file(picture, output, model(), request.target, request.options, file)


def _prepare_raster(item: Item, model: Callable[[], Model], request: Request) -> RasterScaling | OmeScaling:
    source, file = item.source, request.file
    if file.linear:
        raise InvalidInput(f"{source} is a raster, and --linear is for pictures: leave it out.")
    if request.target.resolution is not None:
        raise InvalidInput(f"--print and --dpi are for pictures, and {source} is scaled as a raster.")
    own = source.suffix.lower() in FORMATS["tiff"].suffixes
    output = item.named(source.suffix if own else ".tif")
    check_raster_output(source, output, file.overwrite)  # before the model is loaded
    if is_ome_tiff(source):
        if request.cog or request.choice != ALL or request.resume:
            raise InvalidInput(
                f"--cog, --bands, --bounds, --resolution and --resume are for rasters, and {source} is an"
                " OME-TIFF: leave them out."
            )
        if file.strip or file.alpha != "cover":
            raise InvalidInput(
                f"--strip and --alpha data are for pictures and rasters, and {source} is an OME-TIFF: leave"
                " them out."
            )
        inputs = model(), request.target, request.options, request.stretch, file.overwrite
        return prepare_ome_tiff(source, output, *inputs)
    options = RasterOptions(
        request.stretch, request.cog, file.overwrite, file.strip, file.alpha, request.choice, request.resume
    )
    return prepare_raster(source, output, model(), request.target, request.options, options)
