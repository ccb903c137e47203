"""Models: `load` one, `encode` or `upscale` images with it; `export` and `convert` their files.

Names are imported when they are used. The first model that needs ONNX Runtime or PyTorch imports it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thera.models.loading import Shipped, load, load_network, shipped  # noqa: F401
    from thera.models.model import Info, Model  # noqa: F401
    from thera.models.onnx_export import convert, export  # noqa: F401
    from thera.models.weights import load_safetensors, save_safetensors  # noqa: F401

_HOMES = dict.fromkeys(("Info", "Model"), "model")
_HOMES |= dict.fromkeys(("Shipped", "load", "load_network", "shipped"), "loading")
_HOMES |= dict.fromkeys(("convert", "export"), "onnx_export")
_HOMES |= dict.fromkeys(("load_safetensors", "save_safetensors"), "weights")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'thera.models' has no attribute {name!r}")
    return getattr(import_module(f"thera.models.{_HOMES[name]}"), name)
