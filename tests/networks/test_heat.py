"""The field as training sees it: its gradient, the heat equation, and the paper's ablations."""

from __future__ import annotations

import math

import pytest
import torch

from thera.errors import ModelError
from thera.field import Butterworth
from thera.networks import Spec, Thera
from thera.networks.heat import gain, heat_field, relu_field
from thera.networks.spec import FILTERS, KAPPA


@pytest.fixture
def field():
    """Amplitudes, phases and a bank of 12 components at 5 points, in float32 as the field computes."""
    g = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=g)

    amplitude, phase = rand(5, 3, 12) - 0.5, 6 * rand(5, 12) - 3
    components, x, t = 12 * rand(2, 12) - 6, rand(5, 2) - 0.5, rand(5)
    return amplitude, phase, components, torch.tensor(0.03), x, t


def test_value_is_the_sum_of_the_paper(field):
    a, phase, w, kappa, x, t = field
    value, _ = heat_field(*field)
    for i in range(5):
        for channel in range(3):
            terms = [
                a[i, channel, k]
                * torch.exp(-(w[:, k] @ w[:, k]) * kappa * t[i])
                * torch.sin(w[:, k] @ x[i] + phase[i, k])
                for k in range(12)
            ]
            assert value[i, channel] == pytest.approx(sum(terms).item(), abs=1e-5)


def derivative(value: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(value.sum(), by, create_graph=True)[0]


def test_analytic_gradient_equals_autograd_at_t_0(field):
    a, phase, w, kappa, x, _ = field
    x.requires_grad_()
    value, gradient = heat_field(a, phase, w, kappa, x, torch.zeros(5))
    for channel in range(3):
        assert torch.allclose(gradient[:, channel], derivative(value[:, channel], x), atol=1e-5)


def test_gradient_is_that_of_t_0_whatever_t_is(field):
    a, phase, w, kappa, x, t = field
    assert torch.equal(heat_field(a, phase, w, kappa, x, t)[1], heat_field(a, phase, w, kappa, x, 0 * t)[1])


def test_the_field_obeys_the_heat_equation(field):
    a, phase, w, kappa, x, t = field
    x.requires_grad_()
    t.requires_grad_()
    value, _ = heat_field(a, phase, w, kappa, x, t)
    for channel in range(3):
        by_time = derivative(value[:, channel], t)
        slope = derivative(value[:, channel], x)
        laplacian = sum(derivative(slope[:, i], x)[:, i] for i in range(2))
        assert by_time.abs().max() > 0.01
        assert torch.allclose(by_time, kappa * laplacian, atol=1e-4)


def test_half_precision_inputs_are_computed_in_float32(field):
    a, phase, w, kappa, x, t = field
    value, gradient = heat_field(a.bfloat16(), phase.bfloat16(), w, kappa, x, t)
    assert value.dtype == gradient.dtype == torch.float32
    assert torch.equal(value, heat_field(a.bfloat16().float(), phase.bfloat16().float(), w, kappa, x, t)[0])


def test_a_bank_of_each_pixel_is_the_same_field_where_all_are_alike(field):
    a, phase, w, kappa, x, t = field
    value, gradient = heat_field(a, phase, w.expand(5, 2, 12), kappa, x, t)
    shared = heat_field(*field)
    assert torch.allclose(value, shared[0], atol=1e-6)
    assert torch.allclose(gradient, shared[1], atol=1e-5)


def test_relu_instead_of_the_thermal_activation_has_its_own_gradient(field):
    a, phase, w, _, x, _ = field
    x.requires_grad_()
    value, gradient = relu_field(a, phase, w, x)
    for channel in range(3):
        assert torch.allclose(gradient[:, channel], derivative(value[:, channel], x), atol=1e-5)


def test_predicting_components_widens_the_last_layer_and_empties_the_bank():
    plain, predicted = Thera(Spec()), Thera(Spec(predicted_components=True))
    assert (plain.head.out_features, predicted.head.out_features) == (4 * 32, 6 * 32)
    assert (plain.components.numel(), predicted.components.numel()) == (2 * 32, 0)
    radius = predicted.head.bias[4 * 32 :].view(2, 32).norm(dim=0)
    assert radius.max() < 6.01 * torch.pi  # starts at the bank that the plain network starts with
    assert radius.mean() > 3 * torch.pi
    others = {"predicted_components": True}, {"activation": "relu"}, {"filter": "butterworth"}
    assert [Spec(**what).renderable for what in ({}, *others)] == [True, False, False, False]


@pytest.mark.parametrize(
    ("name", "kept"), [("gaussian", 0.5), ("butterworth", 0.5**0.5), ("ideal", 1)], ids=FILTERS
)
def test_filters_of_training_share_their_cutoff(name, kept):
    at = torch.tensor([0.0, math.log(2), 1e3])  # 0 frequency, the cut-off, far beyond
    assert gain(at, name).tolist() == pytest.approx([1, kept, 0], abs=1e-3)
    # With the paper's κ the cut-off is the Nyquist frequency of the output: π radians per output pixel.
    assert math.pi**2 * KAPPA == pytest.approx(math.log(2))


def test_a_butterworth_filter_of_training_is_that_of_rendering(field):
    a, phase, w, kappa, x, t = field
    value, gradient = heat_field(*field, filter="butterworth")
    shape = Butterworth(cutoff=(math.log(2) / kappa.item()) ** 0.5 / math.pi)
    passed = torch.stack([shape.response(*(w * s), kappa.item()) for s in t.sqrt()])
    wave = torch.sin(x @ w + phase)
    assert torch.allclose(value, torch.einsum("nck,nk,nk->nc", a, passed, wave), atol=1e-5)
    assert torch.equal(gradient, heat_field(*field)[1])  # that of t = 0


def test_kappa_learns_through_a_butterworth_filter_and_not_through_an_ideal_one(field):
    a, phase, w, kappa, x, t = field
    kappa.requires_grad_()
    slopes = {name: derivative(heat_field(a, phase, w, kappa, x, t, name)[0], kappa) for name in FILTERS[:2]}
    assert slopes["gaussian"] != slopes["butterworth"] != 0
    assert not heat_field(a, phase, w, kappa, x, t, "ideal")[0].requires_grad


def test_other_methods_have_no_filter_to_choose():
    with pytest.raises(ModelError, match="edsr-liif is no heat field: leave out components, filters"):
        Spec(variant="liif", filter="ideal")
    with pytest.raises(ModelError, match="unknown filter 'box': expected gaussian, butterworth, ideal"):
        Spec(filter="box")


def test_a_fresh_network_starts_at_the_image_itself():
    network = Thera(Spec("edsr", "plus"))
    features = network.features(torch.rand(1, 3, 8, 8))
    amplitude = network.head(features.permute(0, 2, 3, 1))[..., : 3 * 512]
    assert amplitude.abs().max() < 0.1
    assert network.kappa.item() == pytest.approx(0.0702, abs=1e-4)  # ln 4 / 2π²


def test_the_folded_head_halves_amplitudes_and_keeps_phases():
    network = Thera(Spec("edsr", "air", published=True))
    weight, bias = network.folded_head()
    assert torch.equal(weight[:, :96], network.head.weight[:96].T / 2)
    assert torch.equal(weight[:, 96:], network.head.weight[96:].T)
    assert torch.equal(bias[96:], network.head.bias[96:])
