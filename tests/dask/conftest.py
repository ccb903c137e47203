"""A picture, and a model that costs nothing."""

import numpy as np
import pytest

from thera.dask import tasks
from thera.models import Model


@pytest.fixture
def cheap(request, far_sighted, monkeypatch) -> Model:
    """In this process every name of a model means this one, of Air's reach or of a variant's."""
    model = far_sighted(getattr(request, "param", "air"))
    monkeypatch.setattr(tasks, "_load", lambda name: model)
    return model


@pytest.fixture(scope="session")
def photo() -> np.ndarray:
    """300×290×3 floats in [0, 1]: shading, stripes, a disc and a little noise."""
    rows, cols = np.mgrid[:300, :290] / 300.0
    image = 0.3 + 0.3 * np.stack([rows, cols, 1 - rows], axis=2)
    image[(rows - 0.5) ** 2 + (cols - 0.45) ** 2 < 0.06] = (0.9, 0.3, 0.1)
    image[200:260, 100:200:3] = (0.1, 0.9, 0.5)
    image += np.random.default_rng(0).normal(0, 0.02, image.shape)
    return np.clip(image, 0, 1).astype(np.float32)
