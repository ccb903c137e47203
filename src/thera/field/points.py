"""The field at arbitrary points, each read in the cell it falls in and through a footprint of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from thera.field.product import CACHED_BYTES, send
from thera.field.psf import Filter
from thera.field.threads import each

if TYPE_CHECKING:
    from thera.field.heatfield import HeatField

Array = Any


def evaluate(field: HeatField, points: np.ndarray, jacobian: np.ndarray, psf: Filter, memory: int) -> Array:
    """Φ at points (N, 2) in the image, filtered within their cells: (N, channels).

    `jacobian`, (2, 2) or (N, 2, 2), holds the steps of an output pixel in input pixels. Points are taken cell
    by cell, so that the head is applied once to each cell that is read.
    """
    xp, device = field.namespace, field.device
    H, W = field.shape
    cell = np.clip(np.floor(points), 0, np.array([H, W]) - 1).astype(np.int64)
    flat = cell[:, 0] * W + cell[:, 1]
    order = np.argsort(flat, kind="stable")
    offset = (points - cell - 0.5)[order]
    flat = flat[order]

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

    return restore(field, each(field.pixels, values, range(0, len(flat), step)), order)


def restore(field: HeatField, parts: list[Array], order: np.ndarray) -> Array:
    """Rows computed in the given order, put back where they belong."""
    xp = field.namespace
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return xp.take(xp.concat(parts, axis=0), xp.asarray(back, device=field.device), axis=0)


def _block_points(field: HeatField, memory: int) -> int:
    if field.on_cpu:
        memory = min(memory, 2 * CACHED_BYTES)
    return max(1, memory // (4 * (2 * field.channels + 6) * field.components.shape[1] + 64))
