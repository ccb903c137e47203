"""Models: `load` one, `encode` or `upscale` images with it; `export` and `convert` their files.

Names are imported when they are used. The first model that needs ONNX Runtime or PyTorch imports it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thera.models.loading import Shipped, load, load_network, shipped
    from thera.models.model import Info, Model
    from thera.models.onnx_export import convert, export
    from thera.models.weights import load_safetensors, save_safetensors

_HOMES = {
    "Info": "model",
    "Model": "model",
    "Shipped": "loading",
    "convert": "onnx_export",
    "export": "onnx_export",
    "load": "loading",
    "load_network": "loading",
    "load_safetensors": "weights",
    "save_safetensors": "weights",
    "shipped": "loading",
}

__all__ = [
    "Info",
    "Model",
    "Shipped",
    "convert",
    "export",
    "load",
    "load_network",
    "load_safetensors",
    "save_safetensors",
    "shipped",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'thera.models' has no attribute {name!r}")
    return getattr(import_module(f"thera.models.{_HOMES[name]}"), name)
