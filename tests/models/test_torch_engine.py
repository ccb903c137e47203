"""PyTorch on any device, at an explicit precision."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from thera.errors import InvalidInput
from thera.field import Box, Gaussian, HeatField
from thera.models import Model, load
from thera.models.cuda import CudaHead, float32_products
from thera.models.cuda_graph import GRAPHS, Graph, GraphCache
from thera.models.torch_engine import TorchEngine, prepared, usual_precision
from thera.models.weights import describe
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


def test_threads_that_turn_the_switches_leave_them_as_they_were():
    before = switches()

    def turn(tf32: bool) -> None:
        for _ in range(50):
            with float32_products(tf32=tf32), float32_products(tf32=not tf32):
                sleep(1e-5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(turn, [True, False, True, False]))
    assert switches() == before


class StandIn(Graph):
    """A graph where there is no CUDA: computed twice before it is captured, then from what it holds alone."""

    made = 0

    def __init__(self, function, image):
        StandIn.made += 1
        if image.shape[0] == 13:
            raise RuntimeError("CUDA out of memory")
        self.function = function
        for _ in range(2):
            function(image)

    def __call__(self, image):
        with pytest.MonkeyPatch.context() as patch:  # a graph cannot be given numbers by the host
            patch.setattr("thera.models.model.plan", lambda *_: pytest.fail("planned in a graph"))
            patch.setattr("thera.field.tables.send", lambda *_: pytest.fail("sent in a graph"))
            result = self.function(image.clone())
            return result + 100 if isinstance(result, torch.Tensor) else (result[0] + 100, result[1])


@pytest.fixture
def graphs(monkeypatch):
    StandIn.made = 0
    cache = GraphCache(torch.clone)
    monkeypatch.setattr(cache, "_capture", StandIn)
    monkeypatch.setattr(cache, "_replay", StandIn.__call__)
    return cache


def test_what_comes_back_is_captured_and_the_oldest_dropped(graphs):
    images = [torch.zeros(n, n, 3) for n in range(1, GRAPHS + 2)]

    def run(image):
        return float(graphs(image.shape, torch.sum, image))

    assert [run(image) for image in images[:-1]] == [0] * GRAPHS  # first sight: as it is
    assert StandIn.made == 0
    assert [run(image) for image in images[:-1]] == [100] * GRAPHS
    assert [run(image) for image in images[:-1]] == [100] * GRAPHS
    assert StandIn.made == GRAPHS
    run(images[-1])  # one more than is kept: the first goes
    assert run(images[0]) == 0


def test_where_capturing_fails_the_function_runs_as_it_is(graphs):
    thirteen = torch.zeros(13, 13, 3)
    assert [float(graphs("key", torch.sum, thirteen)) for _ in range(4)] == [0, 0, 0, 0]
    assert StandIn.made == 1  # and is not tried again


@pytest.fixture
def replaying(plus, graphs) -> Model:
    """A model on the CPU that captures as one on CUDA does."""
    engine = TorchEngine(plus, "cpu")
    engine._graphs = graphs
    return Model(engine, describe(plus))


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("size", [(20, 24), (23, 31), (4, 5)])
def test_upscaling_is_captured_whole_with_all_its_tables(size, ensemble, plus, replaying, image):
    plain = Model(TorchEngine(plus, "cpu"), describe(plus))
    for seed in range(4):
        given = np.random.default_rng(seed).random(image.shape, np.float32)
        expected = plain.upscale(given, size=size, ensemble=ensemble)
        result = replaying.upscale(given, size=size, ensemble=ensemble)
        np.testing.assert_allclose(result - (100 if seed else 0), expected, atol=2e-5)  # 100 has fewer digits
    assert StandIn.made == 1
    again = replaying.upscale(given, size=list(size), ensemble=ensemble)  # a list is a size too
    np.testing.assert_allclose(again - 100, expected, atol=2e-5)


def test_each_size_filter_and_ensemble_has_a_graph_of_its_own(replaying, image):
    requests = [
        {"scale": 2},
        {"scale": 3},
        {"scale": 2, "psf": Box()},
        {"scale": 2, "psf": Gaussian(bandwidth=0.5)},
        {"scale": 2, "ensemble": True},
    ]
    for _ in range(3):
        for request in requests:
            replaying.upscale(image, **request)
    assert StandIn.made == len(requests)


def test_a_function_as_filter_is_not_captured(replaying, image):
    for _ in range(3):
        replaying.upscale(image, scale=2, psf=lambda nu1, nu2: np.exp(-(nu1**2) - nu2**2))
    assert StandIn.made == 0


def guarded(net: Thera, graphs: GraphCache | None = None) -> Model:
    """A model on the CPU that computes in f16 as one on CUDA does: what is too large for it in float32."""
    engine = TorchEngine(net, "cpu", "f16")
    engine._wide, engine._graphs = prepared(net, torch.device("cpu"), None), graphs
    return Model(engine, describe(net))


@pytest.fixture(scope="module", params=["air", "plus", "pro"])
def beyond_float16(request) -> Thera:
    """A network whose activations are beyond 65504."""
    torch.manual_seed(0)
    net = Thera(Spec("edsr", request.param)).eval()
    with torch.no_grad():
        net.backbone.head.weight.mul_(2**20)
        net.backbone.head.bias.mul_(2**20)
        if request.param == "air":
            net.head.weight.mul_(2**-20)
    return net


@pytest.mark.parametrize("ensemble", [False, True])
def test_activations_beyond_float16_are_computed_again_in_float32(beyond_float16, ensemble, image):
    expected = Model(TorchEngine(beyond_float16, "cpu"), describe(beyond_float16)).upscale(
        image, scale=2, ensemble=ensemble
    )
    unguarded = Model(TorchEngine(beyond_float16, "cpu", "f16"), describe(beyond_float16))
    assert not np.isfinite(unguarded.upscale(image, scale=2, ensemble=ensemble)).all()
    result = guarded(beyond_float16).upscale(image, scale=2, ensemble=ensemble)
    assert np.isfinite(expected).all() and np.array_equal(result, expected)


def test_a_replayed_graph_whose_activations_are_beyond_float16_is_computed_again(plus, graphs, image):
    """The same network and graph: it depends on the image alone."""
    model, bright = guarded(plus, graphs), image * np.float32(1e6)
    wanted = Model(TorchEngine(plus, "cpu"), describe(plus)).upscale(bright, scale=2)
    for _ in range(3):
        near = model.upscale(image, scale=2)
        assert np.array_equal(model.upscale(bright, scale=2), wanted)
    assert StandIn.made == 1 and near.min() > 90


def test_nothing_is_computed_again_while_activations_are_finite(plus, image):
    model = guarded(plus)
    model._engine._wide = lambda _: pytest.fail("computed again")
    assert np.isfinite(model.upscale(image, scale=2)).all()


@pytest.mark.parametrize(
    ("capability", "precision"), [((6, 1), "f32"), ((7, 0), "f16"), ((8, 6), "f16"), ((9, 0), "f16")]
)
def test_auto_is_f16_where_a_gpu_is_fast_at_it_and_f32_on_cpus(capability, precision, plus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert usual_precision(torch.device("cuda")) == precision
    assert usual_precision(torch.device("cpu")) == TorchEngine(plus, "cpu", "auto").precision == "f32"
    for engine in ("auto", "onnx", "torch"):
        assert load("edsr-air", engine, "cpu").info.precision == "f32"


def test_what_is_large_is_not_captured(replaying, image, monkeypatch):
    for limit, value in (("GRAPH_PIXELS", 119), ("GRAPH_OUTPUT", 479)):  # 10×12 pixels in, 20×24 out
        with monkeypatch.context() as patch:
            patch.setattr(f"thera.models.torch_engine.{limit}", value)
            for _ in range(3):
                replaying.upscale(image, scale=2)
    assert StandIn.made == 0
    for _ in range(2):
        replaying.upscale(image, scale=2)
    assert StandIn.made == 1


class CudaHeadOnCPU(CudaHead):
    place = None


def to_tf32(x: torch.Tensor) -> torch.Tensor:
    """Rounded to ten binary digits after the first."""
    return (x.contiguous().view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)


class EmulatedTF32(TorchFunctionMode):
    """Products round their operands where the process is set to, as on a CUDA device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        matmul = torch.backends.cuda.matmul
        new = hasattr(torch.backends.cudnn, "conv")
        rounds = matmul.fp32_precision == "tf32" if new else matmul.allow_tf32
        if rounds and getattr(func, "__name__", "") in ("matmul", "__matmul__", "addmm"):
            args = (*args[:-2], *map(to_tf32, args[-2:]))
        return func(*args, **(kwargs or {}))


