"""The heat field's kernel against its plain form, under Triton's interpreter."""

import json

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton: pip install 'thera[dev]' on Linux")


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def report() -> dict[str, list[float]]:
    """Relative errors of both outputs and of the gradients of amplitude, phase, bank and κ."""
    from thera.networks.heat import heat_field
    from thera.networks.kernels import HeatField

    found = {}
    for q, c in ((1, 64), (3, 32)):
        torch.manual_seed(q)
        inputs = [
            torch.randn(2, 3, 5, 3, c),
            5 * torch.randn(2, 3, 5, c),
            8 * torch.randn(2, c),
            torch.tensor(0.03),
        ]
        for tensor in inputs:
            tensor.requires_grad_()
        amplitude, phase, bank, kappa = inputs
        x, t = torch.rand(2, 3, 5, q, 2) - 0.5, torch.rand(2)
        fused = HeatField.apply(*inputs, x, t)
        plain = heat_field(
            amplitude[:, :, :, None], phase[:, :, :, None], bank, kappa, x, t.view(-1, 1, 1, 1)
        )
        weights = [torch.randn_like(value) for value in fused]
        gradients = [
            torch.autograd.grad([(v * w).sum() for v, w in zip(values, weights, strict=True)], inputs)
            for values in (fused, plain)
        ]
        pairs = [*zip(fused, plain, strict=True), *zip(*gradients, strict=True)]
        found[f"{q} targets"] = [relative(a.detach(), b.detach()) for a, b in pairs]
    return found


@pytest.mark.parametrize("case", ["1 targets", "3 targets"])
def test_fused_field_and_every_gradient_equal_the_plain_form(found, case):
    assert len(found[case]) == 2 + 4
    assert max(found[case]) < 1e-5  # float32 sums of at most 64 terms


if __name__ == "__main__":
    print(json.dumps(report()))
