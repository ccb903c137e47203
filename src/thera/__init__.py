"""Any-scale image resizing with neural heat fields."""

from thera._version import __version__

__all__ = ["__version__"]
