"""From planes to samples: the output as bands of rows, or stored in an array."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from numpy.typing import NDArray

from thera.field.grid import Axis
from thera.models import Model
from thera.tiled.field import TiledField
from thera.tiled.options import Options
from thera.tiled.plan import Plan
from thera.values.planes import Plane


def bands(
    model: Model,
    planes: Sequence[Plane],
    plan: Plan,
    options: Options,
    empty: Callable[[int], NDArray],
    progress: Callable[[int], object] = lambda pixels: None,
) -> Iterator[NDArray]:
    """The output of a plan from the top down, n×W'×bands samples at a time, all planes side by side.

    `empty` makes the array for n rows of samples.
    """
    counted = _divided(progress, len(planes))
    fields = [TiledField(model, plane, options) for plane in planes]
    for strips in zip(*(field.rows(plan, counted) for field in fields), strict=True):
        rows, cols, _ = strips[0]
        band = empty(len(rows))
        for plane, strip in zip(planes, strips, strict=True):
            plane.put(strip.values, rows, cols, band)
        yield band


def fill(
    model: Model,
    plane: Plane,
    plan: Plan,
    options: Options,
    out: NDArray,
    grid: tuple[Axis, Axis] | None = None,
) -> None:
    """Stores one plane in its bands of `out`, h×w×bands samples at the output pixels of a plan or a grid.

    An alpha that is constant in all needed cells is copied without running the network.
    """
    rows, cols = grid or (Axis.whole(n, N) for n, N in zip(plan.source, plan.size, strict=True))
    rows, cols = (
        rows[rows.within(plan.rows[0], plan.rows[-1])],
        cols[cols.within(plan.cols[0], plan.cols[-1])],
    )
    if plane.group.alpha and out.size:
        constant = plane.constant(plane.alpha_window((rows.cell, cols.cell), (rows.step, cols.step)))
        if constant is not None:
            out[..., plane.group.bands[0]] = constant
            return
    done = 0
    for strip in TiledField(model, plane, options).rows(plan, grid=(rows, cols)):
        plane.put(strip.values, strip.rows, strip.cols, out[done : done + len(strip.rows)])
        done += len(strip.rows)


def _divided(progress: Callable[[int], object], parts: int) -> Callable[[int], None]:
    """Divides the progress of `parts` jobs that each report all pixels, so that the sum counts them once."""
    counted = reported = 0

    def report(pixels: int) -> None:
        nonlocal counted, reported
        counted += pixels
        before, reported = reported, counted // parts
        progress(reported - before)

    return report
