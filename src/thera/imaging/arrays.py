"""Arrays to another size, whole or a part of the output at a time."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from thera.field.grid import Axis
from thera.models import Model
from thera.tiled import Options, Plan, make_plan
from thera.tiled.output import fill
from thera.values.meaning import Meaning
from thera.values.planes import ArraySamples, planes_of
from thera.values.ranges import Range, marked
from thera.values.survey import Window, find_ranges

#: Rows of an array whose values are looked at together.
_ROWS = 256


def scale_array(
    model: Model, array: NDArray, size: tuple[int, int], meaning: Meaning, options: Options
) -> NDArray:
    """An H×W×C array at another size. The result is part of the memory that `options` allow."""
    H, W, count = array.shape
    bands = meaning.bands(count, array.dtype)
    samples = ArraySamples.whole(array, bands)

    def windows() -> Iterator[Window]:
        for top in range(0, H, _ROWS):
            yield samples.read((top, 0, min(top + _ROWS, H), W), range(count))

    ranges = find_ranges(bands, array.dtype, meaning.rule(count), windows)
    held = array.nbytes + size[0] * size[1] * count * array.dtype.itemsize
    plan = make_plan(model, (H, W), size, options, held=held)
    return scale_samples(model, samples, ranges, plan, options)


def scale_samples(
    model: Model, samples: ArraySamples, ranges: Sequence[Range], plan: Plan, options: Options
) -> NDArray:
    """The output of a plan, h×w×bands samples."""
    down, along = (Axis.whole(n, N) for n, N in zip(plan.source, plan.size, strict=True))
    rows = down[down.within(plan.rows[0], plan.rows[-1])]
    cols = along[along.within(plan.cols[0], plan.cols[-1])]
    bands = samples.bands
    out = np.zeros((len(rows), len(cols), bands.count), samples.dtype)
    marks = {band: mark for band, mark in enumerate(bands.nodata) if mark is not None}
    valid = _valid(samples, rows, cols) if marks else None
    # One group of bands after the other, so that only one field is held at a time.
    for plane in planes_of(samples, bands, ranges, model.info.halo):
        own = list(plane.group.bands)
        if valid is None or not marks.keys() >= set(own) or valid[..., own].any():
            fill(model, plane, plan, options, out)
    for band, mark in marks.items():
        out[..., band] = marked(out[..., band], True if valid is None else valid[..., band], mark)
    return out


def _valid(samples: ArraySamples, rows: Axis, cols: Axis) -> NDArray[np.bool_] | None:
    """Which output samples are valid: those whose centre lies in an input pixel that is. None if all are."""
    top, left = int(rows.cell[0]), int(cols.cell[0])
    box = (top, left, int(rows.cell[-1]) + 1, int(cols.cell[-1]) + 1)
    _, valid = samples.read(box, range(samples.bands.count))
    return None if valid is None else valid[np.ix_(rows.cell - top, cols.cell - left)]
