"""The array library of an array: the one place that asks."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np


def array_namespace(*arrays: Any) -> Any:
    """NumPy itself, which speaks the standard since 2.1, or what array-api-compat gives for the others.

    Its wrapper around NumPy would import NumPy's test and Fortran tools: 50 ms of every start.
    """
    if all(isinstance(array, np.ndarray | np.generic) for array in arrays):
        return np
    return array_api_compat.array_namespace(*arrays)
