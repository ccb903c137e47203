import numpy as np
import pytest
import torch
from PIL import Image

from thera.training.config import Config


@pytest.fixture
def photos(tmp_path):
    """A folder of four small pictures with edges, ramps and texture at several scales."""
    folder = tmp_path / "photos"
    folder.mkdir()
    y, x = np.mgrid[:120, :140] / 10.0
    for i in range(4):
        waves = np.sin(x * (1 + i) + np.cos(y)) + np.sign(np.sin(y * 0.7 + i) * np.cos(x * 0.5))
        picture = 127 + 60 * np.stack([waves, np.roll(waves, 7, 0), np.roll(waves, 5, 1)], -1)
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(folder / f"{i}.png")
    return folder


@pytest.fixture
def small():
    """A run small enough for a test: tiny patches and few steps of the Air network."""

    def make(**sections):
        data = {"patch": 12, "batch": 2} | sections.pop("data", {})
        optimiser = {"steps": 6, "warmup": 1} | sections.pop("optimiser", {})
        return Config.parse({"data": data, "optimiser": optimiser, **sections})

    return make


@pytest.fixture(autouse=True)
def _one_thread():
    """Tests run side by side: more threads than cores only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
