"""The PyTorch engine on a CUDA device: `pytest -m gpu tests/models/test_cuda_engine.py`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from thera.field import Box, Gaussian, HeatField, Ideal, Point
from thera.kernels.available import can_run_large_kernels
from thera.models import Model, load
from thera.models.cuda_graph import GRAPHS, Graph, GraphCache
from thera.models.torch_engine import GRAPH_PIXELS, TorchEngine
from thera.models.weights import describe
from thera.networks import Spec, Thera
from thera.networks.spec import MEAN

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

VARIANTS = ("air", "plus", "pro")
# Of the largest value: tens of layers, each rounded to 24, 11, 8 and 11 binary digits.
PRECISIONS = [("f32", 2e-5), ("tf32", 5e-3), ("bf16", 5e-2), ("f16", 5e-3)]


def network(variant: str) -> Thera:
    """A network whose fields do something: a fresh one starts with amplitudes near zero."""
    torch.manual_seed(0)
    net = Thera(Spec("edsr", variant)).eval()
    with torch.no_grad():
        net.head.weight.mul_(3)
    return net


def model(variant: str, device: str = "cuda", precision: str = "f32") -> Model:
    net = network(variant)
    return Model(TorchEngine(net, device, precision), describe(net))


def picture(height: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((height, width, 3), np.float32))


def captured(engine: TorchEngine) -> list[Graph]:
    return [graph for graph in engine._graphs._graphs.values() if isinstance(graph, Graph)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("precision", "tolerance"), PRECISIONS)
def test_cuda_agrees_with_the_cpu(variant, precision, tolerance):
    net = network(variant)
    cpu, cuda = TorchEngine(net, "cpu"), TorchEngine(net, "cuda", precision)
    for size in ((1, 1), (5, 3), (20, 27), (48, 48)):
        image = picture(*size)
        expected = cpu.features(image)
        error = (cuda.features(cuda.asarray(image)).cpu() - expected).abs().max()
        assert error < tolerance * expected.abs().max(), size


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("precision", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("request_", [{"scale": 4}, {"scale": 3.7}, {"scale": 0.6}, {"size": (31, 100)}])
def test_upscaling_on_cuda_agrees_with_the_cpu(variant, precision, tolerance, request_):
    cpu, cuda = model(variant, "cpu"), model(variant, "cuda", precision)
    for seed in range(3):  # plain, captured, replayed
        image = picture(20, 27, seed)
        expected = cpu.upscale(image, **request_)
        result = cuda.upscale(image.cuda(), **request_)
        assert result.is_cuda and result.dtype == torch.float32
        assert (result.cpu() - expected).abs().max() < tolerance * expected.abs().max()
    assert len(captured(cuda._engine)) == 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_replayed_graph_computes_what_the_network_does(variant):
    engine = TorchEngine(network(variant), "cuda")
    for seed in range(5):  # plain, captured, replayed
        image = engine.asarray(picture(24, 33, seed))
        plain = engine.compute(image)
        assert torch.allclose(engine.features(image), plain, rtol=1e-5, atol=1e-5)
    assert len(captured(engine)) == 1


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("ensemble", [False, True])
def test_replayed_upscaling_is_encoding_and_rendering(variant, precision, ensemble):
    cuda = model(variant, precision=precision)
    for seed in range(4):
        image = picture(24, 33, seed).cuda()
        fields = list(cuda.encode_rotations(image)) if ensemble else [cuda.encode(image)]
        expected = sum(field.render(size=(90, 132)) for field in fields) / len(fields)
        # The same kernels; only where sums are cut may a library choose differently.
        assert torch.allclose(
            cuda.upscale(image, size=(90, 132), ensemble=ensemble), expected, rtol=1e-4, atol=1e-4
        )


@pytest.mark.skipif(
    torch.cuda.is_available() and not can_run_large_kernels(), reason="the kernels do not run on this GPU"
)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [(1, 1), (5, 7), (48, 48), (150, 190)])
@pytest.mark.parametrize("large", [True, False])
def test_fused_rendering_equals_the_plain_form(variant, size, large, monkeypatch):
    if not large:  # the tile for GPUs older than Hopper
        monkeypatch.setattr("thera.kernels.render.can_run_large_kernels", lambda: False)
    field = model(variant, precision="tf32").encode(picture(*size))
    assert field.head.fused
    arrays = (field.pixels, field.features, field.head_weight, field.head_bias)
    plain = HeatField(*(array.cpu() for array in arrays), field.components, field.kappa)
    for scale in (1, 2, 3, 4, 8, 12, 2.5, 0.7):
        if scale > 4 and size[0] > 100:
            continue
        expected = plain.render(scale=scale, psf=Point())
        spread = (expected - plain.render(scale=scale, psf=Ideal(1e-6))).std() + 1e-3
        error = field.render(scale=scale, psf=Point()).cpu() - expected
        # Operands of eleven binary digits, cut off: 2⁻¹¹ = 5e-4 each.
        assert error.square().mean().sqrt() < 2e-3 * spread, scale


def beyond_float16(variant: str) -> Thera:
    """A network whose activations are beyond 65504 for bright pictures, and not for the mean grey."""
    net = network(variant)
    with torch.no_grad():
        net.backbone.head.weight.mul_(1e4)
        if variant != "plus":  # which ends with a norm: the features of the others are as large
            net.head.weight.mul_(1e-7)
    return net


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [(24, 33), (300, 310)])  # replayed; kernel by kernel
@pytest.mark.parametrize("on_gpu", [True, False])
def test_activations_beyond_float16_are_computed_again_in_tf32(variant, size, on_gpu):
    net = beyond_float16(variant)
    half, wide = (TorchEngine(net, "cuda", precision) for precision in ("f16", "tf32"))
    models = [Model(engine, describe(net)) for engine in (half, wide)]
    grey, bright = torch.tensor(MEAN).expand(*size, 3).contiguous(), 1e3 * picture(*size)
    for _ in range(4):  # plain, captured, replayed
        for image, finite in ((grey, True), (bright, False)):
            given = image.cuda() if on_gpu else image
            assert bool(half.compute(half.asarray(given)).isfinite().all()) is finite
            pairs = [
                [model.upscale(given, scale=2) for model in models],
                [model.encode(given).features for model in models],
            ]
            assert pairs[0][0].is_cuda is on_gpu
            for found, expected in pairs:
                assert (found - expected).abs().max() < 5e-3 * expected.abs().max()


def test_the_usual_precision_is_f16():
    assert TorchEngine(network("air"), "cuda", "auto").precision == "f16"
    assert load("edsr-air", device="cuda").info.precision == "f16"
    assert load("edsr-air", device="cuda", precision="f32").info.precision == "f32"


def test_nothing_is_computed_again_while_activations_are_finite():
    cuda = model("plus", precision="f16")
    cuda._engine._wide = lambda _: pytest.fail("computed again")
    for size in ((24, 33), (300, 310)):
        for _ in range(3):
            cuda.upscale(picture(*size), scale=2)
            cuda.encode(picture(*size))


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_layer_passes_on_what_is_not_finite(variant, value):
    """This is how the engine notices it."""
    engine = TorchEngine(network(variant), "cuda", "f16")
    layers = [m for m in engine._network.modules() if isinstance(m, torch.nn.Conv2d) and m.bias is not None]
    for layer in layers[::7]:
        before = layer.bias.data.clone()
        layer.bias.data[3] = value
        assert not engine.compute(engine.asarray(picture(16, 16))).isfinite().all()
        layer.bias.data.copy_(before)


def test_rendering_a_field_that_needs_gradients_gives_them():
    field = model("air", precision="bf16").encode(picture(8, 8))
    field.features.requires_grad_()
    field.render(scale=2).sum().backward()
    assert field.features.grad.abs().max() > 0


def test_each_size_and_filter_has_a_graph_of_its_own():
    cuda, cpu = model("plus"), model("plus", "cpu")
    image = picture(16, 16)
    requests = [{"scale": 2}, {"scale": 3}, {"scale": 2, "psf": Box()}, {"scale": 2, "psf": Gaussian(0.5)}]
    for _ in range(3):
        for request_ in requests:
            error = cuda.upscale(image.cuda(), **request_).cpu() - cpu.upscale(image, **request_)
            assert error.abs().max() < 2e-5
    assert len(captured(cuda._engine)) == len(requests)


def test_results_of_a_graph_are_not_overwritten_by_the_next():
    cuda = model("air")
    images = [picture(16, 16, seed).cuda() for seed in range(4)]
    results = [cuda.upscale(image, scale=4) for image in images]
    for image, result in zip(images, results, strict=True):
        assert torch.allclose(result, cuda.encode(image).render(scale=4), rtol=1e-5, atol=1e-5)


def test_a_graph_outlives_the_tables_that_others_have_pushed_out():
    cuda = model("plus")
    image = picture(48, 48).cuda()
    for _ in range(2):
        expected = cuda.upscale(image, scale=3.7)
    field = cuda.encode(image)
    for rows in range(200, 300):  # 16 MiB of tables, many times
        field.render(size=(rows, 177))
    assert torch.equal(cuda.upscale(image, scale=3.7), expected)


def test_graphs_are_dropped_while_their_replays_run():
    cuda = model("air")
    image = picture(32, 32).cuda()
    for rows in range(64, 64 + 2 * GRAPHS):
        results = [cuda.upscale(image, size=(rows, 96)) for _ in range(4)]
        assert all(torch.allclose(result, results[0], rtol=1e-5, atol=1e-5) for result in results)
    assert len(captured(cuda._engine)) <= GRAPHS


def test_a_graph_is_replayed_from_another_stream_in_order():
    cuda = model("air")
    images = [picture(16, 16, seed).cuda() for seed in range(8)]
    expected = [cuda.encode(image).render(scale=4) for image in images]
    for _ in range(3):
        cuda.upscale(images[0], scale=4)
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    results = []
    for i, image in enumerate(images):
        with torch.cuda.stream(streams[i % 2]):
            results.append(cuda.upscale(image, scale=4))
    torch.cuda.synchronize()
    for result, wanted in zip(results, expected, strict=True):
        assert torch.allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_threads_with_streams_of_their_own_capture_and_replay_side_by_side():
    cuda = model("plus")
    jobs = [(seed, size) for size in ((40, 40), (59, 61), (64, 48)) for seed in range(6)]
    images = [picture(16, 16, seed).cuda() for seed in range(6)]
    expected = {job: cuda.encode(images[job[0]]).render(size=job[1]) for job in jobs}
    torch.cuda.synchronize()

    def run(job):
        with torch.cuda.stream(torch.cuda.Stream()):
            result = cuda.upscale(images[job[0]], size=job[1])
            torch.cuda.current_stream().synchronize()
        return result

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, jobs))
    for job, result in zip(jobs, results, strict=True):
        assert torch.allclose(result, expected[job], rtol=1e-5, atol=2e-5)


def test_a_graph_made_in_inference_mode_is_replayed_outside_and_the_other_way_round():
    cuda = model("air")
    image = picture(16, 16).cuda()
    for order in ((True, False), (False, True)):
        for inference in order * 3:
            with torch.inference_mode(inference):
                cuda.upscale(image, scale=2 if order[0] else 3)
                cuda.encode(image).render(scale=2)
    field = cuda.encode(image)
    field.features.requires_grad_()
    field.render(scale=2).sum().backward()  # with no table of inference mode


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="needs PyTorch 2.9")
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_results_do_not_hang_on_what_the_process_has_set(precision):
    image = picture(24, 24).cuda()
    before = torch.backends.cuda.matmul.fp32_precision
    results = []
    try:
        for setting in ("ieee", "tf32"):
            torch.backends.cuda.matmul.fp32_precision = setting
            cuda = model("plus", precision=precision)
            results.append([cuda.upscale(image, scale=3).clone() for _ in range(3)][-1])
            results.append(cuda.encode(image).render(scale=3))
            assert torch.backends.cuda.matmul.fp32_precision == setting
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert torch.allclose(results[0], results[2], rtol=0, atol=1e-5)
    assert torch.allclose(results[1], results[3], rtol=0, atol=1e-5)


def test_numpy_images_go_through_a_graph_too():
    cuda = model("air", precision="bf16")
    image = picture(16, 16)
    results = [cuda.upscale(given, scale=4) for given in (image.numpy(), image.numpy().astype(float), image)]
    assert isinstance(results[0], np.ndarray) and not results[2].is_cuda
    assert np.array_equal(results[1], results[2].numpy())
    assert np.abs(results[0] - results[1]).max() < 1e-2


def test_where_memory_runs_out_in_a_capture_the_network_runs_as_it_is(monkeypatch):
    def fail(*_):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(GraphCache, "_capture", fail)
    cuda = model("air")
    image = picture(16, 16).cuda()
    results = [cuda.upscale(image, scale=2) for _ in range(3)]
    assert torch.allclose(results[0], results[2], rtol=1e-5, atol=1e-5)
    assert not captured(cuda._engine)


def test_large_images_are_not_captured():
    cuda = model("air")
    side = int(GRAPH_PIXELS**0.5) + 1
    image = picture(side, side).cuda()
    for _ in range(3):
        cuda.upscale(image, scale=1)
        cuda.encode(image)
    assert not cuda._engine._graphs._graphs
