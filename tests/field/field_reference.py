"""The field straight from its equation, in float64, and random fields to read."""

from __future__ import annotations

from typing import Any

import numpy as np

from thera.field import HeatField


def coefficients(field: HeatField) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pixels H×W×channels, amplitudes H×W×c×channels and phases H×W×c."""
    pixels, features = (np.asarray(array, np.float64) for array in (field.pixels, field.features))
    if field.head_weight is not None:
        features = features @ np.asarray(field.head_weight, np.float64) + np.asarray(
            field.head_bias, np.float64
        )
    c = field.components.shape[1]
    amplitude = features[..., : c * field.channels].reshape(*field.shape, c, field.channels)
    return pixels, amplitude, features[..., c * field.channels :]


def direct(
    field: HeatField, points: np.ndarray, t: float = 0.0, gain: np.ndarray | None = None
) -> np.ndarray:
    """Φ(x, t) at points (..., 2): the sum over all components; `gain` (..., c) replaces their damping."""
    pixels, amplitude, phase = coefficients(field)
    cell = np.clip(np.floor(points), 0, np.array(field.shape) - 1).astype(int)
    row, col = cell[..., 0], cell[..., 1]
    x = points - cell - 0.5
    if gain is None:
        gain = np.exp(-field.kappa * t * (field.components**2).sum(0))
    sines = gain * np.sin(x @ field.components + phase[row, col])
    return pixels[row, col] + np.einsum("...kc,...k->...c", amplitude[row, col], sines)


def centres(shape: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    """The centres of H'×W' output pixels in input coordinates, (H', W', 2)."""
    rows, cols = ((np.arange(N) + 0.5) * n / N for n, N in zip(shape, size, strict=True))
    return np.stack(np.meshgrid(rows, cols, indexing="ij"), axis=-1)


def away_from_borders(points: np.ndarray) -> np.ndarray:
    """Which points are not on the border of two cells, where rounding decides which of the two is read."""
    return np.all(np.abs(points - np.round(points)) > 1e-6, axis=-1)


def random_field(
    seed: int = 0,
    shape: tuple[int, int] = (7, 5),
    c: int = 12,
    C: int = 6,
    channels: int = 3,
    head: bool = True,
    radius: float = 6 * np.pi,
    asarray: Any = np.asarray,
) -> HeatField:
    """Amplitudes of about 0.1, phases anywhere, frequencies up to `radius`."""
    rng = np.random.default_rng(seed)
    r, theta = radius * np.sqrt(rng.random(c)), 2 * np.pi * rng.random(c)
    components = np.stack([r * np.cos(theta), r * np.sin(theta)])
    pixels = rng.random((*shape, channels))
    if not head:
        amplitude = 0.1 * rng.standard_normal((*shape, c, channels))
        phase = rng.uniform(-np.pi, np.pi, (*shape, c))
        return HeatField.from_coefficients(
            asarray(pixels), asarray(amplitude), asarray(phase), components, 0.03
        )
    features = rng.standard_normal((*shape, C))
    amplitude_weight = 0.1 / np.sqrt(C) * rng.standard_normal((C, c * channels))
    weight = np.concatenate([amplitude_weight, rng.standard_normal((C, c))], axis=1)
    bias = np.concatenate([np.zeros(c * channels), rng.uniform(-np.pi, np.pi, c)])
    return HeatField(asarray(pixels), asarray(features), asarray(weight), asarray(bias), components, 0.03)
