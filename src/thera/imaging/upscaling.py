"""Scales pictures and arrays in memory, one group of bands after the other."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from thera.field.grid import Axis, cells_below
from thera.field.needed import reach
from thera.models import Model
from thera.tiled import Options, Plan, TiledField, make_plan
from thera.values.bands import Bands
from thera.values.consistency import check_whole, whole_factors
from thera.values.meaning import Meaning
from thera.values.planes import Codes, Plane, fill_reach, planes_of, with_codes
from thera.values.ranges import Range, marked
from thera.values.samples import ArraySamples, valid_on_axes
from thera.values.survey import Window, find_ranges

from .picture import Picture

#: Rows of an array whose values are looked at together.
_ROWS = 256


def scale_picture(model: Model, picture: Picture, size: tuple[int, int], options: Options) -> Picture:
    """A picture at `size` = (height, width). The result takes room beside the memory that `options` allow."""
    layout = replace(picture.layout, height=size[0], width=size[1])
    samples = picture.empty_rows(size[0], layout)
    plan = make_plan(model, picture.layout.size, size, options, held=picture.samples.nbytes)
    for plane in picture.planes(model.info.halo):
        fill(model, plane, plan, options, samples)
    metadata = picture.metadata.resized(picture.layout.size, size)
    return replace(picture, samples=samples, metadata=metadata)


def scale_array(
    model: Model,
    array: NDArray,
    size: tuple[int, int],
    meaning: Meaning,
    options: Options,
    codes: Codes | None = None,
    result: int | None = None,
) -> NDArray:
    """An H×W×C array at another size.

    `result`: the bytes of the result that are part of the memory that `options` allow; by default all.
    """
    H, W, count = array.shape
    if options.consistent:
        check_whole((H, W), size)
    bands = meaning.bands(count, array.dtype)
    samples = ArraySamples(array, bands)

    def windows() -> Iterator[Window]:
        for top in range(0, H, _ROWS):
            yield samples.read((top, 0, min(top + _ROWS, H), W), range(count))

    ranges = find_ranges(bands, array.dtype, meaning.rule(count), windows)
    if result is None:
        result = size[0] * size[1] * count * array.dtype.itemsize
    plan = make_plan(model, (H, W), size, options, held=array.nbytes + result)
    return scale_samples(model, samples, ranges, plan, options, codes)


def scale_samples(
    model: Model,
    samples: ArraySamples,
    ranges: Sequence[Range],
    plan: Plan,
    options: Options,
    codes: Codes | None = None,
) -> NDArray:
    """The output of a plan, h×w×bands samples."""
    rows, cols = plan.grid
    bands = samples.bands
    out = np.zeros((len(rows), len(cols), bands.count), samples.dtype)
    marks = {band: mark for band, mark in enumerate(bands.nodata) if mark is not None}
    valid = valid_on_axes(samples, bands, rows, cols) if marks else None
    planes = planes_of(samples, bands, ranges, model.info.halo)
    planes = planes if codes is None else with_codes(planes, codes)
    for plane in sorted(planes, key=lambda plane: not plane.group.alpha):
        own = list(plane.group.bands)
        if valid is None or not marks.keys() >= set(own) or valid[..., own].any():
            fill(model, plane, plan, options, out)
        if plane.group.alpha and marks:
            valid = bands.hide(valid, out)
    if agrees(model, options, plan.source, plan.size):
        for plane in planes:
            plane.agree(out, cells_below(rows, cols), options.consistent)
    for band, mark in marks.items():
        out[..., band] = marked(out[..., band], True if valid is None else valid[..., band], mark)
    return out


def agrees(model: Model, options: Options, source: tuple[int, int], size: tuple[int, int]) -> bool:
    """True if `Plane.agree` belongs to scaling an image of shape `source` to `size`.

    A filter that was asked for changes means, and so does a model that restores pictures.
    """
    factors = whole_factors(source, size)
    usual = options.psf is None and not model.info.restores and factors != (1, 1)
    return factors is not None and (options.consistent or usual)


def seen_around(model: Model, bands: Bands, options: Options, steps: Sequence[float]) -> int:
    """How many pixels around a part of the input its output depends on, for output pixels of these sides."""
    info = model.info
    beyond = max(reach(psf, steps, info.kappa) for psf in options.filters(model, steps))
    depth = info.halo + beyond + info.alignment - 1
    if bands.partial:  # what stands in for samples comes from farther away
        depth += fill_reach(max(info.halo, beyond))
    return max(depth, math.ceil(max(steps)) + 1)  # as `Plane.alpha_window` reads


def fill(
    model: Model,
    plane: Plane,
    plan: Plan,
    options: Options,
    out: NDArray,
    grid: tuple[Axis, Axis] | None = None,
    call: Callable[..., object] = lambda put, *strip: put(*strip),
) -> None:
    """Stores one plane in its bands of `out`, h×w×bands samples at the output pixels of a plan or a grid.

    An alpha that is constant in all needed cells is copied without running the network.
    `call`: calls a function that stores a strip, now or in another thread.
    """
    rows, cols = grid or plan.grid
    if plane.group.alpha and out.size:
        constant = plane.constant(plane.alpha_window((rows.cell, cols.cell), (rows.step, cols.step)))
        if constant is not None:
            out[..., plane.group.bands[0]] = constant
            return
    done = 0
    for strip in TiledField(model, plane, options).rows(plan, grid=(rows, cols)):
        call(plane.put, strip.values, strip.rows, strip.cols, out[done : done + len(strip.rows)])
        done += len(strip.rows)
