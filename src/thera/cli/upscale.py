"""`thera upscale`: scales an image, a folder of images, or a Zarr store."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thera.cli.parameters import (
    BYTES,
    FOLDERS,
    NAMED_PATH,
    Numbers,
    Parsed,
    Size,
    engine_options,
    strength_option,
)
from thera.errors import InvalidInput
from thera.files import reason_of
from thera.geo.safe import is_product
from thera.imaging import AUTO, DEFAULT_MODEL
from thera.imaging.formats import FORMATS
from thera.imaging.sizing import Paper, parse_scale
from thera.models.choice import ModelChoice

if TYPE_CHECKING:
    from thera.cli.run import Record, Scaler


#: What is said of files of each status.
STATUS = {"done": "done", "planned": "to do", "skipped": "already there", "failed": "failed"}


@click.command("upscale")
@click.argument("paths", metavar="INPUT... [OUTPUT]", nargs=-1, required=True, type=NAMED_PATH)
@click.option("-o", "--out", type=NAMED_PATH, help="The output: a file, or a folder for several inputs.")
@click.option(
    "-s", "--scale", type=Parsed("FACTOR", parse_scale), help="4, 2.5, 4x, 200%; below 1 scales down."
)
@click.option("--size", type=Size(), help="Exactly this size.")
@click.option("--width", type=int, help="This width, the height to match.")
@click.option("--height", type=int, help="This height, the width to match.")
@click.option("--fit", type=Size(), help="As large as fits in this box.")
@click.option("--long-edge", type=int, help="This length of the longer side.")
@click.option("--short-edge", type=int, help="This length of the shorter side.")
@click.option("--megapixels", type=float, help="This many million pixels.")
@click.option(
    "--print",
    "paper",
    metavar="PAPER",
    type=Parsed("PAPER", Paper.parse),
    help="As large as fits on A4, letter, 30x20cm or 6x4in at --dpi; the paper may be turned.",
)
@click.option("--dpi", type=float, help="The resolution to write. [default: the input's; for --print 300]")
@click.option(
    "-m",
    "--model",
    default=AUTO,
    show_default=True,
    help="A name from `thera models`, or a file. auto: photo for enlarging JPEGs and noisy pictures,"
    f" otherwise {DEFAULT_MODEL}.",
)
@strength_option
@click.option(
    "--ensemble/--no-ensemble",
    help="Average four rotations: a little better, and four times as slow. [default: no]",
)
@click.option(
    "--filter",
    "shape",
    type=click.Choice(["gaussian", "box", "butterworth", "ideal", "none"]),
    help="The filter of output pixels. [default: gaussian, without seams beyond ×8]",
)
@click.option(
    "--sharpness", type=float, default=1.0, show_default=True, help="Above 1 is crisper, below 1 softer."
)
@engine_options
@click.option(
    "--memory",
    type=BYTES,
    help="The memory limit; it decides the size of tiles. [default: 4GiB, or half of the machine's]",
)
@click.option(
    "--linear/--no-linear",
    default=None,
    help="Scale in linear light, so that bright dots keep their light. [default: when scaling down]",
)
@click.option("--format", "form", help=f"{', '.join(FORMATS)}, whatever OUTPUT's name says.")
@click.option(
    "--quality",
    type=click.IntRange(1, 100),
    help="For JPEG and WebP (95), AVIF (90), JPEG XL (100). 100 is lossless WebP and JPEG XL.",
)
@click.option(
    "--alpha",
    type=click.Choice(["cover", "data"]),
    default="cover",
    show_default=True,
    help="cover: transparency. data: an ordinary channel; colours are kept where it is 0.",
)
@click.option("-r", "--recursive", is_flag=True, help="Also scale the folders within the folder.")
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="For a folder or a Zarr store: work in this many processes (thera[dask]).",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="For a folder or a Zarr store: work on the Dask cluster at this address, like tcp://host:8786.",
)
@click.option("--overwrite", is_flag=True, help="Replace outputs that exist.")
@click.option("--strip", is_flag=True, help="Drop ICC profile, EXIF, XMP and resolution.")
@click.option(
    "--range",
    "stretch",
    metavar="LO:HI",
    help="For a raster: the values of black and white. Also dtype, extent, percentile or 2%:98%."
    " [default: dtype for bytes, extent for others]",
)
@click.option("--bands", help="For a raster: bands to write; 4,3,2+8 shows 4, 3, 2 as a colour, 8 by itself.")
@click.option("--bounds", type=Numbers(), help="For a raster: scale only west,south,east,north.")
@click.option("--resolution", type=float, help="For a raster: the side of output pixels, in its own units.")
@click.option(
    "--consistent",
    is_flag=True,
    help="For a raster, at a whole-number scale: the mean over each input pixel is that pixel.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="For a raster: keep finished parts in a hidden folder beside OUTPUT, and go on from them.",
)
@click.option("--cog", is_flag=True, help="For a raster: write a cloud-optimised GeoTIFF.")
@click.option(
    "--max-pixels",
    type=click.IntRange(1),
    help="Read images up to this many pixels. [default: 268 million]",
)
@click.option("--threads", type=click.IntRange(1), help="Use at most this many threads. [default: all cores]")
@click.option("--dry-run", is_flag=True, help="Only show the plan: sizes, tiles, memory, time, disk.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON on stdout when a file ends.")
def command(
    paths: tuple[Path, ...],
    out: Path | None,
    as_json: bool,
    quiet: bool,
    dry_run: bool,
    threads: int | None,
    workers: int | None,
    scheduler: str | None,
    recursive: bool,
    model: str,
    strength: float,
    engine: str,
    device: str,
    precision: str,
    **given: Any,
) -> int:
    """Scale images, or every image in a folder, to any size.

    \b
    thera upscale photo.jpg --scale 4                 photo_x4.jpg
    thera upscale photo.jpg --scale 3.14 big.png      any scale, any format
    thera upscale scan.tif --width 6000               16 bits stay 16 bits
    thera upscale logo.png --size 1024x1024           transparency stays clean
    thera upscale photo.heic --fit 3840x2160          as large as fits
    thera upscale a.jpg b.jpg c/ -s 2 --out large/    several at once
    thera upscale textures/ upscaled/ -s 2 -r         a tree of files; run again to continue
    thera upscale scans/ -s 2 --workers 4             four files at a time
    thera upscale mosaic.zarr -s 2.5                  any size, chunk by chunk
    thera upscale map.tif --scale 8 --memory 1GiB     any size in bounded memory
    thera upscale photo.jpg --scale 0.3               down, without aliasing
    thera upscale old.jpg --scale 2 --model photo     also removes JPEG blocks and noise
    thera upscale old.jpg --scale 1 --model photo     only that
    thera upscale scene.tif out.tif -s 2.5 --cog      a GeoTIFF keeps bands, coordinates and nodata
    curl URL | thera upscale - -s 2 > large.jpg       from stdin, to stdout

    OUTPUT defaults to a name beside INPUT that says the scale. Of two names the second is the output, unless
    it is a picture that exists: then --out has to say which it is. Three or more are all inputs.

    Depth, colour profile, EXIF, XMP and resolution are kept. Nothing is written until everything is checked,
    and an interrupted run leaves no partial file.

    On two cores a photograph of one megapixel takes about 10 seconds with edsr-air and half a minute
    with edsr-plus, which sees more around every pixel.
    """
    from thera.cli.feedback import Feedback, echo, json_text
    from thera.cli.request import request_of
    from thera.cli.run import Scaler

    began = time.monotonic()
    sources, output = inputs_and_output(paths, out)
    slashed = output in click.get_current_context().meta.get(FOLDERS, ())  # a new folder, as in `new/`
    check_call(sources, output, slashed, recursive, as_json, workers, scheduler)
    try:
        request = request_of(**given)
    except InvalidInput as error:
        raise click.UsageError(str(error)) from error
    if is_store(sources[0]) and model == AUTO:
        model = DEFAULT_MODEL  # arrays are measurements
    choice = ModelChoice(model, engine, device, precision, threads or 0, strength)
    scaler = Scaler(Feedback(quiet), request, choice, dry_run)
    records, lost = [], None
    for record in results(scaler, sources, output, slashed, recursive, workers, scheduler):
        records.append(record)
        if as_json and lost is None:
            try:
                click.echo(json_text(record))
            except OSError as error:  # a stream that is closed or full is no reason to stop
                lost = error
    failed = [record for record in records if record["status"] == "failed"]
    if len(records) > 1:
        scaler.feedback.say(summary(records, time.monotonic() - began))
    for record in failed:
        echo(f"thera: {record['error']}")
    if dry_run:
        scaler.feedback.say("Nothing was written: this was a dry run.")
    if lost is not None and not isinstance(lost, BrokenPipeError):
        echo(f"thera: The results could not be written to stdout: {reason_of(lost)}.")
    return 1 if failed or lost else 0


def results(
    scaler: "Scaler",
    sources: list[Path],
    output: Path | None,
    slashed: bool,
    recursive: bool,
    workers: int | None,
    scheduler: str | None,
) -> Iterator["Record"]:
    """Scales all inputs, and gives the record of each as it ends."""
    from thera.cli.items import file_item, find_items, made_folders

    source, *others = sources
    label = scaler.request.label
    several = not scaler.dry and (workers is not None or scheduler is not None)
    if is_store(source) and not others:
        from thera.cli.many import Cluster, scale_store

        yield scale_store(scaler, source, output, Cluster(workers, scheduler))
    elif not others and (is_product(source) or not os.path.isdir(source)):
        from thera.cli.pipes import STDIN, STDOUT, is_pipe, scale_piped

        if is_pipe(source, STDIN) or is_pipe(output, STDOUT):
            yield scale_piped(scaler, source, output, slashed)
        else:
            item = file_item(source, output, label, slashed)
            with made_folders([item], scaler.dry):
                yield scaler.attempt(item)
    else:
        items = find_items(sources, output, label, recursive)
        if not scaler.dry and not scaler.automatic:
            scaler.loaded()  # a model that cannot be loaded is refused once, not for every file
        with made_folders(items, scaler.dry):
            if several:
                from thera.cli.many import Cluster, scale_files

                yield from scale_files(scaler, items, Cluster(workers, scheduler))
            else:
                yield from scaler.attempt_all(items)


def summary(records: "list[Record]", seconds: float) -> str:
    """One line about several files."""
    from thera.cli.timing import human_time
    from thera.memory import human_bytes

    count = {name: [r for r in records if r["status"] == name] for name in STATUS}
    parts = [f"{len(found):,} {STATUS[name]}" for name, found in count.items() if found]
    planned = count["planned"]
    again = (
        " Outputs that exist were left as they are: --overwrite makes them again." if count["skipped"] else ""
    )
    if planned:
        took, disk = (sum(record[name] for record in planned) for name in ("seconds", "disk"))
        return f"{', '.join(parts)}: about {human_time(took)}, up to {human_bytes(disk)} on disk.{again}"
    return f"{', '.join(parts)} in {human_time(seconds)}.{again}"


def inputs_and_output(paths: tuple[Path, ...], out: Path | None) -> tuple[list[Path], Path | None]:
    """The inputs and the output among the names of a call. An existing picture is not taken for an output."""
    from thera.imaging.formats import READABLE_SUFFIXES

    if out is not None or len(paths) != 2:
        return list(paths), out
    source, second = paths
    exists = second.suffix.lower() in READABLE_SUFFIXES and os.path.isfile(second)
    if exists and not (os.path.exists(source) and os.path.samefile(source, second)):
        raise click.UsageError(
            f"{second} exists: it may be a second input, or an output. To replace it, give --out {second}"
            " --overwrite. To scale both, name a folder with --out."
        )
    return [source], second


def check_call(
    sources: list[Path],
    output: Path | None,
    slashed: bool,
    recursive: bool,
    as_json: bool,
    workers: int | None,
    scheduler: str | None,
) -> None:
    """Refuses options that do not go with the inputs and the output."""
    from thera.cli.pipes import to_stdout

    source, *others = sources
    # os.path says False for a name that is too long, where Path.is_dir would raise.
    has_folders = any(os.path.isdir(path) and not is_product(path) for path in sources)
    several = workers is not None or scheduler is not None
    if several and not (has_folders or others or is_store(source)):
        raise click.UsageError("--workers and --scheduler are for folders, several inputs and Zarr stores.")
    if recursive and not has_folders:
        raise click.UsageError("--recursive is for folders, and none was given: leave it out.")
    if others or (has_folders and not is_store(source)):
        check_folder(output, slashed)
    if others and Path("-") in sources:
        raise click.UsageError("Stdin (-) is one picture: give it without other inputs.")
    if as_json and not others and to_stdout(source, output):
        raise click.UsageError("--json and the picture would both be written to stdout: name an output file.")
    if workers is not None and scheduler is not None:
        raise click.UsageError("--workers start here, and --scheduler has its own workers: give one of them.")


def is_store(source: Path) -> bool:
    """True for the name of a Zarr store."""
    return source.suffix == ".zarr"


def check_folder(output: Path | None, slashed: bool) -> None:
    """Refuses a new output that is named like a picture, where several pictures are written."""
    from thera.imaging.formats import READABLE_SUFFIXES

    if output is None or slashed or os.path.exists(output):
        return
    if output.suffix.lower() in READABLE_SUFFIXES:
        raise click.UsageError(
            f"{output} is named like one picture, and several inputs need a folder: give --out the name of a"
            f" folder, or {output}/ with a slash at the end if it is to be one."
        )
