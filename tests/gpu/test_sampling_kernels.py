"""Batches drawn on a GPU against those of the plain form on the CPU. Run on a CUDA machine: pytest -m gpu."""

import numpy as np
import pytest
import torch

from thera.training.config import Data
from thera.training.data import Sampler

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize(
    "config",
    [
        Data(patch=48, batch=64, scales=(1.2, 4)),
        Data(patch=64, batch=36, scales=(1.2, 6.5), spread="log", targets=4),
    ],
)
def test_batches_of_both_devices_are_the_same(config):
    generator = np.random.default_rng(0)
    images = [
        generator.integers(0, 256, (h, w, 3), np.uint8) for h, w in ((500, 640), (420, 900), (700, 417))
    ]
    plain, fused = Sampler(images, config), Sampler(images, config, "cuda")
    torch.manual_seed(0)
    u = plain.draw(config.batch)
    ours, theirs = fused.build({k: v.cuda() for k, v in u.items()}), plain.build(u)
    assert torch.equal(ours.target.cpu(), theirs.target)
    torch.testing.assert_close(ours.x.cpu(), theirs.x, rtol=0, atol=1e-6)
    torch.testing.assert_close(ours.t.cpu(), theirs.t)
    apart = 255 * (ours.source.cpu() - theirs.source).abs()
    assert apart.max() < 1.001  # half-way between two levels, how it was summed decides
    assert (apart > 1e-3).float().mean() < 1e-3
