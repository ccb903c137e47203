"""The networks: as large as published, and seeing as far as they say."""

from __future__ import annotations

import copy

import pytest
import torch

from thera.errors import ModelError
from thera.networks import Spec, Thera
from thera.networks.swinir import SwinIR, reflected, shift_mask

torch.set_num_threads(1)  # tests run side by side already

EDSR, RDN = 1_220_416, 21_973_952
AIR, PLUS, PRO = 8_192 + 128 + 2 * 32 + 1, 1_413_153, 4_630_699


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("edsr-air", EDSR + AIR),
        ("edsr-plus", EDSR + PLUS),
        ("edsr-pro", EDSR + PRO),
        ("rdn-air", RDN + AIR),
        ("rdn-plus", RDN + PLUS),
        ("rdn-pro", RDN + PRO),
    ],
)
def test_parameter_counts_are_the_published_ones(name, parameters):
    network = Thera(Spec(*name.split("-")))
    assert sum(p.numel() for p in network.parameters()) == parameters


@pytest.fixture(scope="module")
def pro() -> Thera:
    torch.manual_seed(0)
    network = Thera(Spec("edsr", "pro")).eval().requires_grad_(False)
    for parameter in network.hypernetwork.parameters():  # a fresh one has zero biases: give each a part
        parameter.add_(0.05 * torch.randn_like(parameter))
    return network


def test_aligned_widths_compute_the_same_function(pro):
    image = torch.rand(2, 3, 13, 21)
    aligned = copy.deepcopy(pro)
    assert isinstance(aligned.hypernetwork, SwinIR)
    aligned.hypernetwork.aligned = True
    expected = pro.features(image)
    assert (aligned.features(image) - expected).abs().max() < 1e-5 * expected.abs().max()
    aligned.hypernetwork.align()
    assert aligned.hypernetwork.groups[0].layers[0].expand.weight.shape == (384, 192)
    assert (aligned.features(image) - expected).abs().max() < 1e-5 * expected.abs().max()


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 9, 15, 16])
def test_reflection_to_whole_windows_bounces_as_often_as_it_must(n):
    at, step, position = [], 1, 0
    for _ in range(-(-n // 8) * 8):
        at.append(position)
        if n > 1:
            step = -step if not 0 <= position + step < n else step
            position += step
    assert reflected(n, torch.device("cpu")).tolist() == at


def test_windows_attend_within_themselves_and_never_across_the_border(pro):
    """With one window, a shifted layer's four quarters stay apart, as the mask demands."""
    layer = pro.hypernetwork.groups[0].layers[1]
    assert layer.shift == 4
    x = torch.rand(1, 8, 8, 180)
    changed = x.clone()
    changed[:, :4, :4] += 1
    mask = shift_mask(8, 8, x.device)
    moved = (layer(x, mask, None) - layer(changed, mask, None)).abs().amax((0, 3)) > 1e-5
    assert moved[:4, :4].all()
    assert moved.sum() == 16


def reach(spec: Spec, width: int, positions: list[int]) -> int:
    """How many columns away a feature still depends on a pixel: where a NaN gets to. In float64, whose
    convolutions are plain sums."""
    torch.manual_seed(0)
    network = Thera(spec).eval().requires_grad_(False).double()
    images = torch.rand(len(positions), 3, 1, width, dtype=torch.float64)
    for image, position in zip(images, positions, strict=True):
        image[:, 0, position] = torch.nan
    tainted = network.features(images).isnan().any(1)[:, 0]
    return max(int((row.nonzero() - at).abs().max()) for row, at in zip(tainted, positions, strict=True))


@pytest.mark.parametrize("variant", ["air", "plus"])
@pytest.mark.parametrize("backbone", ["edsr", "rdn"])
def test_halo_is_exactly_how_far_a_feature_sees(backbone, variant):
    spec = Spec(backbone, variant)
    assert reach(spec, 2 * spec.halo + 21, [spec.halo + 10]) == spec.halo


def test_halo_of_pro_is_how_far_a_feature_sees_in_whole_windows():
    spec = Spec("edsr", "pro")
    centre = spec.halo + 16
    edges = [centre, centre + 2, centre + 5]  # where windows come closest: measured over all eight positions
    furthest = reach(spec, 2 * centre + 8, edges)
    assert spec.alignment == 8
    assert spec.halo - 8 < furthest <= spec.halo


@pytest.mark.parametrize("name", ["edsr-air", "edsr-plus", "edsr-pro"])
def test_a_tile_with_its_halo_has_the_features_of_the_whole(name):
    spec = Spec(*name.split("-"))
    torch.manual_seed(0)
    network = Thera(spec).eval().requires_grad_(False)
    left, right = spec.halo + 24, spec.halo + 48
    image = torch.rand(1, 3, 5, right + spec.halo + 20)
    tile = image[..., left - spec.halo : right + spec.halo]
    whole = network.features(image)[..., left:right]
    assert (network.features(tile)[..., spec.halo : -spec.halo] - whole).abs().max() < 1e-5


def test_an_unknown_spec_is_refused():
    for wrong in ({"backbone": "vgg"}, {"variant": "max"}, {"activation": "tanh"}):
        with pytest.raises(ModelError, match="expected"):
            Spec(**wrong)
    with pytest.raises(ModelError, match="format 2"):
        Spec.from_dict({"format": 2})


@pytest.mark.parametrize("spec", [Spec("rdn", "pro", published=True), Spec(activation="relu", components=7)])
def test_a_spec_survives_its_dictionary(spec):
    assert Spec.from_dict({**spec.to_dict(), "anything": "else"}) == spec
