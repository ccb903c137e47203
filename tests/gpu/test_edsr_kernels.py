"""The fused EDSR against the plain one in float64. Run on a CUDA machine: pytest -m gpu."""

import copy

import pytest
import torch

from thera.networks import backbones
from thera.networks.backbones import EDSR
from thera.networks.convnext import can_fuse

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(
        torch.cuda.is_available() and not can_fuse(), reason="needs Triton and 200 KiB of shared memory"
    ),
]

SHAPES = [
    (16, 48, 48),
    (3, 13, 11),
    (9, 6, 19),
    (1, 1, 5),
]  # as in training; no multiple of any tile; one row


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.detach().double().cpu() - b.detach().double()).norm() / b.detach().double().norm()).item()


def make(blocks: int, shape: tuple[int, int, int]) -> tuple[EDSR, EDSR, torch.Tensor]:
    """A network on the GPU, laid out as in training, the same in float64 on the CPU, and an image."""
    torch.manual_seed(blocks)
    network = EDSR(blocks)
    image = torch.randn(shape[0], 3, *shape[1:]).bfloat16().float()
    return network.cuda().to(memory_format=torch.channels_last), copy.deepcopy(network).cpu().double(), image


def step(network: EDSR, image: torch.Tensor) -> list[torch.Tensor]:
    """The features of an image and the gradient of every parameter."""
    with torch.autocast("cuda", torch.bfloat16, enabled=image.is_cuda):
        out = network(image)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).bfloat16().to(out)
    return [out, *torch.autograd.grad((out * weight).sum(), list(network.parameters()))]


def wrong(network: EDSR, found: list[torch.Tensor], expected: list[torch.Tensor], limit: float) -> dict:
    names = ["out", *(name for name, _ in network.named_parameters())]
    pairs = zip(names, found, expected, strict=True)
    return {name: error for name, a, b in pairs if not (error := relative(a, b)) < limit}


@pytest.mark.parametrize("passes", ["triton", "cudnn"])
@pytest.mark.parametrize("shape", SHAPES)
def test_fused_network_under_autocast_and_every_gradient_equal_the_plain_form(shape, passes, monkeypatch):
    from thera.networks import kernels_edsr

    monkeypatch.setattr(kernels_edsr, "PASSES", dict.fromkeys(kernels_edsr.PASSES, passes))
    network, plain, image = make(2, shape)
    found = step(network, image.cuda())
    assert found[0].dtype == torch.bfloat16
    assert all(g.dtype == torch.float32 for g in found[1:])
    assert not wrong(network, found, step(plain, image), 1e-2)


def test_whole_network_is_as_exact_as_the_plain_one_under_autocast(monkeypatch):
    """Through 33 convolutions both drift from float64, and by as much."""
    network, plain, image = make(16, (4, 48, 48))
    expected, fused = step(plain, image), step(network, image.cuda())
    monkeypatch.setattr(backbones, "fused_operand", lambda _: None)
    unfused = step(network, image.cuda())
    limits = [1.25 * relative(a, b) + 1e-3 for a, b in zip(unfused, expected, strict=True)]
    errors = [relative(a, b) for a, b in zip(fused, expected, strict=True)]
    assert all(error < limit for error, limit in zip(errors, limits, strict=True)), (errors, limits)


def test_captured_step_gives_what_an_eager_one_gives():
    network, _, image = make(2, (16, 48, 48))
    static, graph, side = torch.zeros_like(image, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        step(network, static)  # compiles outside the capture
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        with torch.autocast("cuda", torch.bfloat16):
            out = network(static)
        found = [out, *torch.autograd.grad(out.square().sum(), list(network.parameters()))]
    static.copy_(image)
    graph.replay()
    with torch.autocast("cuda", torch.bfloat16):
        out = network(image.cuda())
    expected = [out, *torch.autograd.grad(out.square().sum(), list(network.parameters()))]
    assert not wrong(network, found, [e.cpu() for e in expected], 1e-3)  # cuDNN may choose another way


def test_without_gradients_and_in_float32_the_plain_form_runs():
    image = torch.zeros(1, 3, 4, 4, device="cuda")
    assert backbones.fused_operand(image) is None
    assert backbones.fused_operand(image.bfloat16()) == torch.bfloat16
    with torch.no_grad():
        assert backbones.fused_operand(image.bfloat16()) is None
