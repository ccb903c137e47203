"""`thera upscale`: a file or a folder of images to another size."""

import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from thera.cli.parameters import Box, Bytes, engine_options
from thera.errors import ImageFileError, InvalidInput, TheraError
from thera.imaging import DEFAULT_MODEL

if TYPE_CHECKING:
    from thera.cli.feedback import Feedback
    from thera.geo.upscaling import RasterScaling
    from thera.imaging.files import FileScaling
    from thera.models import Model

FILTERS = ("gaussian", "box", "butterworth", "ideal", "none")


@click.command("upscale")
@click.argument("source", metavar="INPUT", type=click.Path(readable=False, path_type=Path))
@click.argument("output", metavar="[OUTPUT]", required=False, type=click.Path(readable=False, path_type=Path))
@click.option("-s", "--scale", type=float, help="Times as large: 4, 2.5, 3.14; below 1 scales down.")
@click.option("--size", type=Box(), help="Exactly this size.")
@click.option("--width", type=int, help="This width, the height to match.")
@click.option("--height", type=int, help="This height, the width to match.")
@click.option("--fit", type=Box(), help="As large as fits in this box.")
@click.option(
    "-m", "--model", default=DEFAULT_MODEL, show_default=True, help="A name from `thera models`, or a file."
)
@click.option(
    "--ensemble/--no-ensemble",
    help="The mean of four rotations: a little better, four times as long. [default: no]",
)
@click.option(
    "--filter",
    "shape",
    type=click.Choice(FILTERS),
    help="Of the output pixel. [default: gaussian, and beyond ×8 without seams]",
)
@click.option(
    "--sharpness", type=float, default=1.0, show_default=True, help="Above 1 crisper, below 1 softer."
)
@engine_options
@click.option(
    "--memory",
    type=Bytes(),
    help="Tiles are chosen to stay within it. [default: 4GiB, or half of what there is]",
)
@click.option("--format", "form", help="png, jpeg, webp, avif, tiff or bmp, whatever the name says.")
@click.option(
    "--quality", type=click.IntRange(1, 100), help="Of JPEG and WebP (95), AVIF (90). 100 is lossless WebP."
)
@click.option(
    "--alpha",
    type=click.Choice(["cover", "data"]),
    default="cover",
    show_default=True,
    help="data: a channel like another, as in game textures; colours where it is 0 are kept.",
)
@click.option("-r", "--recursive", is_flag=True, help="Folders within the folder too.")
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Of a folder or a Zarr store: work in so many processes (thera[dask]).",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Of a folder or a Zarr store: work on the Dask cluster at this address, like tcp://host:8786.",
)
@click.option("--overwrite", is_flag=True, help="Replace outputs that exist.")
@click.option("--strip", is_flag=True, help="Drop ICC profile, EXIF, XMP and resolution.")
@click.option(
    "--range",
    "stretch",
    metavar="LO:HI",
    help="Of a raster: the values that stand for black and white. Also dtype, percentile or 2%:98%."
    " [default: dtype of bytes, percentile of others]",
)
@click.option("--cog", is_flag=True, help="Of a raster: write a cloud-optimised GeoTIFF.")
@click.option(
    "--max-pixels",
    type=click.IntRange(1),
    help="Read images up to this many pixels. [default: 268 million]",
)
@click.option("-q", "--quiet", is_flag=True, help="Only errors.")
@click.option("--json", "as_json", is_flag=True, help="A summary for machines, on stdout.")
def command(
    source: Path,
    output: Path | None,
    as_json: bool,
    quiet: bool,
    workers: int | None,
    scheduler: str | None,
    **given: Any,
) -> int:
    """Scale an image, or every image in a folder, to any size.

    \b
    thera upscale photo.jpg --scale 4                 photo_x4.jpg
    thera upscale photo.jpg --scale 3.14 big.png      any scale, any format
    thera upscale scan.tif --width 6000               16 bits stay 16 bits
    thera upscale logo.png --size 1024x1024           transparency stays clean
    thera upscale photo.heic --fit 3840x2160          as large as fits
    thera upscale textures/ upscaled/ -s 2 -r         a tree of files; run again to go on
    thera upscale scans/ -s 2 --workers 4             four files at a time
    thera upscale mosaic.zarr -s 2.5                  chunk by chunk, as large as it may be
    thera upscale map.tif --scale 8 --memory 1GiB     any size in bounded memory
    thera upscale photo.jpg --scale 0.3               down, without aliasing
    thera upscale scene.tif out.tif -s 2.5 --cog      a GeoTIFF, its bands, place and nodata kept

    OUTPUT defaults to a name beside INPUT that says the scale. Depth, colour profile, EXIF, XMP and
    resolution are kept. Nothing is written until everything is checked, and an interrupted run leaves no
    partial file.

    On two cores a photograph of one megapixel takes about 15 seconds with edsr-air and a minute with
    edsr-plus, which sees more around every pixel.
    """
    from thera.cli.feedback import Feedback

    began = time.monotonic()
    is_folder = os.path.isdir(source)  # which, unlike Path's, says no to a name too long
    is_store = source.suffix == ".zarr"
    several = workers is not None or scheduler is not None
    if several and not (is_folder or is_store):
        raise click.UsageError("--workers and --scheduler are for folders and Zarr stores")
    if workers is not None and scheduler is not None:
        raise click.UsageError("--workers are started here, --scheduler has its own: give one of them")
    run = Run(Feedback(quiet), **given)
    if is_store or several:
        from thera.cli.many import Cluster, scale_files, scale_store

        cluster = Cluster(workers, scheduler)
    if is_store:
        records = [scale_store(run, source, output, cluster)]
    elif several:
        records = scale_files(run, run.items(source, output), cluster)
    elif is_folder:
        records = [run.attempt(*item, one_of_many=True) for item in run.items(source, output)]
    else:
        records = [run.file(source, output)]
    failed = [record for record in records if record["status"] == "failed"]
    if as_json:
        counts = {s: sum(record["status"] == s for record in records) for s in ("done", "skipped", "failed")}
        summary = {"files": records, **counts, "seconds": round(time.monotonic() - began, 3)}
        click.echo(json.dumps(summary, indent=2, ensure_ascii=False))
    if len(records) > 1:
        skipped = sum(record["status"] == "skipped" for record in records)
        run.feedback.say(
            f"{len(records) - skipped - len(failed)} done, {skipped} already there, {len(failed)} failed"
        )
    for record in failed:
        click.echo(f"thera: {record['error']}", err=True)
    return 1 if failed else 0


