"""The Triton kernels against the plain PyTorch forms they replace. Run on a CUDA machine: pytest -m gpu."""

import pytest
import torch

from thera.networks.heat import heat_field

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


@pytest.mark.parametrize("c", [32, 512])
@pytest.mark.parametrize("q", [1, 3])
def test_heat_field_kernel_equals_the_plain_form_and_its_gradients(c, q):
    from thera.networks.kernels import HeatField

    g = torch.Generator("cuda").manual_seed(c + q)
    make = lambda *shape: torch.randn(*shape, device="cuda", generator=g)  # noqa: E731
    inputs = (make(3, 7, 5, 3, c), 3 * make(3, 7, 5, c), 8 * make(2, c), torch.tensor(0.03, device="cuda"))
    for tensor in inputs:
        tensor.requires_grad_()
    a, p, w, k = inputs
    x = torch.rand(3, 7, 5, q, 2, device="cuda", generator=g) - 0.5
    t = torch.rand(3, device="cuda", generator=g)
    fused = HeatField.apply(a, p, w, k, x, t)
    plain = heat_field(a.double()[:, :, :, None], p[:, :, :, None], w, k, x, t.view(-1, 1, 1, 1))
    weights = [make(*v.shape) for v in fused]
    for one, other in zip(fused, plain, strict=True):
        assert relative(one, other) < 1e-5
    ours = torch.autograd.grad([(v * s).sum() for v, s in zip(fused, weights, strict=True)], inputs)
    theirs = torch.autograd.grad([(v * s).sum() for v, s in zip(plain, weights, strict=True)], inputs)
    for one, other in zip(ours, theirs, strict=True):
        assert relative(one, other) < 1e-4
