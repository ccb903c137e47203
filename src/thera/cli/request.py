"""The options of `thera upscale` as one `Request`. The command imports this late, for it imports much."""

from typing import Any

from thera.errors import InvalidInput
from thera.field.psf import filter_of
from thera.geo.files import Request
from thera.geo.options import Choice
from thera.imaging.files import FileOptions
from thera.imaging.formats import FORMATS, format_named
from thera.imaging.reading import MAX_PIXELS
from thera.imaging.sizing import TargetSize
from thera.tiled import Options
from thera.values.ranges import Stretch


def request_of(
    *,
    shape: str | None,
    sharpness: float,
    ensemble: bool,
    memory: int | None,
    form: str | None,
    stretch: str | None,
    cog: bool,
    bands: str | None,
    bounds: tuple[float, ...] | None,
    resolution: float | None,
    consistent: bool,
    resume: bool,
    quality: int | None,
    max_pixels: int | None,
    **given: Any,
) -> Request:
    """The options of the command as a request, checked before anything is read."""
    wanted = None if form is None else format_named(form)
    if (cog or stretch is not None) and wanted not in (None, FORMATS["tiff"]):
        option = "--cog" if cog else "--range"
        raise InvalidInput(f"{option} writes a TIFF and --format is {form}: leave one of them out.")
    if quality is not None and wanted is not None and not wanted.lossy:
        raise InvalidInput(
            f"--quality is for JPEG, JPEG XL, WebP and AVIF, and --format is {form}: leave it out."
        )
    target = TargetSize(**{name: given.pop(name) for name in TargetSize._fields})
    choice = Choice(None if bands is None else Choice.parse_bands(bands), bounds, resolution)
    if resolution is None or target != TargetSize():
        target.check()
    if resolution is not None and target != TargetSize():
        raise InvalidInput("Give a resolution or another size, not both.")
    if choice != Choice() and wanted not in (None, FORMATS["tiff"]):
        raise InvalidInput(f"--bands, --bounds and --resolution write a TIFF, and --format is {form}.")
    return Request(
        target,
        Options(filter_of(shape, sharpness), ensemble, memory, consistent=consistent),
        FileOptions(wanted, quality, max_pixels=max_pixels or MAX_PIXELS, **given),
        None if stretch is None else Stretch.parse(stretch),
        cog,
        choice,
        resume,
    )
