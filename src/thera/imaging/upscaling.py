"""Scales pictures in memory, in bands of rows or whole."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from thera.models import Model
from thera.tiled import Options, Plan, make_plan
from thera.tiled.output import bands

from .picture import Layout, Picture


@dataclass(frozen=True)
class Scaling:
    """A picture that is about to be scaled: everything is checked, nothing is computed yet."""

    model: Model
    picture: Picture
    layout: Layout
    plan: Plan
    options: Options

    def bands(self, progress: Callable[[int], object] = lambda pixels: None) -> Iterator[NDArray]:
        """The output from the top down, n×W'×C samples at a time."""
        planes = self.picture.planes(self.model.info.halo)
        empty = partial(self.picture.empty_rows, layout=self.layout)
        return bands(self.model, planes, self.plan, self.options, empty, progress)

    def whole(self, progress: Callable[[int], object] = lambda pixels: None) -> Picture:
        """The whole output in memory, with the picture's metadata."""
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

    `output_memory`: bytes of the output that are held in memory.
    `dtype`: the output's sample type, if not the picture's.
    """
    layout = replace(picture.layout, height=size[0], width=size[1], dtype=dtype or picture.samples.dtype)
    plan = make_plan(
        model,
        picture.layout.size,
        size,
        options,
        planes=len(picture.planes(model.info.halo)),  # this also refuses NaN before anything is computed
        held=picture.samples.nbytes + output_memory,
    )
    return Scaling(model, picture, layout, plan, options)
