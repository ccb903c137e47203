"""The networks, in PyTorch: from an image to the parameters of its heat fields; other methods' decoders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thera.networks.spec import Spec

if TYPE_CHECKING:
    from thera.networks.network import Network
    from thera.networks.thera import Thera

__all__ = ["Network", "Spec", "Thera", "make_network"]


def make_network(spec: Spec) -> Network:
    """A network with random weights."""
    from thera.networks.decoders import Decoded
    from thera.networks.thera import Thera

    return Thera(spec) if spec.heat else Decoded(spec)


def __getattr__(name: str) -> Any:
    """Imports PyTorch only when a network is used: engines without PyTorch need `Spec`, too."""
    if name in ("Network", "Thera"):
        from importlib import import_module

        return getattr(import_module(f"thera.networks.{name.lower()}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
