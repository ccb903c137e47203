"""The PyTorch engine on a CUDA device: `pytest -m gpu`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from thera.models.torch_engine import GRAPH_PIXELS, Graph, TorchEngine
from thera.networks import Spec, Thera

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

VARIANTS = ("air", "plus", "pro")


def network(variant: str) -> Thera:
    torch.manual_seed(0)
    return Thera(Spec("edsr", variant)).eval()


def picture(height: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((height, width, 3), np.float32))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("precision", "tolerance"), [("f32", 2e-5), ("tf32", 5e-3), ("bf16", 5e-2), ("f16", 5e-3)]
)
def test_cuda_agrees_with_the_cpu(variant, precision, tolerance):
    net = network(variant)
    cpu, cuda = TorchEngine(net, "cpu"), TorchEngine(net, "cuda", precision)
    for size in ((1, 1), (5, 3), (20, 27), (48, 48)):
        image = picture(*size)
        expected = cpu.features(image)
        error = (cuda.features(cuda.asarray(image)).cpu() - expected).abs().max()
        assert error < tolerance * expected.abs().max(), size


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_replayed_graph_computes_what_the_network_does(variant):
    engine = TorchEngine(network(variant), "cuda")
    for seed in range(5):  # plain, captured, replayed
        image = engine.asarray(picture(24, 33, seed))
        plain = engine._compute(image)
        assert torch.allclose(engine.features(image), plain, rtol=1e-5, atol=1e-5)
    assert isinstance(engine._graphs._graphs[24, 33, 3], Graph)


def test_results_of_a_graph_are_not_overwritten_by_the_next():
    engine = TorchEngine(network("air"), "cuda")
    images = [engine.asarray(picture(16, 16, seed)) for seed in range(4)]
    results = [engine.features(image) for image in images]
    for image, result in zip(images, results, strict=True):
        assert torch.allclose(result, engine._compute(image), rtol=1e-5, atol=1e-5)


def test_a_graph_is_replayed_from_another_stream_in_order():
    engine = TorchEngine(network("air"), "cuda")
    images = [engine.asarray(picture(16, 16, seed)) for seed in range(8)]
    expected = [engine._compute(image) for image in images]
    for _ in range(3):
        engine.features(images[0])
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    results = []
    for i, image in enumerate(images):
        with torch.cuda.stream(streams[i % 2]):
            results.append(engine.features(image))
    torch.cuda.synchronize()
    for result, wanted in zip(results, expected, strict=True):
        assert torch.allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_large_images_are_not_captured():
    engine = TorchEngine(network("air"), "cuda")
    side = int(GRAPH_PIXELS**0.5) + 1
    for _ in range(3):
        engine.features(engine.asarray(picture(side, side)))
    assert not engine._graphs._graphs
