"""The fused ConvNeXt block against the plain one in float64. Run on a CUDA machine: pytest -m gpu."""

import copy

import pytest
import torch

from thera.kernels.available import can_run_large_kernels
from thera.networks.convnext import KERNEL_WIDTHS, Block, kernel_dtype

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(
        torch.cuda.is_available() and not can_run_large_kernels(),
        reason="the kernels do not run on this GPU",
    ),
]

SHAPES = [(4, 48, 48), (3, 13, 11), (1, 1, 5)]  # as in training; no multiple of any tile; one row


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.double().cpu() - b.double()).norm() / b.double().norm()).item()


def make(width: int, shape: tuple[int, int, int]) -> tuple[Block, Block, torch.Tensor]:
    """A block on the GPU, the same in float64 on the CPU, and an input that bfloat16 holds exactly."""
    torch.manual_seed(width)
    block = Block(width)
    torch.nn.init.normal_(block.norm.weight)
    torch.nn.init.normal_(block.norm.bias)
    return block.cuda(), copy.deepcopy(block).cpu().double(), torch.randn(*shape, width).bfloat16()


def gradients(out: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).bfloat16().to(out)
    return list(torch.autograd.grad((out * weight).sum(), inputs))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", KERNEL_WIDTHS)
def test_fused_block_under_autocast_and_every_gradient_equal_the_plain_form(width, shape):
    block, plain, x = make(width, shape)
    ours = x.cuda().requires_grad_()
    theirs = x.double().requires_grad_()
    with torch.autocast("cuda", torch.bfloat16):
        assert kernel_dtype(ours) == torch.bfloat16
        out = block(ours)
    reference = plain(theirs)
    assert out.dtype == torch.bfloat16
    assert relative(out, reference) < 1e-2
    names = ["x", *(name for name, _ in block.named_parameters())]
    pairs = zip(
        names,
        gradients(out, [ours, *block.parameters()]),
        gradients(reference, [theirs, *plain.parameters()]),
        strict=True,
    )
    wrong = {name: error for name, a, b in pairs if not (error := relative(a, b)) < 1e-2}
    assert not wrong


@pytest.mark.parametrize("width", KERNEL_WIDTHS)
@pytest.mark.parametrize("shape", [(1, 37, 53), (1, 130, 170)])  # tiles of a small and of a large image
def test_fused_block_infers_in_half_and_under_a_graph(width, shape):
    block, plain, x = make(width, shape)
    reference = plain(x.double()).detach()
    with torch.no_grad():
        assert kernel_dtype(x.cuda()) == torch.bfloat16
        assert relative(block.bfloat16()(x.cuda()), reference) < 1e-2
        graph, static = torch.cuda.CUDAGraph(), torch.zeros_like(x, device="cuda")
        with torch.cuda.graph(graph):
            out = block(static)
        static.copy_(x)
        graph.replay()
    assert relative(out, reference) < 1e-2


def test_in_float32_the_plain_form_runs():
    assert kernel_dtype(torch.zeros(1, 4, 4, 96, device="cuda")) is None
    with torch.autocast("cuda", torch.bfloat16):
        assert kernel_dtype(torch.zeros(1, 4, 4, 96, device="cuda")) is None


def test_compiled_fused_block_gives_what_it_gives_uncompiled():
    block, _, x = make(64, (2, 16, 16))
    found = []
    for _ in range(2):
        ours = x.cuda().requires_grad_()
        with torch.autocast("cuda", torch.bfloat16):
            out = block(ours)
        found.append([out, *gradients(out, [ours, *block.parameters()])])
        block.compile(dynamic=False)
    for one, other in zip(*found, strict=True):
        assert relative(one.detach(), other.detach().cpu()) < 2e-3  # the order of the last sums may differ
