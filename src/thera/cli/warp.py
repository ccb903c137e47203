"""`thera warp`: applies a homography, undoes a lens, or changes the coordinate system."""

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thera.cli.parameters import BYTES, NAMED_PATH, Numbers, Size, engine_options, model_option
from thera.errors import InvalidInput, TheraError

if TYPE_CHECKING:
    from thera.cli.feedback import Feedback
    from thera.cli.run import Record
    from thera.geo.warped_rasters import WarpedRaster
    from thera.warp.mappings import View
    from thera.warp.pictures import Outside, WarpedPicture


FILTERS = ("lanczos", "gaussian", "box")


class Colour(click.ParamType):
    """edge, transparent or #RRGGBB."""

    name = "edge|transparent|#RRGGBB"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Outside":
        if value in ("edge", "transparent") or isinstance(value, tuple):
            return value
        if not re.fullmatch(r"#[0-9a-fA-F]{6}", value):
            self.fail(
                f"{value!r} is not a colour; write edge, transparent, or a colour like #ffffff.", param, ctx
            )
        red, green, blue = bytes.fromhex(value[1:])
        return red, green, blue


@click.command("warp")
@click.argument("source", metavar="INPUT", type=NAMED_PATH)
@click.argument("output", metavar="OUTPUT", type=NAMED_PATH)
@click.option("--homography", type=Numbers(), help="9 numbers, row by row, from INPUT's x, y to OUTPUT's.")
@click.option("--affine", type=Numbers(), help="Like --homography, with 6 numbers.")
@click.option("--inverse", is_flag=True, help="The matrix goes from OUTPUT's x, y to INPUT's.")
@click.option("--lens", type=Numbers(), help="k1,k2,p1,p2[,k3]: the distortion to undo.")
@click.option("--camera", type=Numbers(), help="fx,fy,cx,cy in pixels, for --lens.")
@click.option("--to", metavar="CRS", help="The new coordinate system: EPSG:3857, WKT, PROJ.")
@click.option("--resolution", type=float, help="For --to: the side of a pixel in that system's units.")
@click.option("--bounds", type=Numbers(), help="For --to: west,south,east,north in that system's units.")
@click.option("--size", type=Size(), help="The size of OUTPUT. [default: INPUT's]")
@click.option("--outside", type=Colour(), help="Beyond a picture's edges. [default: transparent or black]")
@model_option
@click.option("--ensemble/--no-ensemble", help="Average four rotations. [default: no]")
@click.option(
    "--filter",
    "shape",
    type=click.Choice(FILTERS),
    default="lanczos",
    show_default=True,
    help="Where the image shrinks, lanczos is crisp, gaussian soft without ringing, box a mean.",
)
@engine_options
@click.option("--memory", type=BYTES, help="The memory limit. [default: 4GiB, or half of the machine's]")
@click.option("--quality", type=click.IntRange(1, 100), help="For JPEG, JPEG XL, WebP and AVIF.")
@click.option("--range", "stretch", metavar="LO:HI", help="For a raster: as in `thera upscale`.")
@click.option("--cog", is_flag=True, help="For a raster: write a cloud-optimised GeoTIFF.")
@click.option("--overwrite", is_flag=True, help="Replace OUTPUT if it exists.")
@click.option("--strip", is_flag=True, help="Drop ICC profile, EXIF, XMP, resolution and tags.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON on stdout when it ends.")
def command(source: Path, output: Path, as_json: bool, quiet: bool, **given: Any) -> None:
    """Warp an image with one resampling of its field, without aliasing.

    \b
    thera warp scene.tif web.tif --to EPSG:3857 --resolution 10
    thera warp scene.tif web.tif --to EPSG:3857 --cog           with pixels as large as they are
    thera warp photo.jpg flat.jpg --lens -0.12,0.03,0,0 --camera 2800,2800,2000,1500
    thera warp page.png straight.png --homography h.txt --size 2100x2970
    thera warp photo.png turned.png --affine 0,-1,4000,1,0,0 --size 4000x3000

    Every output pixel averages the field over the ellipse that it covers. Positions are in pixels from the
    top left corner. The first pixel has its centre at 0.5, 0.5: half a pixel more than in OpenCV.
    """
    from thera.cli.feedback import Feedback, json_text

    record: dict[str, Any] = {"input": str(source)}
    try:
        record |= warp(Feedback(quiet), source, output, **given)
    except TheraError as error:
        if as_json:
            click.echo(json_text(record | {"status": "failed", "error": str(error)}))
        raise
    if as_json:
        click.echo(json_text(record))


