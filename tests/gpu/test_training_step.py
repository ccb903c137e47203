"""A whole captured step of training with its options, and validation between steps. Run on a CUDA machine:
pytest -m gpu."""

import numpy as np
import pytest
import torch
from PIL import Image

from thera.evaluation.methods import load_methods
from thera.evaluation.protocol import degrade, score, unit
from thera.models.weights import save_safetensors
from thera.networks.spec import DECODERS
from thera.training.config import Config
from thera.training.data import Sampler
from thera.training.loop import Run
from thera.training.run import initial_network
from thera.training.validation import Validation

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def picture():
    y, x = np.mgrid[:400, :500] / 9.0
    return (127 + 90 * np.sin(x + np.cos(y))[..., None] * [1, 0.5, -1]).astype(np.uint8)


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
    torch.manual_seed(0)
    run = Run(config, Sampler([picture()], config.data, "cuda"), initial_network(config)[0], 40)
    for _ in range(20):
        run.step()
    assert run.descend.graph is not None
    first = run.report()
    for _ in range(20):
        run.step()
    assert 0 < run.report() < 1.5 * first


@pytest.mark.parametrize("variant", DECODERS)
def test_every_decoder_of_another_method_learns_in_the_captured_step(variant):
    scales = [4, 4] if variant == "sinc" else [1.2, 4]
    config = Config.parse(
        {
            "start": "edsr-air",
            "start_part": "backbone",
            "network": {"variant": variant},
            "data": {"patch": 48, "batch": 8, "scales": scales},
            "optimiser": {"rate": 3e-4, "warmup": 1},
        }
    )
    torch.manual_seed(0)
    run = Run(config, Sampler([picture()], config.data, "cuda"), initial_network(config)[0], 10**9)
    losses = []
    for _ in range(4):
        for _ in range(25):
            run.step()
        losses.append(run.report())  # raises if it is not finite
    assert run.descend.graph is not None
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("variant", ["air", "plus", "pro"])
def test_validation_between_steps_changes_nothing_and_is_what_evaluation_measures(variant, tmp_path):
    Image.fromarray(picture()[:180, :200]).save(tmp_path / "0.png")
    config = Config.parse(
        {
            "start": f"edsr-{variant}",
            "network": {"variant": variant},
            "data": {"patch": 48, "batch": 16},
            "optimiser": {"method": "muon", "rate": 1e-4, "warmup": 1},
        }
    )
    losses = []
    for check in (None, Validation([tmp_path], [2], "cuda")):
        torch.manual_seed(0)
        run = Run(config, Sampler([picture()], config.data, "cuda"), initial_network(config)[0], 30)
        losses.append([])
        for _ in range(3):
            for _ in range(10):
                run.step()
            losses[-1].append(run.report())
            scores = check(run.average, ensemble=True) if check else {}
    assert losses[0] == losses[1]
    save_safetensors(run.average, tmp_path / "weights.safetensors")
    options = {"device": "cuda", "engine": "torch"}
    (method,) = load_methods([f"It={tmp_path / 'weights.safetensors'}"], ensemble=True, **options)
    source, target = degrade(picture()[:180, :200], 2)
    measured = score(method.upscale(unit(source), target.shape[:2]), target, 2, "psnr_y")
    assert list(scores.values()) == [pytest.approx(measured, abs=1e-3)]
