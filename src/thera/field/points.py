"""The field at arbitrary points, each evaluated in its own cell with its own footprint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from thera.field.grid import BLEND_REACH
from thera.field.psf import Filter
from thera.field.tables import CACHED_BYTES, send
from thera.field.threads import map_blocks

if TYPE_CHECKING:
    from thera.field.heatfield import HeatField

Array = Any


def evaluate(field: HeatField, points: np.ndarray, jacobian: np.ndarray, psf: Filter, memory: int) -> Array:
    """Φ at points (N, 2) in the image, filtered within their cells: (N, channels).

    `jacobian`, (2, 2) or (N, 2, 2), holds the sides of the output pixels in input pixels. Pixels smaller than
    `psf.finest` use that size; near a border both cells are blended.
    """
    cell = np.clip(np.floor(points), 0, np.array(field.shape) - 1).astype(np.int64)
    size = principal_axes(jacobian)[1][..., 0] if psf.finest else np.array(np.inf)
    if not np.any(size < psf.finest):
        return _evaluate_cells(field, cell, points - cell - 0.5, jacobian, psf, memory)
    jacobian = jacobian * np.maximum(psf.finest / np.maximum(size, 1e-30), 1)[..., None, None]
    cells, share = _nearest_cells(points, cell, size < psf.finest, field.shape)
    which, corner = np.nonzero(share)
    cells, footprints = cells[which, corner], jacobian if jacobian.ndim == 2 else jacobian[which]
    values = _evaluate_cells(field, cells, points[which] - cells - 0.5, footprints, psf, memory)
    rows = np.zeros(share.shape, np.int64)  # the value of each share; shares of 0 may take any
    rows[which, corner] = np.arange(len(which))
    xp = field.namespace
    taken = xp.take(values, xp.asarray(rows.ravel(), device=field.device), axis=0)
    taken = xp.reshape(taken, (*rows.shape, field.channels))
    return xp.sum(taken * send(field, share)[:, :, None], axis=1)


def _nearest_cells(
    points: np.ndarray, cell: np.ndarray, fine: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """The four cells (N, 4, 2) nearest to points, and the share (N, 4) of each, blended as in
    `grid.blend_cells` along both axes. A point that is not `fine` uses only its own cell, the first."""
    offset = points - cell - 0.5
    ahead = cell + np.where(offset > 0, 1, -1)  # the cell across the nearest border
    share = np.maximum(0.5 - (0.5 - np.abs(offset)) / (2 * BLEND_REACH), 0) * np.reshape(fine, (-1, 1))
    share *= (ahead >= 0) & (ahead < shape)
    corners = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])
    cell, ahead, share = cell[:, None], ahead[:, None], share[:, None]
    return np.where(corners, ahead, cell), np.where(corners, share, 1 - share).prod(-1)


def _evaluate_cells(
    field: HeatField, cell: np.ndarray, offset: np.ndarray, jacobian: np.ndarray, psf: Filter, memory: int
) -> Array:
    """Φ of cells (N, 2) at offsets (N, 2) from their centres. Points are sorted by cell, so that the head is
    applied once to each cell."""
    xp, device = field.namespace, field.device
    H, W = field.shape
    flat = cell[:, 0] * W + cell[:, 1]
    order = np.argsort(flat, kind="stable")
    offset, flat = offset[order], flat[order]

    features = xp.reshape(field.features, (H * W, -1))
    pixels = xp.reshape(field.pixels, (H * W, field.channels))
    components = send(field, field.components)
    varying = jacobian.ndim == 3
    gain = None
    if not varying:
        gain = send(field, psf.transfer(field.components, jacobian, field.kappa))
    step = _block_points(field, memory)

    def values(start: int) -> Array:
        block = slice(start, start + step)
        factor = gain
        if varying:
            factor = psf.transfer(components, send(field, jacobian[order[block]]), field.kappa)
        cells, which = np.unique(flat[block], return_inverse=True)
        cells, which = xp.asarray(cells, device=device), xp.asarray(which, device=device)
        amplitude, phase = field.coefficients(xp.take(features, cells, axis=0))
        x = send(field, offset[block])
        angle = xp.take(phase, which, axis=0)
        angle += x[:, :1] * components[0, :]
        angle += x[:, 1:] * components[1, :]
        sines = xp.sin(angle) * factor
        waves = xp.vecdot(xp.take(amplitude, which, axis=0), sines[:, None, :], axis=-1)
        return waves + xp.take(xp.take(pixels, cells, axis=0), which, axis=0)

    return unsort(field, map_blocks(field.pixels, values, range(0, len(flat), step)), order)


def principal_axes(jacobian: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The axes of the ellipse JJᵀ: u₁ and u₂ as columns (..., 2, 2), and their sizes f₁ ≥ f₂ (..., 2)."""
    gram = jacobian @ np.swapaxes(jacobian, -1, -2)
    mean, difference = (gram[..., 0, 0] + gram[..., 1, 1]) / 2, (gram[..., 0, 0] - gram[..., 1, 1]) / 2
    radius = np.hypot(difference, gram[..., 0, 1])
    angle = np.arctan2(gram[..., 0, 1], difference) / 2
    cos, sin = np.cos(angle), np.sin(angle)
    directions = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)
    return directions, np.sqrt(np.stack([mean + radius, np.maximum(mean - radius, 0)], -1))


def unsort(field: HeatField, parts: list[Array], order: np.ndarray) -> Array:
    """Rows that were computed in the given order, back in their original order."""
    xp = field.namespace
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return xp.take(xp.concat(parts, axis=0), xp.asarray(back, device=field.device), axis=0)


def _block_points(field: HeatField, memory: int) -> int:
    if field.on_cpu:
        memory = min(memory, 2 * CACHED_BYTES)
    return max(1, memory // (4 * (2 * field.channels + 6) * field.components.shape[1] + 64))
