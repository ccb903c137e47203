import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable

import numpy as np
import pytest

from thera.models import Model
from thera.models.engine import Head
from thera.networks.spec import Spec

# A suite that runs in the background ignores Ctrl-C, and so would the programs that it starts to interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Which engine is fastest is measured once for all tests, and not kept in the caches of whoever runs them.
os.environ.setdefault("THERA_TESTS", os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid())))
os.environ["XDG_CACHE_HOME"] = os.path.join(tempfile.gettempdir(), f"thera-tests-{os.environ['THERA_TESTS']}")


@pytest.fixture(scope="module")
def found(request) -> dict:
    """What the test file prints when run as a program under Triton's interpreter, which has to be chosen
    before Triton is imported: hence a process of its own."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    run = subprocess.run([sys.executable, request.path], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


class Blurs:
    """An engine made of two zero-padded 3×3 averages: borders and neighbours matter, as in a network."""

    name, device, precision = "blurs", "cpu", "f32"

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        components = rng.uniform(-10, 10, (2, 32))
        weight = np.concatenate([0.05 * rng.standard_normal((9, 96)), rng.standard_normal((9, 32))], axis=1)
        self.head = Head(weight.astype(np.float32), np.zeros(128, np.float32), components, 0.03)

    def asarray(self, image: np.ndarray) -> np.ndarray:
        return np.array(image, np.float32)

    def features(self, image: np.ndarray) -> np.ndarray:
        def blurred(x: np.ndarray) -> np.ndarray:
            padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
            rows, cols = x.shape[:2]
            weights = np.arange(1, 10, dtype=np.float32).reshape(3, 3) / 45
            return sum(weights[i, j] * padded[i : i + rows, j : j + cols] for i in range(3) for j in range(3))

        once = np.tanh(3 * blurred(image) - 1)
        return np.concatenate([image - 0.5, once, blurred(once)], axis=2)


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


@pytest.fixture(scope="session")
def far_sighted() -> Callable[[str], Model]:
    """Models that see as far as a network of each variant does, and cost nothing."""

    def make(variant: str) -> Model:
        spec = Spec("edsr", variant)
        return Model(Surroundings(spec), {**spec.to_dict(), "name": "surroundings", "parameters": 0})

    return make


@pytest.fixture(scope="session")
def model() -> Model:
    """A model with the Air's halo and bank but without its cost."""
    return Model(Blurs(), {**Spec("edsr", "air").to_dict(), "name": "blurs", "parameters": 0})


@pytest.fixture
def evaluate() -> Callable[..., dict[float, float]]:
    """The mean of a metric over images for each scale, by the protocol's own functions."""
    from thera.evaluation.protocol import degrade, score, unit

    def measure(upscale, images, scales, metric="psnr_y"):
        def one(image, scale):
            source, target = degrade(image, scale)
            return score(upscale(unit(source), target.shape[:2]), target, scale, metric)

        return {scale: float(np.mean([one(image, scale) for image in images])) for scale in scales}

    return measure
