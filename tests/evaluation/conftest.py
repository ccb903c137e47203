import numpy as np
import pytest


def _photograph(height=72, width=96, seed=0):
    rng = np.random.default_rng(seed)
    y, x = np.indices((height, width)) / min(height, width)
    red = 0.5 + 0.4 * np.sin(5 * x + 3 * y)
    green = 0.3 + 0.5 * ((x - 0.6) ** 2 + (y - 0.4) ** 2 < 0.08)
    blue = 0.5 + 0.3 * np.sign(np.sin(40 * x * (1 + y)))
    picture = np.stack([red, green, blue], -1) + rng.normal(0, 0.02, (height, width, 3))
    return np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)


@pytest.fixture
def photograph():
    """photograph(height, width, seed): 8 bits, H×W×3, with gradients, an edge, stripes, a little noise."""
    return _photograph


@pytest.fixture
def picture():
    return _photograph()


@pytest.fixture
def distorted(picture):
    """A pair in [0, 1]: what noise and blur made of a picture, and the picture."""
    target = picture / 255
    blurred = (target + np.roll(target, 1, 0) + np.roll(target, 1, 1)) / 3
    noise = np.random.default_rng(1).normal(0, 0.03, target.shape)
    return np.clip(blurred + noise, 0, 1), target
