"""The protocol of an engine, which runs a network: ONNX Runtime or PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol, runtime_checkable

from thera.errors import InvalidInput
from thera.field.head import Head as Head

Array = Any  # a NumPy array or a PyTorch tensor

PRECISIONS = ("f32", "tf32", "bf16", "f16")


def check_precision(precision: str) -> None:
    if precision not in PRECISIONS:
        raise InvalidInput(f"There is no precision {precision!r}: choose one of {', '.join(PRECISIONS)}.")


class Engine(Protocol):
    """Computes the features of images on one device. Its arrays belong to the library it runs on."""

    name: str
    device: str
    precision: str
    head: Head

    def asarray(self, image: Array) -> Array:
        """A float32 copy of `image` on the engine's device."""

    def features(self, image: Array) -> Array:
        """The last layer's input, H×W×C, for an image H×W×3 in [0, 1] made by `asarray`."""


@runtime_checkable
class ReplayEngine(Engine, Protocol):
    """An engine that can replay a whole computation in one launch."""

    def compute(self, image: Array) -> Array:
        """The same as `features`, but never replayed: for use inside a function that is."""

    def replay(
        self, key: Hashable | None, function: Callable[[Array], Array], image: Array, outputs: int = 0
    ) -> Array:
        """function(asarray(image)), replayed if that is faster, for an array or a tensor on any device.

        A `key` stands for one function and one shape; None means that the function will not be called again.
        `outputs` is the number of pixels that it returns.
        """
