"""Pictures to another size, in bands of rows or whole."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from thera.models import Model
from thera.tiled import Options, Plan, TiledField, make_plan
from thera.tiled.field import divided

from .picture import Layout, Picture


@dataclass(frozen=True)
class Scaling:
    """A picture that is about to be scaled: everything known and checked, nothing computed."""

    model: Model
    picture: Picture
    layout: Layout
    plan: Plan
    options: Options

    def bands(self, progress: Callable[[int], object] = lambda pixels: None) -> Iterator[NDArray]:
        """The output from the top down, n×W'×C samples at a time."""
        planes = self.picture.planes(self.model.info.halo)
        counted = divided(progress, len(planes))
        fields = [TiledField(self.model, plane, self.options) for plane in planes]
        alpha = self.picture.constant_alpha(self.layout.dtype)
        for strips in zip(*(field.rows(self.plan, counted) for field in fields), strict=True):
            rows, cols, _ = strips[0]
            band = np.empty((len(rows), len(cols), self.layout.channels), self.layout.dtype)
            if alpha is not None:
                band[..., -1] = alpha
            for plane, strip in zip(planes, strips, strict=True):
                plane.put(strip.values, rows, cols, band)
            yield band

    def whole(self, progress: Callable[[int], object] = lambda pixels: None) -> Picture:
        """The output in memory, with what the picture carried."""
        samples = np.empty((*self.layout.size, self.layout.channels), self.layout.dtype)
        row = 0
        for band in self.bands(progress):
            samples[row : row + len(band)] = band
            row += len(band)
        metadata = self.picture.metadata.resized(self.picture.layout.size, self.layout.size)
        return replace(self.picture, samples=samples, metadata=metadata)


def prepare(
    model: Model,
    picture: Picture,
    size: tuple[int, int],
    options: Options,
    *,
    output_memory: int = 0,
    dtype: np.dtype | None = None,
) -> Scaling:
    """Plans the scaling of `picture` to `size` = (height, width).

    `output_memory`: bytes of the output that its receiver keeps.
    `dtype`: the output's sample type, if not the picture's.
    """
    layout = replace(picture.layout, height=size[0], width=size[1], dtype=dtype or picture.samples.dtype)
    plan = make_plan(
        model,
        picture.layout.size,
        size,
        options,
        planes=len(picture.planes(model.info.halo)),  # which refuses NaN before anything is computed
        held=picture.samples.nbytes + output_memory,
    )
    return Scaling(model, picture, layout, plan, options)
