"""The cells of a field that an output needs. Only this module knows how far filters reach."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from thera.field.grid import BLEND_REACH, Axis, Box
from thera.field.points import principal_axes
from thera.field.psf import Filter
from thera.field.wide import SHEET_SAMPLES


def margin(psf: Filter, largest: float, smallest: float, kappa: float, passes: int = 1) -> float:
    """How far from its centre, in input pixels, an output pixel needs cells beyond its own.

    `largest` and `smallest` are the sides of the output pixel in input pixels. `passes` is 2 if samples may
    be averages of other samples, so that the variances of two Gaussians add up.
    """
    if psf.neighbours:
        return psf.neighbours
    footprint = (psf.footprint or 0.0) * largest
    if footprint <= 1:
        return 1.001 * BLEND_REACH if smallest < psf.finest else 0.0  # near a border both cells are blended
    return math.sqrt(passes) * psf.radius(footprint, 0.0, kappa) + 1 + passes


def reach(psf: Filter, steps: Sequence[float], kappa: float) -> int:
    """At most how many cells beyond its own an output pixel with these sides needs, in each direction."""
    return math.ceil(max(margin(psf, step, step, kappa) for step in steps))


def cells_needed(rows: Axis, cols: Axis, shape: tuple[int, int], psf: Filter, kappa: float) -> Box:
    """The cells of a field of `shape` that the output pixels of two axes need."""
    axes, margins = (rows, cols), [margin(psf, axis.step, axis.step, kappa) for axis in (rows, cols)]
    low = [float(axis.centre[0]) - beyond for axis, beyond in zip(axes, margins, strict=True)]
    high = [float(axis.centre[-1]) + beyond for axis, beyond in zip(axes, margins, strict=True)]
    return _box(low, high, shape)


def cells_needed_at(
    points: np.ndarray, jacobian: np.ndarray, shape: tuple[int, int], psf: Filter, kappa: float
) -> Box:
    """The cells of a field of `shape` that points (N, 2) in it need, N ≥ 1.

    `jacobian`, (2, 2) or (N, 2, 2), holds the sides of the output pixels as columns.
    """
    sizes = principal_axes(jacobian)[1]
    largest, smallest = float(sizes[..., 0].max()), sizes[..., 1]
    beyond = margin(psf, largest, float(smallest.min()), kappa, passes=2)
    # Samples of large footprints lie on a grid with a step of 2ᵏ, which must be the same in every window.
    footprint = max(1.0, float(smallest.max()) * (psf.footprint or 1.0))
    aligned = 2 ** max(0, math.floor(math.log2(footprint / SHEET_SAMPLES)))
    return _box(points.min(axis=0) - beyond, points.max(axis=0) + beyond, shape, aligned)


def _box(
    low: Sequence[float] | np.ndarray,
    high: Sequence[float] | np.ndarray,
    shape: tuple[int, int],
    aligned: int = 1,
) -> Box:
    """The cells of a field of `shape` between two positions, out to multiples of `aligned`."""
    bottom, right = (
        min(n, -(-(math.floor(end) + 1) // aligned) * aligned) for n, end in zip(shape, high, strict=True)
    )
    top, left = (max(0, math.floor(start)) // aligned * aligned for start in low)
    return min(top, bottom - 1), min(left, right - 1), bottom, right
