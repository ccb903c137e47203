"""The fused Swin layer against the plain one in float64. Run on a CUDA machine: pytest -m gpu."""

import copy

import pytest
import torch

from thera.kernels.available import TRITON
from thera.models.cuda import float32_products
from thera.networks.swinir import ALIGNED_WIDTH, SHIFT, WIDTH, SwinIR, SwinLayer, fit, shift_mask

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(not TRITON, reason="needs Triton"),
]

SHAPES = [(4, 48, 48), (3, 16, 8), (1, 8, 8)]  # several tiles to a program; one window wide; one window


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.double().cpu() - b.double()).norm() / b.double().norm()).item()


def make(shift: int, shape: tuple[int, int, int]) -> tuple[SwinLayer, SwinLayer, torch.Tensor]:
    """A layer on the GPU, the same in float64 on the CPU, and an input that bfloat16 holds exactly."""
    torch.manual_seed(shift)
    layer = SwinLayer(shift)
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=p.shape[-1] ** -0.5 if p.ndim > 1 else 0.2)
    for norm in (layer.norm1, layer.norm2):
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    return layer.cuda(), copy.deepcopy(layer).cpu().double(), torch.randn(*shape, WIDTH).bfloat16()


def on_gpu(x: torch.Tensor) -> torch.Tensor:
    return fit(x, *x.shape[:3], ALIGNED_WIDTH).cuda()


def reference(plain: SwinLayer, x: torch.Tensor, keep: torch.Tensor | None = None) -> torch.Tensor:
    return plain(x, shift_mask(*x.shape[1:3], x.device).double(), keep)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shift", [0, SHIFT])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 1e-2), (torch.float32, 1e-4)])
def test_fused_layer_and_every_gradient_equal_the_plain_form(shift, shape, dtype, tolerance):
    layer, plain, x = make(shift, shape)
    keep = torch.rand(2, shape[0], 1, 1, 1) + 0.5
    ours, theirs = on_gpu(x.to(dtype)).requires_grad_(), x.double().requires_grad_()
    with torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
        out = layer(ours, None, keep.cuda())
    exact = reference(plain, theirs, keep.double())
    assert out.dtype == dtype
    assert relative(out[..., :WIDTH], exact) < tolerance
    assert not out[..., WIDTH:].any()
    weight = torch.randn(exact.shape).bfloat16()
    found = torch.autograd.grad((out[..., :WIDTH] * weight.to(out)).sum(), [ours, *layer.parameters()])
    expected = torch.autograd.grad((exact * weight.double()).sum(), [theirs, *plain.parameters()])
    names = ["x", *(name for name, _ in layer.named_parameters())]
    pairs = zip(names, (found[0][..., :WIDTH], *found[1:]), expected, strict=True)
    wrong = {name: error for name, a, b in pairs if not (error := relative(a, b)) < tolerance}
    assert not wrong


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fused_layer_infers_from_padded_short_weights_under_a_graph(dtype):
    layer, plain, x = make(SHIFT, (1, 40, 56))
    expected = reference(plain, x.double()).detach()
    layer.align()
    for linear in (layer.attention.qkv, layer.attention.proj, layer.expand, layer.project):
        linear.to(dtype)
    static, graph = on_gpu(torch.zeros_like(x)).to(dtype), torch.cuda.CUDAGraph()
    with torch.no_grad():
        layer(static, None, None)  # compiles outside the capture
        with torch.cuda.graph(graph):
            out = layer(static, None, None)
        static.copy_(on_gpu(x))
        graph.replay()
    assert relative(out[..., :WIDTH], expected) < 1e-2


def test_whole_body_trained_with_fused_layers_has_the_gradients_of_the_plain_one():
    torch.manual_seed(0)
    body = SwinIR().eval()  # no stochastic depth, which would differ
    plain = copy.deepcopy(body).double()
    body.cuda().aligned = True
    x = torch.randn(2, 64, 24, 24)
    exact = plain(x.double())
    weight = torch.randn(exact.shape)
    with float32_products(tf32=False):  # through so many layers TF32 costs one part in seventy
        out = body(x.cuda())
        found = torch.autograd.grad((out * weight.cuda()).sum(), list(body.parameters()))
    expected = torch.autograd.grad((exact * weight.double()).sum(), list(plain.parameters()))
    assert relative(out, exact) < 1e-4
    names = [name for name, _ in body.named_parameters()]
    pairs = zip(names, found, expected, strict=True)
    wrong = {name: error for name, a, b in pairs if not (error := relative(a, b)) < 1e-3}
    assert not wrong