def warp(feedback: "Feedback", source: Path, output: Path, **given: Any) -> "Record":
    """Warps a file, says how long it takes, and gives its record."""
    from thera.cli.run import done
    from thera.cli.timing import Clock, human_time
    from thera.memory import human_bytes

    began = time.monotonic()
    job = prepare(feedback, source, output, **given)
    (H, W), (rows, cols), info = job.warp.shape, job.size, job.warp.model.info
    clock = Clock(job.warp.model, points=True)
    estimate = None if feedback.quiet else clock.estimate(job)
    took = f" | about {human_time(estimate)}" if estimate else ""
    feedback.say(
        f"{source} {W}×{H} → {output} {cols}×{rows} | {info.name} ({info.engine} on {info.device})"
        f" | within {human_bytes(job.warp.options.limit)}{took}"
    )
    for note in job.notes:
        feedback.say(f"  note: {note}")
    started = time.monotonic()
    with feedback.progress(rows * cols, source.name, estimate) as progress:
        job.run(progress)
    ended = time.monotonic()
    if estimate is not None:
        # A warp that shows little of the input says little about the time of a model.
        sampled = job.warp.work(job.size)[1] / job.warp.options.rotations
        if sampled > rows * cols / 2:
            clock.learn(job, ended - started)
    seconds = time.monotonic() - began
    feedback.say(f"{output} is done in {human_time(seconds)}.")
    record = done(output, job.warp.shape, job.size, job.form.name, job.depth, job.warp.model)
    return record | {
        "ensemble": job.warp.options.ensemble,
        "seconds": round(seconds, 3),
        "notes": list(job.notes),
    }


def prepare(
    feedback: "Feedback",
    source: Path,
    output: Path,
    *,
    model: str,
    engine: str,
    device: str,
    precision: str,
    to: str | None,
    resolution: float | None,
    bounds: tuple[float, ...] | None,
    size: tuple[int, int] | None,
    outside: "Outside | None",
    shape: str,
    quality: int | None,
    stretch: str | None,
    cog: bool,
    **given: Any,
) -> "WarpedRaster | WarpedPicture":
    """The warp that the options ask for, with everything checked."""
    from thera.cli.run import Loading
    from thera.field import Box as BoxFilter
    from thera.field import Lanczos, Seamless
    from thera.geo.raster import describe, is_raster
    from thera.imaging.files import FileOptions
    from thera.imaging.formats import FORMATS, format_of
    from thera.models.choice import ModelChoice
    from thera.tiled import Options
    from thera.values.ranges import Stretch

    ensemble, memory, overwrite, strip = (
        given.pop(name) for name in ("ensemble", "memory", "overwrite", "strip")
    )
    psf = {"lanczos": Lanczos, "gaussian": Seamless, "box": BoxFilter}[shape]()
    options = Options(psf, ensemble, memory)
    try:
        view = view_of(to, size, **given)
        if to is None and (resolution is not None or bounds is not None):
            raise InvalidInput(
                "--resolution and --bounds only apply to a coordinate system: give --to as well."
            )
        form = format_of(output)
        if quality is not None and not form.lossy:
            raise InvalidInput(
                f"--quality is for JPEG, JPEG XL, WebP and AVIF, and this is {form.name.upper()}:"
                " leave it out."
            )
    except InvalidInput as error:
        raise click.UsageError(str(error)) from error
    load = Loading(ModelChoice(model, engine, device, precision), feedback)
    raster_asked = cog or stretch is not None or (form is FORMATS["tiff"] and is_raster(source))
    if view is not None and not raster_asked:
        from thera.warp.pictures import prepare_warped_picture

        loaded = load()
        file = FileOptions(quality=quality, overwrite=overwrite, strip=strip)
        return prepare_warped_picture(source, output, loaded, view, options, file, outside)
    if outside is not None:
        raise InvalidInput("--outside only applies to pictures; rasters have nodata there: leave it out.")
    from thera.geo.crs import reprojected
    from thera.geo.jobs import check_raster_output
    from thera.geo.options import RasterOptions
    from thera.geo.warped_rasters import prepare_warped_raster

    check_raster_output(source, output, overwrite)
    raster = describe(source)
    grid = view or reprojected(raster, str(to), resolution=resolution, size=size, bounds=bounds)
    values = None if stretch is None else Stretch.parse(stretch)
    loaded = load()
    rasters = RasterOptions(values, cog, overwrite, strip)
    return prepare_warped_raster(raster, output, loaded, grid, options, rasters)


def view_of(
    to: str | None,
    size: tuple[int, int] | None,
    homography: tuple[float, ...] | None,
    affine: tuple[float, ...] | None,
    inverse: bool,
    lens: tuple[float, ...] | None,
    camera: tuple[float, ...] | None,
) -> "View | None":
    """The mapping that the options ask for; None for one between coordinate systems."""
    from thera.warp.mappings import Lens, Projective

    kinds = {"--homography": homography, "--affine": affine, "--lens": lens, "--to": to}
    asked = [name for name, value in kinds.items() if value is not None]
    if len(asked) != 1:
        message = " and ".join(asked) or "none of them"
        raise InvalidInput(f"Give one of --homography, --affine, --lens and --to, not {message}.")
    if camera is not None and lens is None:
        raise InvalidInput(f"--camera only applies to --lens, not to {asked[0]}: leave it out.")
    if inverse and homography is None and affine is None:
        raise InvalidInput(f"--inverse only applies to a matrix, not to {asked[0]}: leave it out.")
    for name, numbers, count in (("--homography", homography, 9), ("--affine", affine, 6)):
        if numbers is not None:
            if len(numbers) != count:
                raise InvalidInput(f"{name} needs {count} numbers, row by row; {len(numbers)} were given.")
            matrix = numbers
            return lambda shape: (size or shape, Projective(matrix, size or shape, inverse))
    if lens is None:
        return None
    if camera is None:
        raise InvalidInput("--lens needs --camera: focal lengths and principal point, fx,fy,cx,cy in pixels.")
    undistorting = Lens(camera, lens)
    return lambda shape: (size or shape, undistorting)
