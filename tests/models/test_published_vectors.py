"""All six published models, in both engines, compute what the published code computes."""

from __future__ import annotations

import numpy as np
import pytest
from model_reference import PUBLISHED, onnx_model, torch_model, vectors

from thera.models import Model

# These random weights make phases of hundreds of radians, which magnify rounding: two float32 programs that
# sum in different orders differ by 1.8e-3 of the standard deviation at the worst pixel, 2e-4 on average.
WORST, TYPICAL = 4e-3, 4e-4
ENCODING = 3e-4  # the features' worst; 1.4e-4 is measured


def on_a_border(cells: int, size: int) -> np.ndarray:
    """Output pixels whose centre lies between two cells: which one they read is an accident of rounding."""
    centre = (np.arange(size) + 0.5) * cells / size
    return np.abs(centre - np.round(centre)) < 1e-4


def assert_agrees(model: Model, name: str, sizes: int = 5) -> None:
    """Features and outputs of some sizes, with and without the ensemble, are those of the published code."""
    data = vectors(name)
    encoding = np.asarray(model.encode(data["source"]).features)[::4, ::5]
    assert np.abs(encoding - data["encoding"]).max() < ENCODING * data["encoding"].std()

    outputs = [key for key in data if key.startswith("out_")]
    assert len(outputs) == 10
    for key in outputs[: 2 * sizes]:
        _, size, ensemble = key.split("_")
        H, W = map(int, size.split("x"))
        ours = model.upscale(data["source"], size=(H, W), ensemble=ensemble == "ens1")
        inside = ~(on_a_border(20, H)[:, None] | on_a_border(27, W)[None, :])
        assert inside.mean() > 0.9
        error = np.abs(ours - data[key])[inside] / data[key].std()
        assert error.max() < WORST, key
        assert np.sqrt(np.mean(error**2)) < TYPICAL, key


@pytest.mark.parametrize("name", PUBLISHED)
def test_torch_agrees_with_the_published_code(name):
    assert_agrees(torch_model(name), name)


@pytest.mark.parametrize("name", PUBLISHED)
def test_onnx_agrees_with_the_published_code_and_with_torch_from_one_pixel_up(name):
    model = onnx_model(name)  # exported once for both claims: that takes longest
    assert_agrees(model, name, sizes=1)  # the others are rendered by the same code as above
    torch = torch_model(name)
    for size in [(1, 1), (1, 7), (5, 3), (8, 8), (20, 27), (33, 64)]:
        image = np.random.default_rng(0).random((*size, 3), np.float32)
        expected = torch.encode(image).features.numpy()
        # One million sums in another order: 1e-6 of their size is measured.
        assert np.abs(model.encode(image).features - expected).max() < 1e-4 * expected.std(), size
