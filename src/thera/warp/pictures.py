"""Pictures through a mapping, with all they carry."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError
from thera.field.grid import Box
from thera.files import replacing
from thera.imaging.files import HELD_BYTES, FileOptions, check_disk, check_limits, check_output, suited
from thera.imaging.formats import Format, format_of
from thera.imaging.metadata import Metadata
from thera.imaging.picture import Layout, Picture
from thera.imaging.sizing import TargetSize
from thera.imaging.writing import encode
from thera.models import Model
from thera.tiled import Options
from thera.tiled.plan import frames
from thera.values.ranges import Range

from .mappings import Mapping, Places, View
from .warping import FRAME, Warp

#: What is shown where the picture does not reach: its edge, nothing, or a colour, red, green and blue to 255.
Outside = Literal["edge", "transparent"] | tuple[int, int, int]


@dataclass(frozen=True)
class WarpedPicture:
    """A picture that is about to be warped into a file: read and checked."""

    warp: Warp
    picture: Picture
    layout: Layout
    outside: Outside
    output: Path
    form: Format
    metadata: Metadata
    quality: int | None
    notes: tuple[str, ...]

    @property
    def size(self) -> tuple[int, int]:
        return self.layout.size

    def run(self, progress: Callable[[int], object] = lambda pixels: None) -> None:
        """Writes the output, whole or not at all."""
        with replacing(self.output) as file:
            encode(file, self.layout, self.metadata, self.bands(progress), self.form, self.quality)

    def bands(self, progress: Callable[[int], object] = lambda pixels: None) -> Iterator[NDArray]:
        """The output from the top down, n×W'×C samples at a time."""
        planes = self.picture.planes(self.warp.model.info.halo)
        alpha = self.picture.constant_alpha(self.layout.dtype)
        # White is the top of what the picture's samples span, or of a type that they had to become.
        span = Range.of_type(self.layout.dtype) or planes[0].span
        empty = outside_samples(self.layout, self.outside, span)
        for top, _, bottom, _ in frames((self.size[0], 1), FRAME):
            band = np.empty((bottom - top, self.size[1], self.layout.channels), self.layout.dtype)
            if alpha is not None:
                band[..., -1] = alpha
            for _, left, _, right in frames((1, self.size[1]), FRAME):
                for look in self.warp.looks((top, left, bottom, right)):
                    part = look.part_of((top, 0, bottom, self.size[1]))
                    self.warp.put(look, planes, band[part])
                    band[part][~look.seen] = empty
                    progress(look.seen.size)
            yield band


class Clamped:
    """A mapping whose points outside a picture of `shape` are moved to its edge."""

    def __init__(self, mapping: Mapping, shape: tuple[int, int]) -> None:
        self.mapping = mapping
        self.shape = shape

    def __call__(self, box: Box) -> Places:
        points, jacobian = self.mapping(box)
        return np.clip(points, 0, self.shape), jacobian


def outside_samples(layout: Layout, outside: Outside, span: Range) -> NDArray:
    """The pixel that is shown where there is none of the picture's, `span` being black and white: C samples.

    >>> layout = Layout(1, 1, "rgb", True, np.dtype(np.int16))
    >>> outside_samples(layout, (255, 0, 0), Range(-100, 2000)).tolist()
    [2000, -100, -100, 32767]
    """
    red, green, blue = (0.0, 0.0, 0.0) if isinstance(outside, str) else (value / 255 for value in outside)
    colours = {
        "grey": [(red + green + blue) / 3],
        "rgb": [red, green, blue],
        "cmyk": [1 - red, 1 - green, 1 - blue, 0.0],
    }[layout.colour]
    samples = span.restore(np.array(colours, np.float32), layout.dtype)
    alpha = [0 if isinstance(outside, str) else _opaque(layout.dtype)] if layout.alpha else []
    return np.array([*samples, *alpha], layout.dtype)


def _opaque(dtype: np.dtype) -> int:
    return 1 if dtype.kind == "f" else int(np.iinfo(dtype).max)


def prepare_warped_picture(
    source: Path,
    output: Path,
    model: Model,
    view: View,
    options: Options | None = None,
    file: FileOptions | None = None,
    outside: Outside | None = None,
) -> WarpedPicture:
    """Reads `source` and checks all that warping it into `output` needs.

    `outside`: what is shown beyond the picture's edges; nothing if it has an alpha, otherwise black, unless
    given. Beyond a horizon there is no edge, and nothing or black all the same.
    """
    options, file = options or Options(), file or FileOptions()
    check_output(source, output, file)
    form = file.form or format_of(output)
    picture = file.read(source)
    wanted, mapping = view(picture.layout.size)
    size = TargetSize(size=wanted).for_image(picture.layout.size)
    if outside == "transparent" and not form.alpha:
        raise ImageFileError(f"{form.name.upper()} knows no transparency: give --outside a colour.")
    if outside == "transparent" and not picture.alpha:
        picture = _with_alpha(picture)
    picture, dtype, notes = suited(picture, form)
    outside = outside or ("transparent" if picture.alpha and picture.covers else (0, 0, 0))
    # A map's georeference does not fit what the mapping made of it.
    carried = replace(picture.metadata.resized(picture.layout.size, size), tiff_tags=())
    metadata, lost = carried.fitting(form)

    layout = replace(picture.layout, height=size[0], width=size[1], dtype=dtype)
    check_limits(layout, form)
    check_disk(layout, form, output)
    kept = 0 if form.streams else HELD_BYTES[form.name][picture.alpha] * size[0] * size[1]
    band = FRAME * size[1] * layout.channels * layout.dtype.itemsize
    mapping = Clamped(mapping, picture.layout.size) if outside == "edge" else mapping
    held = 2 * picture.samples.nbytes + kept + 2 * band
    warp = Warp(model, picture.layout.size, mapping, options, held)
    notes = [*picture.notes, *notes, *lost]
    return WarpedPicture(warp, picture, layout, outside, output, form, metadata, file.quality, tuple(notes))


def _with_alpha(picture: Picture) -> Picture:
    """The picture with an alpha, opaque everywhere."""
    dtype = picture.samples.dtype
    opaque = np.full((*picture.layout.size, 1), _opaque(dtype), dtype)
    return replace(picture, samples=np.concatenate([picture.samples, opaque], axis=2), alpha=True)
