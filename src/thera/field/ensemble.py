"""The rotation ensemble: the mean of what the fields of an image, turned by quarters, show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Array = Any  # a NumPy or torch array; see array-api-compat

ROTATIONS = 4


def mean(readings: Iterable[Array]) -> Array:
    """The mean of arrays of one shape, added up one at a time. The first array is written to.

    >>> import numpy as np
    >>> mean(np.full(2, value) for value in (1.0, 2.0, 6.0))
    array([3., 3.])
    """
    total: Array = None
    count = 0
    for values in readings:
        if total is None:
            total = values
        else:
            total += values
        count += 1
    return total if count == 1 else total / count
