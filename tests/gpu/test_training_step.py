"""A whole captured step of training, with everything that a configuration can ask for. Run on a CUDA machine:
pytest -m gpu."""

import numpy as np
import pytest
import torch

from thera.training.config import Config
from thera.training.data import Sampler
from thera.training.loop import Run
from thera.training.run import prepare

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("variant", ["air", "plus"])
def test_a_teacher_and_the_ensemble_go_into_the_captured_step(variant):
    config = Config.parse(
        {
            "start": f"edsr-{variant}",
            "network": {"variant": variant},
            "data": {"patch": 48, "batch": 16, "targets": 2},
            "objective": {"loss": "rms", "ensemble_weight": 0.5},
            "teacher": {"model": "edsr-air", "kept": 8, "reuse": 2},
            "optimiser": {"method": "muon", "rate": 1e-5, "steps": 40, "warmup": 1},
        }
    )
    y, x = np.mgrid[:400, :500] / 9.0
    picture = (127 + 90 * np.sin(x + np.cos(y))[..., None] * [1, 0.5, -1]).astype(np.uint8)
    torch.manual_seed(0)
    run = Run(config, Sampler([picture], config.data, "cuda"), prepare(config)[0], 40)
    for _ in range(20):
        run.step()
    assert run.descend.graph is not None
    first = run.report()
    for _ in range(20):
        run.step()
    assert 0 < run.report() < 1.5 * first
