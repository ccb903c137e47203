"""`Head`: what all fields of a model share, and the tables that rendering precomputes from it.

With sin(w·x + φ) = cos φ · sin(w·x) + sin φ · cos(w·x), all cells that are read at the same offsets x share
one table of sin(w·x) and cos(w·x), filters and derivatives included, and

    Φ - I = Σₖ aₖ cos φₖ · table[k] + Σₖ aₖ sin φₖ · table[c + k]

is a product of [cells·channels × 2c] by [2c × offsets]: no sine and no network per output pixel. A table
depends on the grid, the filter and the frequencies, not on the image. The head caches recently used ones.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable
from functools import cached_property
from typing import Any

import array_api_compat
import numpy as np

from thera.field.namespace import array_namespace
from thera.field.psf import to_numpy
from thera.lru import LRU

Array = Any  # a NumPy or torch array; see array-api-compat
Shift = tuple[Array, Array]  # added to the phases: (h, c) for rows and (w, c) for columns of cells
# Bytes of cached tables per head. At ×4 a table of 512 components has 64 KiB; at other scales its shifts
# have 2 KiB for each row and column of the image.
TABLE_BYTES = 16 << 20


class Head:
    """The last layer, the frequency bank and κ.

    | argument | shape | meaning |
    | --- | --- | --- |
    | weight, bias | C×(channels + 1)c, (channels + 1)c | `features @ weight + bias` are the c×channels \
amplitudes a (row-major), then the c phases φ; both None where the features are these already |
    | components | 2×c | the frequencies w: down the rows, along the columns; radians per input pixel |
    | kappa | number | the diffusivity κ |
    """

    fused = False  # True if coefficients are never stored, so that blocks can be larger

    def __init__(self, weight: Array | None, bias: Array | None, components: Array, kappa: float) -> None:
        self.weight = None if weight is None else float32(weight)
        self.bias = None if bias is None else float32(bias)
        # The host makes tables from these, in float64.
        self.components = to_numpy(components).astype(np.float64)
        self.kappa = float(kappa)
        self.tables = LRU[Any](TABLE_BYTES)

    @property
    def place(self) -> Hashable:
        """Part of a table's cache key: on a GPU, the stream that made it, which alone may use it."""
        return None

    def turned(self) -> Head:
        """The head of the same fields after a quarter turn, which takes x = (row, column) to (-column, row)
        and w = (w₁, w₂) to (w₂, -w₁)."""
        head = copy.copy(self)
        head.components = np.stack([self.components[1], -self.components[0]])
        head.tables = LRU[Any](TABLE_BYTES)
        return head

    @cached_property
    def by_channel(self) -> tuple[Array, Array]:
        """Weight and bias reordered so that the c amplitudes of each channel are contiguous."""
        outputs, c = self.weight.shape[1], self.components.shape[1]  # type: ignore[union-attr]
        order = np.arange(outputs - c).reshape(c, -1).T.ravel()
        order = np.concatenate([order, np.arange(outputs - c, outputs)])
        xp = array_namespace(self.weight)
        order = xp.asarray(order, device=array_api_compat.device(self.weight))
        return xp.take(self.weight, order, axis=1), xp.take(self.bias, order, axis=0)

    def coefficients(self, features: Array) -> tuple[Array, Array]:
        """Amplitudes (P, channels, c) and phases (P, c) of cells with these features (P, C)."""
        xp = array_namespace(features)
        c = self.components.shape[1]
        if self.weight is None:
            split = features.shape[1] - c
            amplitude = xp.reshape(features[:, :split], (features.shape[0], c, -1))
            return xp.permute_dims(amplitude, (0, 2, 1)), features[:, split:]
        weight, bias = self.by_channel
        outputs = features @ weight
        outputs += bias
        split = outputs.shape[1] - c
        return xp.reshape(outputs[:, :split], (features.shape[0], -1, c)), outputs[:, split:]

    def oscillations(self, features: Array, shift: Shift | None, table: Array) -> Array:
        """Φ - I of h×w cells at the table's offsets: features (h, w, C), table (2c, offsets).

        Returns (h·w, channels, offsets). It applies the last layer, takes c sines and cosines per cell, and
        multiplies two pairs of matrices.
        """
        xp = array_namespace(features)
        amplitude, phase = self.coefficients(xp.reshape(features, (-1, features.shape[-1])))
        P, channels, c = amplitude.shape
        if shift is not None:
            down, along = shift
            phase = phase + xp.reshape(down[:, None, :] + along[None, :, :], (P, c))
        in_phase = xp.reshape(amplitude * xp.cos(phase)[:, None, :], (P * channels, c))
        out = in_phase @ table[:c, :]
        quadrature = xp.reshape(amplitude * xp.sin(phase)[:, None, :], (P * channels, c))
        out += quadrature @ table[c:, :]
        return xp.reshape(out, (P, channels, -1))


def float32(array: Array) -> Array:
    xp = array_namespace(array)
    return xp.astype(array, xp.float32, copy=False)
