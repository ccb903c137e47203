"""`Head`: what all fields of a model share, and the tables that renderings make of it.

With sin(w·x + φ) = cos φ · sin(w·x) + sin φ · cos(w·x), all cells that are read at the same offsets x share
one table of sin(w·x) and cos(w·x), filters and derivatives included, and

    Φ - I = Σₖ aₖ cos φₖ · table[k] + Σₖ aₖ sin φₖ · table[c + k]

is a product of [cells·channels × 2c] by [2c × offsets]: no sine and no network per output pixel. A table
depends on the grid, the filter and the bank, not on the image: the head keeps those it was asked for last.
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
Shift = tuple[Array, Array]  # what is added to the phases: (h, c) by row and (w, c) by column of the cells
# Bytes of all tables that a head keeps. At ×4 a table of 512 components has 64 KiB; at other scales its
# shifts have 2 KiB for each row and column of the image.
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

    fused = (
        False  # whether coefficients are never stored, so that blocks may be as large as their values allow
    )

    def __init__(self, weight: Array | None, bias: Array | None, components: Array, kappa: float) -> None:
        self.weight = None if weight is None else float32(weight)
        self.bias = None if bias is None else float32(bias)
        # Tables are made of these on the host, in float64.
        self.components = to_numpy(components).astype(np.float64)
        self.kappa = float(kappa)
        self.tables = LRU[Any](TABLE_BYTES)

    @property
    def place(self) -> Hashable:
        """Where a table must have been made to be used now, beyond its device."""
        return None

    def turned(self) -> Head:
        """The head of the same fields turned by a quarter: x = (row, column) goes to (-column, row), and with
        it w·x to (w₂, -w₁)·x."""
        head = copy.copy(self)
        head.components = np.stack([self.components[1], -self.components[0]])
        head.tables = LRU[Any](TABLE_BYTES)
        return head

    @cached_property
    def by_channel(self) -> tuple[Array, Array]:
        """Weight and bias with the amplitudes channel by channel, so that each channel's c are contiguous."""
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

        Returns (h·w, channels, offsets). The last layer, c sines and cosines per cell, and two products.
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
