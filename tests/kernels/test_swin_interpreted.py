"""The Swin kernels under Triton's interpreter, on a CPU: their arithmetic, windows and borders.

Triton reads TRITON_INTERPRET when it is imported, so the comparison runs in another process: the `found`
fixture runs this file as a script and gives the tests what it printed.
"""

import copy
import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton, which only comes with PyTorch for CUDA")


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def layers(shift: int) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A layer none of whose parameters is small or alike, and the same in float64."""
    from thera.networks.swinir import SwinLayer

    torch.manual_seed(shift)
    layer = SwinLayer(shift)
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=p.shape[-1] ** -0.5 if p.ndim > 1 else 1.0)
    return layer, copy.deepcopy(layer).double()


def errors(shift: int, shape: tuple[int, int, int], dtype: torch.dtype, drop: bool) -> dict[str, float]:
    """Relative errors against the plain form in float64: the output, ∂x, every parameter's gradient."""
    from thera.networks.swinir import ALIGNED_WIDTH, WIDTH, fit, shift_mask

    layer, plain = layers(shift)
    x = torch.randn(*shape, WIDTH).to(dtype)
    keep = torch.rand(2, shape[0], 1, 1, 1) + 0.5 if drop else None
    ours = fit(x, *shape, ALIGNED_WIDTH).requires_grad_()
    theirs = x.double().requires_grad_()
    out = layer.in_kernels(ours, keep, dtype)
    reference = plain(theirs, shift_mask(*shape[1:], x.device).double(), keep)
    weight = torch.randn(reference.shape)
    gx, *gradients = torch.autograd.grad((out[..., :WIDTH] * weight).sum(), [ours, *layer.parameters()])
    expected = torch.autograd.grad((reference * weight).sum(), [theirs, *plain.parameters()])
    names = ["out", "x", *(name for name, _ in layer.named_parameters())]
    found = (out[..., :WIDTH], gx[..., :WIDTH], *gradients)
    pairs = zip(names, found, (reference, *expected), strict=True)
    surplus = {"surplus channels": (out[..., WIDTH:].abs().max() + gx[..., WIDTH:].abs().max()).item()}
    return {name: relative(a, b) for name, a, b in pairs} | surplus


def aligned_error() -> float:
    """Inference with parameters that are padded already."""
    from thera.networks.swinir import ALIGNED_WIDTH, WIDTH, fit, shift_mask

    layer, plain = layers(4)
    layer.align()
    x = torch.randn(1, 8, 16, WIDTH)
    with torch.no_grad():
        layer.in_kernels(torch.zeros(1, 8, 8, ALIGNED_WIDTH), None, torch.float32)  # keeps what it folds
        out = layer.in_kernels(fit(x, 1, 8, 16, ALIGNED_WIDTH), None, torch.float32)
        return relative(out[..., :WIDTH], plain(x.double(), shift_mask(8, 16, x.device).double(), None))


def in_kernels(dtype: torch.dtype, broken: Callable | None = None) -> bool:
    """Whether layers run in kernels on a GPU older than Hopper, if the kernels of shifted windows break."""
    from thera.kernels import available
    from thera.kernels.swin import layer
    from thera.networks import inference, swinir

    torch.manual_seed(0)
    available._shared_memory, inference.TRIED, swinir.GROUPS = lambda: available.SMALL, ((3, 5),), (2,)
    body = swinir.SwinIR().requires_grad_(False)
    body.align()
    works = layer.forward

    def forward(x: torch.Tensor, keep: object, shift: int, *rest: object) -> tuple:
        out, saved = works(x, keep, shift, *rest)
        return broken(out) if broken and shift else out, saved

    layer.forward = forward
    inference.use_kernels(SimpleNamespace(backbone=None, hypernetwork=body), dtype)
    layer.forward = works
    assert all(each.kernels == body.kernels for each in body.groups[0].layers)
    return body.kernels


def fails(_: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("PassManager::run failed")


def report() -> dict[str, object]:
    from thera.kernels import sums
    from thera.kernels.swin import attention, mlp, norm

    sums.FEW = 100  # both widths of its programs, and fewer of them
    attention.MULTIPROCESSORS = 3  # few programs, so that each has several windows
    mlp.EXPAND = mlp.EXPAND_BACKWARD = mlp.EXPAND_F32
    norm.NORM = norm.NORM._replace(pixels=64)
    found = {
        "whole windows": errors(0, (1, 8, 8), torch.float32, drop=False),  # less than a tile
        "shifted windows": errors(4, (2, 16, 16), torch.float32, drop=True),
        "f16": errors(4, (1, 8, 8), torch.float16, drop=True),
        "aligned": aligned_error(),
        "in kernels": [in_kernels(dtype) for dtype in (torch.float32, torch.float16)],
        "broken": [in_kernels(torch.float16, broken) for broken in (lambda y: y * 1.03, fails)],
    }
    norm.can_keep_rows = lambda _: False
    return found | {
        "whole windows, small memory": errors(0, (1, 8, 16), torch.float32, drop=False),
        "shifted windows, small memory": errors(4, (1, 8, 24), torch.float32, drop=True),
    }


CASES = ["whole windows", "shifted windows", "whole windows, small memory", "shifted windows, small memory"]


@pytest.mark.parametrize("case", CASES)
def test_fused_layer_and_every_gradient_equal_the_plain_form(found, case):
    assert len(found[case]) == 2 + 13 + 1
    assert max(found[case].values()) < 1e-5  # float32 sums of a few hundred terms
    assert found[case]["surplus channels"] == 0


def test_fused_layer_in_half_precision_keeps_half_precision(found):
    assert max(found["f16"].values()) < 3e-3  # 2⁻¹¹ = 5e-4 an operand, a few operands deep


def test_fused_layer_with_padded_parameters_is_the_same_function(found):
    assert found["aligned"] < 1e-5


def test_layers_run_in_kernels_where_those_compute_the_same(found):
    assert found["in kernels"] == [True, True]
    assert found["broken"] == [False, False]


if __name__ == "__main__":
    print(json.dumps(report()))
