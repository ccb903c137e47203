"""The rotation ensemble: the mean over the four quarter turns of an image."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Array = Any  # a NumPy or torch array; see array-api-compat

ROTATIONS = 4


def mean(arrays: Iterable[Array]) -> Array:
    """The mean of arrays of one shape, added up one at a time. It overwrites the first array.

    >>> import numpy as np
    >>> mean(np.full(2, value) for value in (1.0, 2.0, 6.0))
    array([3., 3.])
    """
    total: Array = None
    count = 0
    for array in arrays:
        if total is None:
            total = array
        else:
            total += array
        count += 1
    return total if count == 1 else total / count
