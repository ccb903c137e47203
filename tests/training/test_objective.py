"""The objective: its ensemble term is the error of what the ensemble renders."""

import pytest
import torch

from thera.evaluation.methods import network_method
from thera.networks import Spec, Thera
from thera.networks.spec import STD
from thera.training import objective
from thera.training.config import Objective
from thera.training.data import Batch


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Thera(Spec("edsr", "air"))


def test_the_ensemble_term_is_the_error_of_what_the_ensemble_renders(network):
    with torch.no_grad():
        network.head.weight *= 50  # a field that is far from the image
    H = 6
    source, target = torch.rand(2, 3, H, H), torch.rand(2, 2 * H, 2 * H, 3)
    places = torch.tensor([[i, j] for i in (-0.25, 0.25) for j in (-0.25, 0.25)])
    in_cells = target.view(2, H, 2, H, 2, 3).transpose(2, 3).reshape(2, H, H, 4, 3)
    batch = Batch(source, in_cells, places.expand(2, H, H, 4, 2), torch.full((2,), 0.25))
    upscale = network_method(network, "cpu", ensemble=True).upscale
    rendered = [torch.from_numpy(upscale(s.permute(1, 2, 0).numpy(), (2 * H, 2 * H))) for s in source]
    expected = (torch.stack(rendered) - target).abs().mean() / STD
    half, ensemble = (
        objective.objective(network, batch, Objective(ensemble_weight=w, tv=0))[0] for w in (0.5, 1)
    )
    torch.testing.assert_close(ensemble, expected, rtol=1e-4, atol=1e-5)
    assert ensemble < half  # the mean of four is nearer than four are on average
