"""Degradations in the captured step against the same on the CPU and without a graph. Run on a CUDA machine:
pytest -m gpu."""

import numpy as np
import pytest
import torch

from thera.models.cuda_graph import Captured
from thera.training.config import Config
from thera.training.data import Sampler
from thera.training.jpeg import jpeg
from thera.training.loop import Run
from thera.training.run import initial_network

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TABLE = {
    "clean": 0.2,
    "kernels": ["bicubic", "box", "bilinear", "lanczos", "area"],
    "blur": 0.5,
    "noise": 0.5,
    "sharpen": 0.3,
    "jpeg": 0.7,
    "jpeg_twice": 0.3,
}


def picture(height=420, width=640):
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width] / 9.0
    waves = 127 + 90 * np.sin(x + np.cos(y))[..., None] * [1, 0.5, -1]
    return (waves + rng.integers(-20, 21, waves.shape)).clip(0, 255).astype(np.uint8)


def config(variant="air"):
    return Config.parse(
        {
            "start": f"edsr-{variant}",
            "network": {"variant": variant},
            "data": {"patch": 48, "batch": 32, "scales": [1.2, 4.0]},
            "degradation": TABLE,
            "teacher": {"model": f"edsr-{variant}", "share": 0.5, "kept": 8, "reuse": 2},
            "optimiser": {"method": "muon", "rate": 1e-5, "warmup": 1},
        }
    )


def test_jpeg_on_a_gpu_is_that_of_the_cpu_bit_for_bit():
    x = torch.from_numpy(picture(64, 96)).permute(2, 0, 1).float()[None].repeat(4, 1, 1, 1)
    quality, halved = torch.tensor([30, 55, 80, 98]), torch.tensor([True, False, True, False])
    assert torch.equal(jpeg(x.cuda(), quality.cuda(), halved.cuda()).cpu(), jpeg(x, quality, halved))


def test_a_captured_batch_is_the_eager_one_and_that_of_the_cpu():
    c = config()
    plain = Sampler([picture()], c.data, "cpu", c.degradation)
    fused = Sampler([picture()], c.data, "cuda", c.degradation)
    torch.manual_seed(0)
    u = plain.draw(32)
    on_gpu = {k: v.cuda() for k, v in u.items()}
    captured = Captured(lambda: fused.build(on_gpu), torch.device("cuda"))
    for _ in range(5):
        batch = captured()
    assert captured.graph is not None
    eager, theirs = fused.build(on_gpu), plain.build(u)
    assert torch.equal(batch.clean, eager.clean) and torch.equal(batch.target, eager.target)
    for other in (eager.source.cpu(), theirs.source):
        apart = 255 * (batch.source.cpu() - other).abs()
        # Half-way between two levels the order of a sum decides, and JPEG may spread that over a block.
        assert (apart > 0.5).float().mean() < 0.03 and apart.mean() < 0.05


@pytest.mark.parametrize("variant", ["air", "plus"])
def test_a_captured_run_with_degradations_is_the_eager_run(variant):
    c, losses = config(variant), []
    for whole in (True, False):
        torch.manual_seed(0)
        sampler = Sampler([picture()], c.data, "cuda", c.degradation)
        run = Run(c, sampler, initial_network(c)[0], 40)
        run.descend.on_cuda = run.distillation._teach.on_cuda = whole
        losses.append([])
        for _ in range(4):
            for _ in range(10):
                run.step()
            losses[-1].append(run.report())
        assert (run.descend.graph is not None) == whole
    assert losses[0] == pytest.approx(losses[1], rel=0.02)  # the same numbers are drawn
