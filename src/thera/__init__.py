"""Any-scale image resizing with neural heat fields.

>>> import thera
>>> thera.upscale(image, 2.5)  # doctest: +SKIP
>>> field = thera.load("edsr-air").encode(pixels)  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from thera._version import __version__

if TYPE_CHECKING:
    from thera.errors import TheraError
    from thera.field import (
        Box,
        Butterworth,
        Filter,
        Gaussian,
        HeatField,
        Ideal,
        Lanczos,
        Point,
        Seamless,
        Transfer,
    )
    from thera.imaging.api import upscale
    from thera.models import Model, load

_HOMES = {
    "Model": "thera.models",
    "load": "thera.models",
    "upscale": "thera.imaging.api",
    "TheraError": "thera.errors",
}

__all__ = [
    "Box",
    "Butterworth",
    "Filter",
    "Gaussian",
    "HeatField",
    "Ideal",
    "Lanczos",
    "Model",
    "Point",
    "Seamless",
    "TheraError",
    "Transfer",
    "__version__",
    "load",
    "upscale",
]


def __getattr__(name: str) -> Any:
    """Names are imported when they are used, so that `import thera` costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'thera' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "thera.field")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