def on_cuda(field: HeatField, tf32: bool) -> HeatField:
    head = CudaHeadOnCPU(field.head_weight, field.head_bias, field.components, field.kappa, tf32=tf32)
    return HeatField.of(head, field.pixels, field.features)


@pytest.mark.parametrize("name", ["edsr-air", "edsr-plus"])
@pytest.mark.parametrize("scale", [4, 3.7])
def test_tf32_where_fields_use_it_costs_a_thousandth_of_their_contrast_at_most(name, scale, photograph):
    field = load(name, engine="torch", device="cpu").encode(photograph[:32, :32])
    exact = field.render(scale=scale)
    with EmulatedTF32():
        rounded = on_cuda(field, tf32=True).render(scale=scale)
    error = ((rounded - exact).square().mean().sqrt() / exact.std()).item()
    assert 1e-6 < error < 2e-4  # and it is in use


def test_rendering_in_float32_does_not_hang_on_what_the_process_has_set(plus, image):
    field = Model(TorchEngine(plus, "cpu"), describe(plus)).encode(image)
    expected = field.render(scale=3)
    with float32_products(tf32=True), EmulatedTF32():
        shielded, unshielded = on_cuda(field, tf32=False).render(scale=3), field.render(scale=3)
    assert torch.allclose(shielded, expected, rtol=0, atol=1e-6)
    assert not torch.allclose(unshielded, expected, rtol=0, atol=1e-5)


def test_phases_are_never_rounded(plus, image):
    field = Model(TorchEngine(plus, "cpu"), describe(plus)).encode(image)
    features = 100 * field.features.reshape(-1, field.features.shape[-1])
    with EmulatedTF32():
        amplitude, phase = on_cuda(field, tf32=True).coefficients(features)
    wanted = field.coefficients(features)
    assert torch.allclose(phase, wanted[1], rtol=1e-6, atol=1e-5)
    assert 1e-5 < ((amplitude - wanted[0]).abs().max() / wanted[0].abs().max()).item() < 1e-3
