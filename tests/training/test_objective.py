"""The objective: what four turns of a patch say together, and the seams of a field."""

import pytest
import torch

from thera.networks import Spec, Thera, heat
from thera.networks.spec import STD
from thera.training import objective
from thera.training.config import Objective
from thera.training.data import Batch
from thera.training.validation import upscale


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Thera(Spec("edsr", "air"))


def wave(monkeypatch, network, shape, broken=0.0):
    """Let every cell hold its part of one plane wave, or of one that is shifted in each by something."""
    c, w = network.spec.components, network.components.detach()
    rows, columns = torch.meshgrid(*(torch.arange(float(n)) for n in shape), indexing="ij")
    phase = rows[..., None] * w[0] + columns[..., None] * w[1] + broken * torch.rand(*shape, c)
    amplitude = torch.rand(3, c).expand(1, *shape, 3, c)
    monkeypatch.setattr(heat, "field_parameters", lambda *_: (amplitude, phase[None], w))


def test_a_wave_that_goes_through_all_cells_has_no_seams(network, monkeypatch):
    image, features = torch.full((1, 3, 5, 7), 0.3), torch.zeros(1, 1, 5, 7)
    wave(monkeypatch, network, (5, 7))
    whole = objective.seams(network, features, image)
    wave(monkeypatch, network, (5, 7), broken=0.1)
    assert whole < 1e-4 < 0.01 < objective.seams(network, features, image)


def test_flat_cells_jump_as_far_as_their_pixels_differ(network):
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.zero_()
    image = torch.rand(2, 3, 5, 7)
    jumps = [image.diff(dim=d).abs().mean() / STD for d in (2, 3)]
    found = objective.seams(network, network.features(image), image)
    torch.testing.assert_close(found, (jumps[0] + jumps[1]) / 2)


def test_seams_count_in_the_objective(network):
    source = torch.rand(3, 3, 6, 6)
    batch = Batch(source, torch.rand(3, 6, 6, 1, 3), torch.zeros(3, 6, 6, 1, 2), torch.ones(3))
    without, with_them = (objective.objective(network, batch, Objective(seam=w))[0] for w in (0.0, 0.5))
    torch.manual_seed(1)
    counted = objective.objective(network, batch, Objective(seam=0.5))[0] - without
    torch.manual_seed(1)
    first = network.features(source)[:1]
    torch.testing.assert_close(counted, 0.5 * objective.seams(network, first, source[:1]))
    assert with_them > without


def test_four_turns_together_are_what_the_ensemble_renders(network):
    with torch.no_grad():
        network.head.weight *= 50  # a field that is far from the image
    H = 6
    source, target = torch.rand(2, 3, H, H), torch.rand(2, 2 * H, 2 * H, 3)
    places = torch.tensor([[i, j] for i in (-0.25, 0.25) for j in (-0.25, 0.25)])
    in_cells = target.view(2, H, 2, H, 2, 3).transpose(2, 3).reshape(2, H, H, 4, 3)
    batch = Batch(source, in_cells, places.expand(2, H, H, 4, 2), torch.full((2,), 0.25))
    rendered = [upscale(network, s.permute(1, 2, 0), (2 * H, 2 * H), ensemble=True) for s in source]
    expected = (torch.stack([torch.from_numpy(r) for r in rendered]) - target).abs().mean() / STD
    half, together = (objective.objective(network, batch, Objective(together=w, tv=0))[0] for w in (0.5, 1))
    torch.testing.assert_close(together, expected, rtol=1e-4, atol=1e-5)
    assert together < half  # the mean of four is nearer than four are on average
