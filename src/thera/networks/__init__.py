"""The networks, in PyTorch: from an image to the parameters of its heat fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thera.networks.spec import Spec

if TYPE_CHECKING:
    from thera.networks.thera import Thera

__all__ = ["Spec", "Thera"]


def __getattr__(name: str) -> Any:
    """Imports PyTorch only when `Thera` is used: engines without PyTorch need `Spec`, too."""
    if name == "Thera":
        from thera.networks.thera import Thera

        return Thera
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
