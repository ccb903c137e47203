"""Footprints larger than a cell, at arbitrary points.

A local field ends with its cell, so a larger footprint averages samples of several cells. The footprint is an
ellipse with the principal axes u₁ and u₂, of sizes f₁ ≥ f₂ in input pixels:

- f₁ ≤ 1: evaluated in the point's own cell, filtered exactly;
- f₁ > 1 ≥ f₂: an average of such values along the line u₁, at least three per footprint;
- f₂ > 1: an average of the pixels of a *sheet*, the field rendered on a grid fine enough for f₂.

Lanczos's kernel is wider than its ellipse, so lines cannot represent it: with Lanczos f₂ is at least 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from thera.errors import InvalidInput
from thera.field.grid import SAMPLES_PER_FOOTPRINT, SMALL_FOOTPRINT
from thera.field.points import evaluate, principal_axes, unsort
from thera.field.psf import Box, Filter, Gaussian, Lanczos
from thera.field.tables import send

if TYPE_CHECKING:
    from thera.field.heatfield import HeatField

Array = Any
Outside = Literal["edge"] | float | Sequence[float]
# A longer ellipse is widened to this ratio, or a pixel near the horizon would read half the image.
LARGEST_RATIO = 16.0
# The most sub-boxes of a Box along each side of its parallelogram.
MOST_BOXES = 32
# The least number of sheet pixels along the short axis of a footprint.
SHEET_SAMPLES = 4
# A sheet is rendered in tiles of this side.
SHEET_TILE = 512


def _sample_inside(
    field: HeatField, points: np.ndarray, jacobian: np.ndarray, psf: Filter, memory: int
) -> Array:
    """Φ at points (N, 2) in the image, with footprints `jacobian`, (2, 2) or (N, 2, 2): (N, channels)."""
    if psf.footprint is None:
        return evaluate(field, points, jacobian, psf, memory)
    directions, sizes = principal_axes(jacobian * psf.footprint)
    if not np.any(sizes[..., 0] > 1 + 1e-6):  # a rotation has size 1, up to rounding
        return evaluate(field, points, jacobian, psf, memory)

    N = len(points)
    jacobian, directions = (np.broadcast_to(a, (N, 2, 2)) for a in (jacobian, directions))
    sizes = np.broadcast_to(sizes, (N, 2)).copy()
    local = sizes[:, 0] <= 1 + 1e-6
    parts, order = [], []
    if np.any(local):
        order.append(np.flatnonzero(local))
        parts.append(evaluate(field, points[local], jacobian[local], psf, memory))
    if isinstance(psf, Box):
        groups = _boxes(jacobian, psf.width, np.flatnonzero(~local))
    else:
        sizes[:, 1] = np.maximum(sizes[:, 1], sizes[:, 0] / LARGEST_RATIO)
        thin = sizes[:, 1] <= 1
        if isinstance(psf, Lanczos):  # which has no lines
            sizes[:, 1], thin = np.maximum(sizes[:, 1], 1), np.zeros(N, bool)
        groups = _lines(jacobian, directions, sizes, psf, field.kappa, np.flatnonzero(~local & thin))
        for which, values in _sheets(
            field, points, directions, sizes, psf, np.flatnonzero(~local & ~thin), memory
        ):
            order.append(which)
            parts.append(values)
    for which, offsets, weights, part in groups:
        order.append(which)
        parts.append(_average(field, points[which], offsets, weights, part, psf, memory))
    return unsort(field, parts, np.concatenate(order))


def sample(
    field: HeatField, points: np.ndarray, jacobian: np.ndarray, psf: Filter, outside: Outside, memory: int
) -> Array:
    """Φ at points (N, 2) anywhere, with footprints `jacobian`, (2, 2) or (N, 2, 2): (N, channels).

    Points outside the image are moved to its edge, or get the value `outside`.
    """
    if len(points) == 0:
        return send(field, np.empty((0, field.channels)))
    shape = np.array(field.shape)
    seen = np.all(np.isfinite(points), axis=1) & np.all(np.isfinite(jacobian), axis=(-2, -1))
    if isinstance(outside, str):
        if outside != "edge":
            raise InvalidInput(f"outside={outside!r} is not valid; give 'edge', a number or a colour.")
        if not np.all(seen):
            raise InvalidInput(
                f"{np.count_nonzero(~seen)} points have no place in the input: they lie on a horizon, beyond "
                "it, or are not numbers; give the value to show there as outside=."
            )
        return _sample_inside(field, np.clip(points, 0, shape), jacobian, psf, memory)
    seen &= np.all((points >= 0) & (points <= shape), axis=1)
    if np.shape(outside) not in ((), (field.channels,)):
        raise InvalidInput(
            f"outside={outside!r} is not a colour of {field.channels} channels; give one number for each."
        )
    fill = np.broadcast_to(np.asarray(outside, dtype=np.float32), (len(points), field.channels))
    if not np.any(seen):
        return send(field, fill)
    inside = jacobian if jacobian.ndim == 2 else jacobian[seen]
    parts = [_sample_inside(field, points[seen], inside, psf, memory), send(field, fill[~seen])]
    return unsort(field, parts, np.concatenate([np.flatnonzero(seen), np.flatnonzero(~seen)]))


Group = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # points, node offsets, weights, jacobians


def _lines(
    jacobian: np.ndarray,
    directions: np.ndarray,
    sizes: np.ndarray,
    psf: Filter,
    kappa: float,
    which: np.ndarray,
) -> Iterator[Group]:
    """Nodes along the long axis, grouped by their number."""
    size, u = sizes[which, 0], directions[which, :, 0]
    fine = 1 / np.ceil(SAMPLES_PER_FOOTPRINT / size)
    sigma = psf.remaining(size, fine, kappa)
    # Counts are rounded up to few distinct ones, so that there are few groups: 9, 13, 19, 28, ...
    rung = np.ceil(np.log(np.maximum(8 * sigma / fine + 1, 9) / 9) / np.log(1.45)).astype(int)
    # The footprint at a node: J shortened to `fine` along u₁.
    part = jacobian[which] + np.einsum("n,ni,nj,njk->nik", fine / size - 1, u, u, jacobian[which])
    for step in np.unique(rung):
        here = rung == step
        z = np.linspace(-4, 4, int(9 * 1.45**step) | 1)
        distance = sigma[here, None] * z
        weights = np.broadcast_to(np.exp(-0.5 * z**2), distance.shape)
        yield which[here], distance[:, :, None] * u[here, None, :], weights, part[here]


def _boxes(jacobian: np.ndarray, width: float, which: np.ndarray) -> Iterator[Group]:
    """A box divided into equal sub-boxes of at most half an input pixel."""
    lengths = width * np.linalg.norm(jacobian[which], axis=1)
    counts = np.clip(np.ceil(2 * lengths), 1, MOST_BOXES).astype(int)
    for count in np.unique(counts, axis=0):
        here = np.all(counts == count, axis=1)
        sides = [width * ((np.arange(n) + 0.5) / n - 0.5) for n in count]
        k = np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, 2)
        offsets = np.einsum("nij,kj->nki", jacobian[which[here]], k)
        yield which[here], offsets, np.ones(offsets.shape[:2]), jacobian[which[here]] / count


def _average(
    field: HeatField,
    points: np.ndarray,
    offsets: np.ndarray,
    weights: np.ndarray,
    jacobian: np.ndarray,
    psf: Filter,
    memory: int,
) -> Array:
    """Weighted means of Φ at the nodes points (N, 2) + offsets (N, K, 2), without those outside the image."""
    xp = field.namespace
    count, parts = offsets.shape[1], []
    chunk = max(1, memory // (512 * count))
    for start in range(0, len(points), chunk):
        part = slice(start, start + chunk)
        nodes = points[part, None, :] + offsets[part]
        weight = weights[part] * np.all((nodes >= 0) & (nodes <= field.shape), axis=-1)
        weight = weight / weight.sum(1, keepdims=True)
        values = evaluate(field, nodes.reshape(-1, 2), np.repeat(jacobian[part], count, axis=0), psf, memory)
        values = xp.reshape(values, (-1, count, field.channels))
        parts.append(xp.sum(values * send(field, weight)[:, :, None], axis=1))
    return xp.concat(parts, axis=0)


def _sheets(
    field: HeatField,
    points: np.ndarray,
    directions: np.ndarray,
    sizes: np.ndarray,
    psf: Filter,
    which: np.ndarray,
    memory: int,
) -> Iterator[tuple[np.ndarray, Array]]:
    """Means over the pixels of sheets, each the coarsest of scale 2ᵏ that has enough pixels."""
    shape = np.array(field.shape)
    # The sheet's pixels are filtered at their own size.
    sheet_psf = dataclasses.replace(psf, bandwidth=1.0) if isinstance(psf, Gaussian) else psf
    short = sizes[which, 1]
    level = np.ceil(np.log2(SHEET_SAMPLES / short)).astype(int)
    level = np.where(short < SMALL_FOOTPRINT, np.maximum(level, 1), level)
    for k in np.unique(level):
        here = which[level == k]
        count = np.maximum(np.round(shape * 2.0**k), 1).astype(int)
        step = shape / count
        u = directions[here] / step[:, None]
        if isinstance(psf, Lanczos):
            # The ellipse on which the distance is one output pixel, in sheet pixels.
            ellipse, radius = np.einsum("nij,nj,nkj->nik", u, sizes[here] ** 2, u), psf.radius(1.0, 0.0, 0.0)
        else:
            # The covariance still to apply, in sheet pixels, with the footprint's axes.
            ellipse = np.einsum("nij,nj,nkj->nik", u, psf.variance(sizes[here], field.kappa), u)
            ellipse, radius = ellipse - np.diag(psf.variance(step, field.kappa) / step**2), 4.0
        position = points[here] / step
        reach = np.ceil(radius * np.sqrt(np.diagonal(ellipse, axis1=1, axis2=2))) + 1
        reach = np.minimum(reach, count).astype(int)
        tile = np.minimum(position, count - 1).astype(int) // SHEET_TILE
        for corner in np.unique(tile, axis=0):
            members = np.flatnonzero(np.all(tile == corner, axis=1))
            members = members[np.argsort(-reach[members].prod(1), kind="stable")]
            low = np.maximum(np.floor(position[members] - reach[members]).astype(int).min(0), 0)
            high = np.minimum(np.ceil(position[members] + reach[members]).astype(int).max(0), count)
            sheet = field.render(
                size=tuple(high - low), region=(*(low * step), *(high * step)), psf=sheet_psf, memory=memory
            )
            values = _ellipses(
                field, sheet, position[members] - low, ellipse[members], reach[members], psf, memory
            )
            yield here[members], values


def _ellipses(
    field: HeatField,
    sheet: Array,
    position: np.ndarray,
    ellipse: np.ndarray,
    reach: np.ndarray,
    psf: Filter,
    memory: int,
) -> Array:
    """Weighted means of a sheet (h, w, channels) around positions (N, 2), largest windows first. `ellipse`
    (N, 2, 2) is the covariance of a Gaussian, or Lanczos's unit of distance."""
    xp = field.namespace
    h, w = sheet.shape[:2]
    flat = xp.reshape(sheet, (h * w, field.channels))
    precision = np.linalg.inv(ellipse)
    parts, start = [], 0
    while start < len(position):
        size = reach[start:].max(0)
        part = slice(start, start + max(1, memory // (64 * int((2 * size + 1).prod()))))
        first = np.floor(position[part]).astype(int)
        rows = first[:, :1] + np.arange(-size[0], size[0] + 1)
        cols = first[:, 1:] + np.arange(-size[1], size[1] + 1)
        dy = (rows + 0.5 - position[part, :1])[:, :, None]
        dx = (cols + 0.5 - position[part, 1:])[:, None, :]
        P = precision[part]
        squared = P[:, 0, 0, None, None] * dy**2 + P[:, 1, 1, None, None] * dx**2
        squared = squared + 2 * P[:, 0, 1, None, None] * dy * dx
        inside = ((rows >= 0) & (rows < h))[:, :, None] & ((cols >= 0) & (cols < w))[:, None, :]
        falloff = psf.falloff(np.sqrt(squared)) if isinstance(psf, Lanczos) else np.exp(-0.5 * squared)
        weight = falloff * inside
        weight /= weight.sum((1, 2), keepdims=True)
        index = np.clip(rows, 0, h - 1)[:, :, None] * w + np.clip(cols, 0, w - 1)[:, None, :]
        taken = xp.take(flat, xp.asarray(index.ravel(), device=field.device), axis=0)
        taken = xp.reshape(taken, (len(index), -1, field.channels))
        parts.append(xp.sum(taken * send(field, weight.reshape(len(index), -1))[:, :, None], axis=1))
        start = part.stop
    return xp.concat(parts, axis=0)
