"""Filters by name."""

from __future__ import annotations

from typing import Literal

from thera.errors import InvalidInput
from thera.field import Box, Butterworth, Filter, Gaussian, Ideal, Point, Seamless

FilterName = Literal["gaussian", "box", "butterworth", "ideal", "none"]


def filter_of(shape: str | None, sharpness: float) -> Filter | None:
    """The filter of a shape and a sharpness; None stands for the model's own.

    >>> filter_of("box", 2)
    Box(width=0.5)
    """
    if not 0.05 <= sharpness <= 20:
        raise InvalidInput(f"A sharpness of {sharpness:g} cannot be used: give a number from 0.05 to 20.")
    if shape is None and sharpness == 1:
        return None
    if shape == "box":
        return Box(1 / sharpness)
    if shape == "butterworth":
        return Butterworth(cutoff=sharpness)
    if shape == "ideal":
        return Ideal(sharpness)
    if shape == "none":
        return Point()
    return Seamless(1 / sharpness) if shape is None else Gaussian(1 / sharpness)


def page_filter(name: FilterName, sharpness: float) -> Filter | None:
    """The filter that a page calls by this name: its Gaussian is the model's own, without seams."""
    return filter_of(None if name == "gaussian" else name, sharpness)