@dataclass
class Run:
    """One call of the command: its options, and the model once it is loaded."""

    feedback: "Feedback"
    scale: float | None
    size: tuple[int, int] | None
    width: int | None
    height: int | None
    fit: tuple[int, int] | None
    model: str
    ensemble: bool
    shape: str | None
    sharpness: float
    engine: str
    device: str
    precision: str
    memory: int | None
    form: str | None
    quality: int | None
    alpha: str
    recursive: bool
    overwrite: bool
    strip: bool
    stretch: str | None
    cog: bool
    max_pixels: int | None
    threads: int = 0  # for the network; 0 for all cores

    def __post_init__(self) -> None:
        from thera.imaging.filters import filter_of
        from thera.imaging.formats import FORMATS, format_named
        from thera.imaging.sizing import TargetSize

        self._format = None if self.form is None else format_named(self.form)
        if (self.cog or self.stretch is not None) and self._format not in (None, FORMATS["tiff"]):
            option = "--cog" if self.cog else "--range"
            raise InvalidInput(f"{option} writes a TIFF and --format is {self.form}: leave one of them out.")
        self._filter = filter_of(self.shape, self.sharpness)
        self._wish = TargetSize(self.scale, self.size, self.width, self.height, self.fit)
        self._wish.check()
        self._stretch = None
        if self.stretch is not None:
            from thera.values.ranges import Stretch

            self._stretch = Stretch.parse(self.stretch)
        # ONNX Runtime prepares the model on another core while this one imports the rest and reads the image.
        self._loading = ThreadPoolExecutor(1).submit(self._load)

    @property
    def label(self) -> str:
        """What the default name of an output says: x2.5, 1920x1080, w1920, h1080, fit1920x1080."""
        if self.scale is not None:
            return f"x{self.scale:g}"
        if self.width is not None:
            return f"w{self.width}"
        if self.height is not None:
            return f"h{self.height}"
        rows, cols = self.size or self.fit or (0, 0)
        return f"{'fit' if self.fit else ''}{cols}x{rows}"

    def _load(self) -> "Model":
        from thera.models import load

        return load(self.model, self.engine, self.device, self.precision, self.threads)

    def loaded(self) -> "Model":
        return self._loading.result()

    def file(self, source: Path, output: Path | None) -> dict[str, Any]:
        """Scales one file."""
        if output is not None and os.path.isdir(output):
            return self.attempt(source, output, f"{source.stem}_{self.label}")
        return self.attempt(source, output or source.parent, f"{source.stem}_{self.label}", output)

    def items(self, source: Path, output: Path | None) -> list[tuple[Path, Path, str]]:
        """Every image of a folder, in the order of their names: what `attempt` takes to scale it."""
        from thera.imaging.formats import READABLE_SUFFIXES

        named = source if source.name not in ("", "..") else source.resolve()
        target = output or named.with_name(f"{named.name}_{self.label}")
        if os.path.exists(target) and (not target.is_dir() or target.samefile(source)):
            raise ImageFileError(f"The output {target} must be a folder of its own: name another.")
        if not os.path.isdir(target.parent):
            raise ImageFileError(f"The folder {target.parent} of the output does not exist: make it first.")
        inside = target.resolve()  # what an earlier run made is no input
        found = sorted(source.rglob("*") if self.recursive else source.iterdir())
        images = [
            path
            for path in found
            if path.suffix.lower() in READABLE_SUFFIXES
            and path.is_file()
            and inside not in path.resolve().parents
        ]
        if not images:
            hint = "" if self.recursive else " (--recursive looks in its folders too)"
            raise ImageFileError(f"The folder {source} has no images in it{hint}.")
        self.loaded()
        names = Counter(path.relative_to(source).with_suffix("") for path in images)
        items = []
        for path in images:
            name = path.relative_to(source).with_suffix("")
            # a.gif and a.heic must not both become a.png
            stem = name if names[name] == 1 else path.relative_to(source)
            folder = target / stem.parent
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ImageFileError(f"The folder {folder} cannot be made: {error.strerror}.") from error
            items.append((path, folder, stem.name))
        return items

    def attempt(
        self, source: Path, folder: Path, stem: str, output: Path | None = None, one_of_many: bool = False
    ) -> dict[str, Any]:
        """Scales one file into `folder`, and says what came of it."""
        record: dict[str, Any] = {"input": str(source)}
        try:
            endings = (self._format.suffix,) if self._format else (source.suffix, ".png", ".tif")
            outputs = [output_path(source, folder, stem, ending) for ending in endings]
            there = [path for path in outputs if os.path.isfile(path)]
            if one_of_many and there and not self.overwrite:
                return record | {"output": str(there[0]), "status": "skipped"}
            return record | self._scale(source, folder, stem, output)
        except MemoryError:
            error: Exception = InvalidInput(f"{source} needs more memory than there is: lower --memory.")
        except TheraError as problem:
            error = problem
            if one_of_many and str(source) not in str(problem):
                error = ImageFileError(f"{source}: {problem}")
        except Exception as problem:
            if not one_of_many:
                raise
            # Not foreseen, but the other files shall not suffer from it.
            error = ImageFileError(f"{source} could not be scaled: {problem!r}.")
        return record | {"status": "failed", "error": str(error)}

    def _scale(self, source: Path, folder: Path, stem: str, output: Path | None) -> dict[str, Any]:
        began = time.monotonic()
        prepare = self._raster if self._is_raster(source, output) else self._picture
        job = prepare(source, folder, stem, output)
        self.feedback.plan(str(source), job, self.ensemble)
        plan, info = job.plan, job.model.info
        with self.feedback.progress(plan.size[0] * plan.size[1], source.name) as progress:
            job.run(progress)
        return {
            "output": str(job.output),
            "status": "done",
            "from": [plan.source[1], plan.source[0]],
            "to": [plan.size[1], plan.size[0]],
            "format": job.form.name,
            "depth": job.depth,
            "model": info.name,
            "engine": info.engine,
            "device": info.device,
            "precision": info.precision,
            "ensemble": self.ensemble,
            "tiles": job.tiles,
            "memory": plan.memory,
            "seconds": round(time.monotonic() - began, 3),
            "notes": list(job.notes),
        }

    def _picture(self, source: Path, folder: Path, stem: str, output: Path | None) -> "FileScaling":
        from thera.imaging.files import FileOptions, check_output, default_suffix, prepare_file
        from thera.imaging.reading import MAX_PIXELS
        from thera.tiled import Options

        alpha: Literal["cover", "data"] = "data" if self.alpha == "data" else "cover"
        file = FileOptions(
            self._format, self.quality, self.overwrite, self.strip, alpha, self.max_pixels or MAX_PIXELS
        )
        if output is not None:  # refused before anything is read
            check_output(source, output, file)
        picture = file.read(source)
        if output is None:
            output = output_path(source, folder, stem, default_suffix(source, picture, self._format))
            check_output(source, output, file)
        options = Options(self._filter, self.ensemble, self.memory)
        return prepare_file(picture, output, self.loaded(), self._wish, options, file)

    def _raster(self, source: Path, folder: Path, stem: str, output: Path | None) -> "RasterScaling":
        from thera.geo.upscaling import RasterOptions, prepare_raster
        from thera.imaging.formats import FORMATS
        from thera.tiled import Options

        suffix = source.suffix if source.suffix.lower() in FORMATS["tiff"].suffixes else ".tif"
        alpha: Literal["cover", "data"] = "data" if self.alpha == "data" else "cover"
        return prepare_raster(
            source,
            output or output_path(source, folder, stem, suffix),
            self.loaded(),
            self._wish,
            Options(self._filter, self.ensemble, self.memory),
            RasterOptions(self._stretch, self.cog, self.overwrite, self.strip, alpha),
        )

    def _is_raster(self, source: Path, output: Path | None) -> bool:
        """Whether to scale a file as a raster: it is one and becomes one, or it was asked for."""
        from thera.geo.raster import is_raster
        from thera.imaging.formats import FORMATS, format_of

        form = self._format or (None if output is None else format_of(output))
        return (
            self.cog or self._stretch is not None or (form in (None, FORMATS["tiff"]) and is_raster(source))
        )


def output_path(source: Path, folder: Path, stem: str, suffix: str) -> Path:
    """The output of this stem and ending; a stem that is the input's whole name may have that ending already.

    >>> [output_path(Path(name), Path("out"), name, ".png").name for name in ("a.png", "a.gif")]
    ['a.png', 'a.gif.png']
    """
    return folder / (stem if stem == source.name and suffix == source.suffix else stem + suffix)
