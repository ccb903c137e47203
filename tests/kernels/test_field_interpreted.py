"""The kernels of the last layer and the heat field against their plain form, under Triton's interpreter."""

import json

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton: pip install 'thera[dev]' on Linux")

C = 16  # features


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-9)).item()


def inputs(c: int, q: int) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """Features, weight, bias, bank and κ, all of which have gradients; x and t."""
    weight, bias = torch.randn(4 * c, C) / 4, torch.randn(4 * c)
    weight[3 * c :] *= 5
    trained = [torch.randn(2, 3, 5, C), weight, bias, 8 * torch.randn(2, c), torch.tensor(0.03)]
    for tensor in trained:
        tensor.requires_grad_()
    return trained, torch.rand(2, 3, 5, q, 2) - 0.5, torch.rand(2)


def plain(features, weight, bias, bank, kappa, x, t, name) -> tuple[torch.Tensor, torch.Tensor]:
    from thera.networks.heat import heat_field

    c = bank.shape[1]
    amplitude, phase = (features @ weight.T + bias).split([3 * c, c], -1)
    amplitude = amplitude.unflatten(-1, (c, 3)).transpose(-1, -2)  # the last layer has them as (c, 3)
    return heat_field(amplitude.unsqueeze(3), phase.unsqueeze(3), bank, kappa, x, t.view(-1, 1, 1, 1), name)


def report() -> dict[str, list[float]]:
    """Relative errors of both outputs and of all gradients."""
    from thera.kernels.field import Fields

    found = {}
    for q, c, name in ((1, 64, "gaussian"), (3, 32, "gaussian"), (1, 32, "butterworth"), (1, 32, "ideal")):
        torch.manual_seed(q)
        trained, x, t = inputs(c, q)
        results = Fields.apply(*trained, x, t, torch.float32, name), plain(*trained, x, t, name)
        weights = [torch.randn_like(value) for value in results[0]]
        gradients = [
            torch.autograd.grad(
                [(v * w).sum() for v, w in zip(values, weights, strict=True)],
                trained,
                allow_unused=True,
                materialize_grads=True,  # the ideal filter says nothing of κ
            )
            for values in results
        ]
        pairs = [*zip(*results, strict=True), *zip(*gradients, strict=True)]
        found[f"{q} targets, {name}"] = [relative(a.detach(), b.detach()) for a, b in pairs]
    return found


@pytest.mark.parametrize(
    "case", ["1 targets, gaussian", "3 targets, gaussian", "1 targets, butterworth", "1 targets, ideal"]
)
def test_fused_field_and_every_gradient_equal_the_plain_form(found, case):
    assert len(found[case]) == 2 + 5
    assert max(found[case]) < 1e-5  # float32 sums of at most 64 terms


if __name__ == "__main__":
    print(json.dumps(report()))
