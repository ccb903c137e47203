"""The kernels of the heat field against the plain form. Run on a CUDA machine: pytest -m gpu."""

import pytest
import torch

from thera.networks.heat import heat_field

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


# bfloat16 has 8 bits: 0.002 in every operand, of which features and weights are rounded once for both forms.
@pytest.mark.parametrize(("operand", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("c", [32, 512])
@pytest.mark.parametrize("q", [1, 3])
def test_last_layer_and_field_equal_the_plain_form_and_its_gradients(c, q, operand, tolerance):
    from thera.kernels.field import Fields

    torch.set_float32_matmul_precision("highest")
    g = torch.Generator("cuda").manual_seed(c + q)
    make = lambda *shape: torch.randn(*shape, device="cuda", generator=g)  # noqa: E731
    rounded = lambda a: a.to(operand).float().requires_grad_()  # noqa: E731
    features, weight = rounded(make(3, 7, 5, 64)), rounded(make(4 * c, 64) / 8)
    bias, w = make(4 * c).requires_grad_(), (8 * make(2, c)).requires_grad_()
    kappa = torch.tensor(0.03, device="cuda", requires_grad=True)
    trained = features, weight, bias, w, kappa
    x = torch.rand(3, 7, 5, q, 2, device="cuda", generator=g) - 0.5
    t = torch.rand(3, device="cuda", generator=g)
    fused = Fields.apply(*trained, x, t, operand)

    amplitude, phase = (features.double() @ weight.double().T + bias).split([3 * c, c], -1)
    amplitude = amplitude.unflatten(-1, (c, 3)).transpose(-1, -2).unsqueeze(3)
    plain = heat_field(amplitude, phase.unsqueeze(3), w.double(), kappa, x, t.view(-1, 1, 1, 1))
    weights = [make(*v.shape) for v in fused]
    for one, other in zip(fused, plain, strict=True):
        assert relative(one, other) < tolerance
    if operand != torch.float32:
        trained = trained[:-1]  # in κ's sum almost everything cancels but the rounding
    ours = torch.autograd.grad([(v * s).sum() for v, s in zip(fused, weights, strict=True)], trained)
    theirs = torch.autograd.grad([(v * s).sum() for v, s in zip(plain, weights, strict=True)], trained)
    for one, other in zip(ours, theirs, strict=True):
        assert relative(one, other) < tolerance
