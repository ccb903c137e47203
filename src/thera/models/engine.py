"""What runs a network: one small protocol, met by ONNX Runtime and by PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Array = Any  # a NumPy array or a PyTorch tensor

PRECISIONS = ("f32", "tf32", "bf16", "f16")


@dataclass(frozen=True)
class Head:
    """What all fields of a model share: the last layer, the frequency bank and κ."""

    weight: Array  # C×4c
    bias: Array  # 4c
    components: np.ndarray  # 2×c, on the host whatever the device: tables are made of it there
    kappa: float


class Engine(Protocol):
    """Computes the features of an image on one device; arrays are of the engine's own library."""

    name: str
    device: str
    precision: str
    head: Head

    def asarray(self, image: Array) -> Array:
        """A float32 copy of `image` on the engine's device."""

    def features(self, image: Array) -> Array:
        """H×W×3 in [0, 1], from `asarray` → H×W×C, what the last layer reads."""
