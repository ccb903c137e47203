"""The seams of a field: what of its total variation lies between its cells."""

import pytest
import torch

from thera.networks import Spec, Thera
from thera.networks.spec import STD
from thera.training import objective
from thera.training.config import Objective
from thera.training.data import Batch


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
    monkeypatch.setattr(objective, "field_parameters", lambda *_: (amplitude, phase[None], w))


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
