"""The array library of an array."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np


def array_namespace(*arrays: Any) -> Any:
    """NumPy itself, which follows the array API standard since 2.1, or array-api-compat's wrapper of another.

    The wrapper of NumPy would import NumPy's test and Fortran tools, which takes 50 ms at every start.
    """
    if all(isinstance(array, np.ndarray | np.generic) for array in arrays):
        return np
    return array_api_compat.array_namespace(*arrays)
