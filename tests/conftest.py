import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from thera.models import Model
from thera.models.engine import Head
from thera.networks.spec import Spec

# A suite that runs in the background ignores Ctrl-C, and so would the programs that it starts to interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(scope="session")
def model() -> Model:
    """A model with the Air's halo and bank but without its cost."""
    return Model(Blurs(), {**Spec("edsr", "air").to_dict(), "name": "blurs", "parameters": 0})
