"""The networks, in PyTorch: what turns an image into the parameters of its heat fields."""

from thera.networks.spec import Spec
from thera.networks.thera import Thera

__all__ = ["Spec", "Thera"]
