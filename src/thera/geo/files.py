"""A file scaled as what it is: a raster with its place and bands, or a picture."""

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
    """Everything that was asked of a scaling, whatever file it is done to.

    `stretch` and `cog` are of rasters: asking for one makes a raster of a picture, too.
    """

    target: TargetSize
    options: Options = field(default_factory=Options)
    file: FileOptions = field(default_factory=FileOptions)
    stretch: Stretch | None = None
    cog: bool = False

    def suffixes(self, source: Path) -> tuple[str, ...]:
        """The endings that an output of `source` may get where none is given."""
        return (self.file.form.suffix,) if self.file.form else (source.suffix, ".png", ".tif")

    def is_raster(self, source: Path, output: Path | None) -> bool:
        """True if a file is scaled as a raster: it is one and becomes one, or it was asked for."""
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
    """Reads or describes `source`, and checks all that scaling it needs before anything is computed.

    `output`: where to write; unless given, a file in `folder` named `stem`, with the ending that suits.
    `picture`: what `source` holds, if it was read before.
    """
    file = request.file
    if request.is_raster(source, output):
        own = source.suffix.lower() in FORMATS["tiff"].suffixes
        output = output or named(source, folder, stem, source.suffix if own else ".tif")
        options = RasterOptions(request.stretch, request.cog, file.overwrite, file.strip, file.alpha)
        return prepare_raster(source, output, model, request.target, request.options, options)
    if output is not None:  # refused before anything is read
        check_output(source, output, file)
    picture = picture or file.read(source)
    if output is None:
        output = named(source, folder, stem, default_suffix(source, picture, file.form))
        check_output(source, output, file)
    return prepare_file(picture, output, model, request.target, request.options, file)


def named(source: Path, folder: Path, stem: str, suffix: str) -> Path:
    """The output of this stem and ending; a stem that is the input's whole name may have that ending already.

    >>> [named(Path(name), Path("out"), name, ".png").name for name in ("a.png", "a.gif")]
    ['a.png', 'a.gif.png']
    """
    return folder / (stem if stem == source.name and suffix == source.suffix else stem + suffix)
