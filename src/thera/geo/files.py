"""Scales a file as what it is: a georeferenced raster, or a picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from thera.imaging.files import FileOptions, FileScaling, check_output, default_suffix, prepare_file
from thera.imaging.formats import FORMATS, format_of
from thera.imaging.picture import Picture
from thera.imaging.sizing import TargetSize
from thera.models import Model
from thera.tiled import Options
from thera.values.ranges import Stretch

from .raster import is_raster
from .upscaling import RasterOptions, RasterScaling, prepare_raster


@dataclass(frozen=True)
class Request:
    """Everything that the user asked for, whatever the file is.

    `stretch` and `cog` are options of rasters. If one is given, pictures are scaled as rasters, too.
    """

    target: TargetSize
    options: Options = field(default_factory=Options)
    file: FileOptions = field(default_factory=FileOptions)
    stretch: Stretch | None = None
    cog: bool = False

    def suffixes(self, source: Path) -> tuple[str, ...]:
        """The extensions that an output of `source` may get by default."""
        return (self.file.form.suffix,) if self.file.form else (source.suffix, ".png", ".tif")

    def is_raster(self, source: Path, output: Path | None) -> bool:
        """True if a file is scaled as a raster: input and output are rasters, or an option asks for it."""
        if self.cog or self.stretch is not None:
            return True
        form = self.file.form or (None if output is None else format_of(output))
        return form in (None, FORMATS["tiff"]) and is_raster(source)


def prepare(
    source: Path,
    model: Model,
    request: Request,
    output: Path | None,
    folder: Path,
    stem: str,
    picture: Picture | None = None,
) -> FileScaling | RasterScaling:
    """Reads or describes `source`, and checks everything that scaling it needs.

    `output`: the output file; by default a file in `folder` named `stem`, with the extension that suits.
    `picture`: the picture in `source`, if it was read before.
    """
    file = request.file
    if request.is_raster(source, output):
        own = source.suffix.lower() in FORMATS["tiff"].suffixes
        output = output or named(source, folder, stem, source.suffix if own else ".tif")
        options = RasterOptions(request.stretch, request.cog, file.overwrite, file.strip, file.alpha)
        return prepare_raster(source, output, model, request.target, request.options, options)
    if output is not None:  # a bad output is refused before anything is read
        check_output(source, output, file)
    picture = picture or file.read(source)
    if output is None:
        output = named(source, folder, stem, default_suffix(source, picture, file.form))
        check_output(source, output, file)
    return prepare_file(picture, output, model, request.target, request.options, file)


def named(source: Path, folder: Path, stem: str, suffix: str) -> Path:
    """The output file with this stem and extension, which is not added to a stem that already has it.

    >>> [named(Path(name), Path("out"), name, ".png").name for name in ("a.png", "a.gif")]
    ['a.png', 'a.gif.png']
    """
    return folder / (stem if stem == source.name and suffix == source.suffix else stem + suffix)
