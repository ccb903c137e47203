"""The heat field of an image, and everything that reads one, for NumPy and torch arrays alike."""

from thera.field.heatfield import HeatField
from thera.field.psf import Box, Butterworth, Filter, Gaussian, Ideal, Lanczos, Point, Seamless, Transfer

__all__ = [
    "Box",
    "Butterworth",
    "Filter",
    "Gaussian",
    "HeatField",
    "Ideal",
    "Lanczos",
    "Point",
    "Seamless",
    "Transfer",
]
