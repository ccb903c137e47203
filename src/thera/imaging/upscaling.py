"""Pictures to another size: band by band, or whole."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from thera.field import Filter
from thera.models import Model

from .picture import Layout, Picture, Range
from .planes import alpha_everywhere, constant_alpha, planes_of
from .sizing import default_memory
from .tiling import Plan, make_plan, scaled_rows


@dataclass(frozen=True)
class Scaling:
    """A picture that is about to be scaled: everything known and checked, nothing computed."""

    model: Model
    picture: Picture
    layout: Layout
    plan: Plan
    ensemble: bool
    psf: Filter | None

    def bands(self, progress: Callable[[int], object] = lambda pixels: None) -> Iterator[NDArray]:
        """The output from the top down, n×W'×C at a time."""
        planes = planes_of(self.picture, self.layout.size)
        rendered = scaled_rows(
            self.model,
            [plane.cells for plane in planes],
            self.plan,
            ensemble=self.ensemble,
            psf=self.psf,
            progress=progress,
        )
        constant = alpha_everywhere(self.picture, self.layout.dtype)
        for rows, cols, values in rendered:
            band = np.empty((len(rows), len(cols), self.layout.channels), self.layout.dtype)
            if constant is not None:
                band[..., -1] = constant
            for plane, plane_values in zip(planes, values, strict=True):
                plane.put(plane_values, rows, cols, band)
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
    *,
    ensemble: bool = False,
    psf: Filter | None = None,
    memory: int | None = None,
    output_memory: int = 0,
    dtype: np.dtype | None = None,
) -> Scaling:
    """Plans the scaling of `picture` to `size` = (height, width).

    `output_memory`: bytes that whoever takes the bands keeps of them.
    `dtype`: the output's sample type, if not the picture's.
    """
    Range.of(picture.samples)  # refuses what is not a number before anything is computed
    layout = replace(picture.layout, height=size[0], width=size[1], dtype=dtype or picture.samples.dtype)
    planes = 1 + (picture.colour == "cmyk") + (picture.alpha and not constant_alpha(picture))
    copies = 2 if picture.alpha and picture.covers else 1  # with colours filled in under it
    plan = make_plan(
        model.info,
        picture.layout.size,
        size,
        fields=planes * (4 if ensemble else 1),
        psf=model.psf(picture.layout.size, size) if psf is None else psf,
        memory=default_memory() if memory is None else memory,
        held=copies * picture.samples.nbytes + output_memory,
    )
    return Scaling(model, picture, layout, plan, ensemble, psf)
