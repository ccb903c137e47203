"""Batches drawn by the kernels against those of the plain form, under Triton's interpreter."""

import json

import numpy as np
import pytest
import torch

from thera.training.config import Data
from thera.training.data import Sampler

pytest.importorskip("triton", reason="needs Triton: pip install 'thera[dev]' on Linux")

CASES = {
    "small": Data(patch=8, batch=4, scales=(1.2, 4), targets=1),
    "many targets": Data(patch=10, batch=3, scales=(1.0, 6.5), spread="log", targets=3),
}


def report() -> dict[str, dict[str, float]]:
    """The largest differences, in grey levels and in cells."""
    from thera.kernels import batch

    generator = np.random.default_rng(0)
    images = [
        generator.integers(0, 256, (h, w, 3), np.uint8) for h, w in ((130, 150), (110, 200), (160, 104))
    ]
    found = {}
    for name, config in CASES.items():
        sampler = Sampler(images, config)
        torch.manual_seed(1)
        u = sampler.draw(config.batch)
        plain = sampler.build(u)
        crops = sampler._crops(u)[:4]  # without what is read to be reduced first
        source, target, x = batch.draw(sampler.pixels, *crops, u["target"], sampler.largest)
        found[name] = {
            "source": 255 * (source - plain.source).abs().max().item(),
            "other": ((source - plain.source).abs() > 1e-6).float().mean().item(),
            "target": 255 * (target - plain.target).abs().max().item(),
            "x": (x - plain.x).abs().max().item(),
        }
    return found


@pytest.mark.parametrize("case", CASES)
def test_drawn_batches_equal_those_of_the_plain_form(found, case):
    assert found[case]["target"] < 1e-4 and found[case]["x"] < 1e-6
    # Where a sum is half-way between two levels, how it was summed decides.
    assert found[case]["source"] < 1.001 and found[case]["other"] < 0.002


if __name__ == "__main__":
    print(json.dumps(report()))
