"""Warped pictures, with their metadata."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError
from thera.field.grid import Box
from thera.files import check_place
from thera.imaging.files import FileOptions, PictureOutput, check_picture
from thera.imaging.formats import format_of
from thera.imaging.picture import Layout, Picture
from thera.imaging.sizing import TargetSize
from thera.models import Model
from thera.tiled import Options
from thera.tiled.plan import frames
from thera.values.ranges import Range, type_range

from .mappings import MappedPoints, Mapping, View
from .warping import FRAME, Warp

#: What is shown outside the picture: its edge, nothing, or a colour (red, green, blue) from 0 to 255.
Outside = Literal["edge", "transparent"] | tuple[int, int, int]


@dataclass(frozen=True)
class WarpedPicture(PictureOutput):
    """A picture that is about to be warped into a file: read and checked."""

    warp: Warp
    outside: Outside

    @property
    def size(self) -> tuple[int, int]:
        return self.layout.size

    @property
    def depth(self) -> str:
        return self.layout.depth

    @property
    def work(self) -> tuple[float, float]:
        """About how many pixels are encoded, halos included, and sampled."""
        encoded, sampled = self.warp.work(self.size)
        planes = len(self.picture.bands.groups) - (self.picture.uniform_alpha is not None)
        return planes * encoded, planes * sampled

    def run(self, progress: Callable[[float], object] = lambda pixels: None) -> None:
        """Writes the output, whole or not at all."""
        self.write(self.bands(progress))

    def bands(self, progress: Callable[[float], object]) -> Iterator[NDArray]:
        """The output from the top down, n×W'×C samples at a time."""
        planes = self.picture.planes(self.warp.model.info.halo)
        # Black and white are the ends of the output type's range, or of the samples' if the type has none.
        span = Range.of_type(self.layout.dtype) or planes[0].span
        layout = replace(self.layout, alpha=self.picture.alpha)  # a file without alpha is put on white
        empty = outside_samples(layout, self.outside, span)
        for top, _, bottom, _ in frames((self.size[0], 1), FRAME):
            band = self.picture.empty_rows(bottom - top, layout)
            for _, left, _, right in frames((1, self.size[1]), FRAME):
                for piece in self.warp.pieces((top, left, bottom, right)):
                    part = piece.part_of((top, 0, bottom, self.size[1]))
                    self.warp.put(piece, planes, band[part])
                    band[part][~piece.inside] = empty
                    progress(piece.inside.size)
            yield band


def clamped(mapping: Mapping, shape: tuple[int, int]) -> Mapping:
    """A mapping that moves points outside a picture of `shape` to its edge."""

    def mapped(box: Box) -> MappedPoints:
        points, jacobian = mapping(box)
        return np.clip(points, 0, shape), jacobian

    return mapped


def outside_samples(layout: Layout, outside: Outside, span: Range) -> NDArray:
    """The C samples of a pixel outside the picture. `span` holds the samples of black and white.

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
    alpha = [0 if isinstance(outside, str) else type_range(layout.dtype).high] if layout.alpha else []
    return np.array([*samples, *alpha], layout.dtype)


def prepare_warped_picture(
    source: Path,
    output: Path,
    model: Model,
    view: View,
    options: Options | None = None,
    file: FileOptions | None = None,
    outside: Outside | None = None,
    picture: Picture | None = None,
) -> WarpedPicture:
    """Reads `source`, unless it is given as a `picture`, and checks all that warping it into `output` needs.

    `outside`: what is shown beyond the picture's edges; by default nothing if it has an alpha, else black.
    Beyond a horizon there is no edge, so "edge" shows nothing or black there.
    """
    file = file or FileOptions()
    form = file.form or format_of(output)
    check_place(output, file.overwrite, source)
    picture = picture or file.read(source)
    shape = picture.layout.size
    wanted, mapping = view(shape)
    size = TargetSize(size=wanted).for_image(shape)
    if outside == "transparent" and not form.alpha:
        raise ImageFileError(f"{form.name.upper()} has no transparency: give --outside a colour.")
    if outside == "transparent" and not picture.alpha:
        picture = _with_alpha(picture)
    # TIFF tags may hold a georeference, which no longer fits.
    picture = replace(picture, metadata=replace(picture.metadata, tiff_tags=()))
    result = check_picture(picture, size, output, file)
    picture, layout = result.picture, result.layout
    band = FRAME * size[1] * layout.channels * layout.dtype.itemsize
    held = 2 * picture.samples.nbytes + result.held + 2 * band
    mapping = clamped(mapping, shape) if outside == "edge" else mapping
    warp = Warp(model, shape, mapping, options or Options(), held)
    warp.check_sight(size)
    outside = outside or ("transparent" if picture.alpha and picture.covers else (0, 0, 0))
    return WarpedPicture(**vars(result), warp=warp, outside=outside)


def _with_alpha(picture: Picture) -> Picture:
    """The picture with an alpha that is opaque everywhere."""
    dtype = picture.samples.dtype
    opaque = np.full((*picture.layout.size, 1), type_range(dtype).high, dtype)
    return replace(picture, samples=np.concatenate([picture.samples, opaque], axis=2), alpha=True)
