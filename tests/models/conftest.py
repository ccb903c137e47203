from __future__ import annotations

import numpy as np
import pytest
import torch
from model_reference import DATA
from PIL import Image

torch.set_num_threads(1)  # tests run side by side already


@pytest.fixture
def photograph() -> np.ndarray:
    """64×96 pixels of a photograph in the public domain (NASA's portrait of Eileen Collins)."""
    with Image.open(DATA / "astronaut.png") as file:
        return np.asarray(file, np.float32) / 255
