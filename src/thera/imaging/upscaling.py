"""Pictures to another size, in bands of rows or whole."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from thera.models import Model
from thera.tiled import Options, Plan, make_plan
from thera.tiled.output import bands

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
        alpha = self.picture.constant_alpha(self.layout.dtype)

        def empty(rows: int) -> NDArray:
            band = np.empty((rows, self.layout.width, self.layout.channels), self.layout.dtype)
            if alpha is not None:
                band[..., -1] = alpha
            return band

        planes = self.picture.planes(self.model.info.halo)
        return bands(self.model, planes, self.plan, self.options, empty, progress)

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
