"""Models: `load` one, `encode` or `upscale` images with it; `export` and `convert` their files.

Only NumPy is imported with this package. The first model that needs ONNX Runtime or PyTorch imports it.
"""

from thera.models.export import convert, export
from thera.models.loading import Shipped, load, load_network, shipped
from thera.models.model import Info, Model
from thera.models.weights import load_safetensors, save_safetensors

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
