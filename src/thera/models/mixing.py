"""A model between two: of one that restores pictures, and of the clean one that it was trained from.

The sum of two fields is a field: its sinusoids are those of both. So a mixture is exact at every scale, and
everything that renders fields renders it.
"""

from __future__ import annotations

import copy
import math

import numpy as np

from thera.errors import InvalidInput, ModelError
from thera.field.head import TABLE_BYTES
from thera.field.namespace import array_namespace
from thera.field.psf import to_numpy
from thera.lru import LRU
from thera.models.engine import Array, Engine, Head
from thera.models.model import Model, Shared

SAME = 1e-3  # the largest relative difference of two κ that count as one


class MixedEngine:
    """Two engines side by side: the features of both, and one last layer that weighs their fields."""

    def __init__(self, first: Engine, second: Engine, share: float) -> None:
        self.name, self.device, self.precision = first.name, first.device, first.precision
        self._engines = first, second
        weight, bias = _joined(first.head, second.head, (1 - share, share))
        self.head = copy.copy(first.head)
        self.head.__dict__.pop("by_channel", None)  # made from the weight when it is first needed
        self.head.fused, self.head.tables = False, LRU(TABLE_BYTES)
        self.head.weight, self.head.bias = first.asarray(weight), first.asarray(bias)
        self.head.components = np.concatenate([first.head.components, second.head.components], axis=1)

    def asarray(self, image: Array) -> Array:
        return self._engines[0].asarray(image)

    def features(self, image: Array) -> Array:
        both = [engine.features(image) for engine in self._engines]
        return array_namespace(both[0]).concat(both, axis=-1)


def _joined(first: Head, second: Head, shares: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """One last layer for the features of both, side by side: the amplitudes of both, then the phases."""
    heads = [
        (to_numpy(head.weight), to_numpy(head.bias), head.components.shape[1]) for head in (first, second)
    ]
    width, outputs = (sum(weight.shape[axis] for weight, _, _ in heads) for axis in (0, 1))
    phases = outputs - sum(c for _, _, c in heads)  # where they begin
    joined, bias = np.zeros((width, outputs), np.float32), np.zeros(outputs, np.float32)
    row = amplitude = 0
    for (weight, offset, c), share in zip(heads, shares, strict=True):
        split, rows = len(offset) - c, slice(row, row + len(weight))
        for place, part, factor in (
            (slice(amplitude, amplitude + split), slice(0, split), share),
            (slice(phases, phases + c), slice(split, None), 1.0),
        ):
            joined[rows, place] = factor * weight[:, part]
            bias[place] = factor * offset[part]
        row, amplitude, phases = row + len(weight), amplitude + split, phases + c
    return joined, bias


def mixed(clean: Model, restoring: Model, strength: float) -> Model:
    """The model whose fields are (1 - strength) · clean + strength · restoring."""
    one, two = clean.info, restoring.info
    if (one.spec.backbone, one.spec.variant) != (two.spec.backbone, two.spec.variant) or one.spec.published:
        raise ModelError(f"{two.name} and {one.name} are networks of different kinds: they cannot be mixed.")
    if not math.isclose(one.kappa, two.kappa, rel_tol=SAME):
        raise ModelError(
            f"{two.name} and {one.name} have different κ ({two.kappa:.4f} and {one.kappa:.4f}), so their"
            " fields cannot be mixed: leave --strength out, or train with optimiser.kappa_rate = 0."
        )
    metadata = two.metadata | {
        "components": one.components + two.components,
        "parameters": one.parameters + two.parameters,
        "name": f"{two.name} at {strength:.0%}",
        "members": 2,
    }
    shared = None
    if clean._shared is not None and restoring._shared is not None:
        one_make, two_make = clean._shared.make, restoring._shared.make

        def make(threads: int, calls: int) -> MixedEngine:
            return MixedEngine(one_make(threads, calls), two_make(threads, calls), strength)

        shared = Shared(restoring._shared.threads, make)
    return Model(MixedEngine(clean._engine, restoring._engine, strength), metadata, shared=shared)


def check_strength(strength: float) -> None:
    if not 0 <= strength <= 1:
        raise InvalidInput(f"--strength {strength:g} is not a share: give a number from 0 to 1.")
