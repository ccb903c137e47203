"""Training on pairs in the captured step, aligned or not. Run on a CUDA machine: pytest -m gpu."""

import numpy as np
import pytest
import torch

from thera.evaluation.pairs import PicturePair
from thera.evaluation.resize import imresize
from thera.training.config import Config
from thera.training.data import Sampler
from thera.training.loop import Run
from thera.training.pairs import MixedSampler, PairSampler
from thera.training.run import initial_network

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def pair():
    y, x = np.mgrid[:300, :360] / 9.0
    high = (127 + 90 * np.sin(x + np.cos(y))[..., None] * [1, 0.5, -1]).astype(np.uint8)
    return PicturePair(imresize(high, (100, 120)), high, np.full((100, 120), 255, np.uint8), (0.1, -0.2))


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_pairs_are_sampled_and_aligned_in_the_captured_step(align, share):
    config = Config.parse(
        {
            "start": "edsr-air",
            "data": {"patch": 32, "batch": 8, "paired": share},
            "degradation": {"blur": 0.5, "noise": 0.5},
            "objective": {"align": align},
            "optimiser": {"rate": 1e-4, "warmup": 1},
        }
    )
    torch.manual_seed(0)
    sampler = PairSampler([pair()], config.data, "cuda")
    if share < 1:
        pictures = Sampler([pair().high], config.data, "cuda", config.degradation)
        sampler = MixedSampler(sampler, pictures)
    run = Run(config, sampler, initial_network(config)[0], 40)
    for _ in range(20):
        run.step()
    assert run.descend.graph is not None
    first = run.report()
    for _ in range(20):
        run.step()
    assert 0 < run.report() < 1.5 * first
    if align:
        assert run.aligner.last.bias.abs().max() > 0  # it has learnt something
