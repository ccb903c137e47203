"""PyTorch on any device, at an explicit precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from thera.errors import InvalidInput
from thera.models.torch_engine import GRAPHS, GraphCache, TorchEngine, float32_products
from thera.networks import Spec, Thera


@pytest.fixture(scope="module")
def plus() -> Thera:
    torch.manual_seed(0)
    return Thera(Spec("edsr", "plus")).eval()


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).random((10, 12, 3), np.float32)


@pytest.mark.parametrize(("precision", "digits"), [("bf16", 8), ("f16", 11)])
@pytest.mark.parametrize("variant", ["air", "plus", "pro"])
def test_sixteen_bits_are_near_and_fields_stay_float32(variant, precision, digits, image):
    torch.manual_seed(0)
    net = Thera(Spec("edsr", variant)).eval()
    whole, fast = TorchEngine(net, "cpu"), TorchEngine(net, "cpu", precision)
    expected = whole.features(whole.asarray(image))
    features = fast.features(fast.asarray(image))
    assert {features.dtype, fast.head.weight.dtype, fast.asarray(image).dtype} == {torch.float32}
    # Tens of layers, each rounded to so many binary digits.
    assert 0 < (features - expected).abs().max() < 16 * 2.0**-digits * expected.abs().max()


def test_tf32_is_refused_where_there_is_none(plus):
    with pytest.raises(InvalidInput, match="CUDA"):
        TorchEngine(plus, "cpu", "tf32")


def test_the_engine_keeps_a_network_of_its_own(plus, image):
    engine = TorchEngine(plus, "cpu", "bf16")
    before = engine.features(engine.asarray(image))
    assert all(p.dtype == torch.float32 and p.requires_grad for p in plus.parameters())
    with torch.no_grad():
        plus.backbone.head.weight.add_(1)
    assert torch.equal(engine.features(engine.asarray(image)), before)
    with torch.no_grad():
        plus.backbone.head.weight.sub_(1)


def test_features_carry_no_gradient_history(plus, image):
    engine = TorchEngine(plus, "cpu")
    tensor = torch.from_numpy(image).requires_grad_()
    assert not engine.features(engine.asarray(tensor)).requires_grad


def switches() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("tf32", [True, False])
def test_tf32_is_set_for_the_network_and_set_back(tf32):
    before = switches()
    with float32_products(tf32=tf32):
        if hasattr(torch.backends.cudnn, "conv"):
            inside = (
                torch.backends.cuda.matmul.fp32_precision,
                torch.backends.cudnn.conv.fp32_precision,
            )
            assert inside == (("tf32", "tf32") if tf32 else ("ieee", "ieee"))
        else:
            assert switches() == (tf32, tf32)
    assert switches() == before
    with pytest.raises(KeyError), float32_products(tf32=not tf32):
        raise KeyError
    assert switches() == before


class CountedGraph:
    """Stands in for a CUDA graph where there is no CUDA."""

    made = 0

    def __init__(self, function, image):
        CountedGraph.made += 1
        if image.shape[0] == 13:
            raise RuntimeError("CUDA out of memory")
        self.function = function

    def __call__(self, image):
        return self.function(image) + 100


def test_a_shape_is_captured_when_it_comes_back_and_the_oldest_dropped(monkeypatch):
    monkeypatch.setattr("thera.models.torch_engine.Graph", CountedGraph)
    CountedGraph.made = 0
    cache = GraphCache(lambda image: image.sum())
    images = [torch.zeros(n, n, 3) for n in range(1, GRAPHS + 2)]
    assert [float(cache(image)) for image in images[:-1]] == [0] * GRAPHS  # first sight: as it is
    assert CountedGraph.made == 0
    assert [float(cache(image)) for image in images[:-1]] == [100] * GRAPHS
    assert [float(cache(image)) for image in images[:-1]] == [100] * GRAPHS
    assert CountedGraph.made == GRAPHS
    cache(images[-1])  # one shape more than is kept: the first goes
    assert float(cache(images[0])) == 0


def test_where_capturing_fails_the_network_runs_as_it_is(monkeypatch):
    monkeypatch.setattr("thera.models.torch_engine.Graph", CountedGraph)
    cache = GraphCache(lambda image: image.sum())
    CountedGraph.made = 0
    thirteen = torch.zeros(13, 13, 3)
    assert [float(cache(thirteen)) for _ in range(4)] == [0, 0, 0, 0]
    assert CountedGraph.made == 1  # and is not tried again
