"""What runs a network: one small protocol, met by ONNX Runtime and by PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol, runtime_checkable

from thera.field.head import Head as Head

Array = Any  # a NumPy array or a PyTorch tensor

PRECISIONS = ("f32", "tf32", "bf16", "f16")


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


@runtime_checkable
class ReplayEngine(Engine, Protocol):
    """An engine that can replay all of a computation in one launch."""

    def compute(self, image: Array) -> Array:
        """What `features` gives, step by step: what a function to be replayed calls."""

    def replay(
        self, key: Hashable | None, function: Callable[[Array], Array], image: Array, outputs: int = 0
    ) -> Array:
        """function(image), replayed where that pays: the same `key` for the same function and shape, None for
        one that does not come back; `outputs` is the number of pixels it gives. The image may be of either
        library and on any device; the function gets it as `asarray` makes it."""
