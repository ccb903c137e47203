"""Pictures, and a model that sees as far as a network does and costs nothing."""

from collections.abc import Callable

import numpy as np
import pytest

from thera.dask import tasks
from thera.models import Model
from thera.models.engine import Head
from thera.networks.spec import Spec


class Surroundings:
    """An engine of three features: the pixel, the mean of all that a network sees around it, zeros outside,
    and the mean of the window that it lies in."""

    name, device, precision = "surroundings", "cpu", "f32"

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        rng = np.random.default_rng(5)
        amplitude, phase = 0.3 * rng.standard_normal((9, 96)), 5 * rng.standard_normal((9, 32))
        weight = np.concatenate([amplitude, phase], axis=1).astype(np.float32)
        self.head = Head(weight, np.zeros(128, np.float32), rng.uniform(-10, 10, (2, 32)), 0.03)

    def asarray(self, image: np.ndarray) -> np.ndarray:
        return np.array(image, np.float32)

    def features(self, image: np.ndarray) -> np.ndarray:
        reach, window = self.spec.halo - self.spec.alignment + 1, self.spec.alignment
        around = means(image, lambda at: (at - reach, at + reach + 1), 2 * reach + 1)
        inside = means(image, lambda at: (at // window * window, at // window * window + window), window)
        return np.concatenate([image - 0.5, around, inside], axis=2).astype(np.float32)


def means(
    image: np.ndarray, span: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], length: int
) -> np.ndarray:
    """Means over `length` pixels down and across, from and to where `span` says for each, zeros outside."""
    total = image.astype(np.float64)
    for axis in (0, 1):
        sums = np.insert(np.cumsum(total, axis=axis), 0, 0, axis=axis)
        low, high = (np.clip(at, 0, total.shape[axis]) for at in span(np.arange(total.shape[axis])))
        total = np.take(sums, high, axis) - np.take(sums, low, axis)
    return total / length**2


@pytest.fixture
def cheap(request, monkeypatch) -> Model:
    """In this process every name of a model means this one, of Air's reach or of a variant's."""
    spec = Spec("edsr", getattr(request, "param", "air"))
    model = Model(Surroundings(spec), {**spec.to_dict(), "name": "surroundings", "parameters": 0})
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
