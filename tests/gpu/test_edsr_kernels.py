"""The fused EDSR against the plain one in float64. Run on a CUDA machine: pytest -m gpu."""

import copy

import pytest
import torch

from thera.kernels.available import can_run_large_kernels
from thera.networks import edsr
from thera.networks.edsr import EDSR

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(
        torch.cuda.is_available() and not can_run_large_kernels(),
        reason="needs Triton and 200 KiB of shared memory",
    ),
]

SHAPES = [(16, 48, 48), (3, 13, 11), (9, 6, 19), (1, 1, 5)]  # as in training; no multiple of a tile; one row


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.detach().double().cpu() - b.detach().double()).norm() / b.detach().double().norm()).item()


def make(blocks: int, shape: tuple[int, int, int]) -> tuple[EDSR, EDSR, torch.Tensor]:
    """A network on the GPU, laid out as in training, the same in float64 on the CPU, and an image."""
    torch.manual_seed(blocks)
    network, image = EDSR(blocks), torch.randint(-1, 2, (shape[0], 3, *shape[1:])).float()
    return network.cuda().to(memory_format=torch.channels_last), copy.deepcopy(network).cpu().double(), image


def make_exact(blocks: int, shape: tuple[int, int, int]) -> tuple[EDSR, EDSR, torch.Tensor]:
    """The same with parameters of so few bits that bfloat16 holds every feature and every gradient.

    With any others, what is rounded to the other side of a relu changes a gradient by 5 %, whoever computes.
    """
    network, plain, image = make(blocks, shape)
    for p in plain.parameters():
        few = torch.rand(p.shape) < 4 / p[0].numel()  # terms in a sum
        p.data = (
            torch.randint(-1, 2, p.shape) * few if p.ndim == 4 else torch.randint(-2, 2, p.shape) + 0.5
        ).double()
    network.load_state_dict(plain.state_dict())
    return network, plain, image


def step(network: EDSR, image: torch.Tensor) -> list[torch.Tensor]:
    """The features of an image and the gradient of every parameter."""
    with torch.autocast("cuda", torch.bfloat16, enabled=image.is_cuda):
        out = network(image)
    weight = torch.randint(-1, 2, out.shape, generator=torch.Generator().manual_seed(7)).to(out)
    return [out, *torch.autograd.grad((out * weight).sum(), list(network.parameters()))]


def wrong(network: EDSR, found: list[torch.Tensor], expected: list[torch.Tensor], limit: float) -> dict:
    names = ["out", *(name for name, _ in network.named_parameters())]
    # The first convolution's gradient is of a sum that is rounded to bfloat16.
    limits = [max(limit, 1e-2) if name == "head.weight" else limit for name in names]
    checks = zip(names, found, expected, limits, strict=True)
    return {name: error for name, a, b, most in checks if not (error := relative(a, b)) < most}


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_network_and_every_gradient_equal_the_plain_form(shape):
    network, plain, image = make_exact(2, shape)
    found = step(network, image.cuda())
    assert found[0].dtype == torch.bfloat16
    assert all(g.dtype == torch.float32 for g in found[1:])
    assert not wrong(network, found, step(plain, image.double()), 1e-6)


def test_whole_network_is_as_exact_as_the_plain_one_under_autocast(monkeypatch):
    """Through 33 convolutions both drift from float64, and by as much."""
    network, plain, image = make(16, (4, 48, 48))
    expected, fused = step(plain, image.double()), step(network, image.cuda())
    monkeypatch.setattr(edsr, "kernel_dtype", lambda _: None)
    unfused = step(network, image.cuda())
    limits = [1.25 * relative(a, b) + 1e-3 for a, b in zip(unfused, expected, strict=True)]
    errors = [relative(a, b) for a, b in zip(fused, expected, strict=True)]
    assert all(error < limit for error, limit in zip(errors, limits, strict=True)), (errors, limits)


def test_captured_step_gives_what_an_eager_one_gives():
    network, _, image = make_exact(2, (16, 48, 48))
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
    assert not wrong(network, found, [e.cpu() for e in expected], 1e-6)


def test_without_gradients_in_float32_or_for_the_image_s_gradient_the_plain_form_runs():
    image = torch.zeros(1, 3, 4, 4, device="cuda")
    assert edsr.kernel_dtype(image) is None
    assert edsr.kernel_dtype(image.bfloat16()) == torch.bfloat16
    assert edsr.kernel_dtype(image.bfloat16().requires_grad_()) is None
    with torch.no_grad():
        assert edsr.kernel_dtype(image.bfloat16()) is None
