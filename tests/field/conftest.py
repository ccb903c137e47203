"""Every claim about fields is made of NumPy and of torch arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


@pytest.fixture(params=["numpy", "torch"], scope="session")
def asarray(request: pytest.FixtureRequest) -> Callable[[np.ndarray], Any]:
    """Makes an array of the library under test."""
    if request.param == "numpy":
        return np.asarray
    torch = pytest.importorskip("torch")
    return torch.asarray
