"""Pairs are aligned where their field is read."""

import numpy as np
import pytest
import torch

from thera.errors import InvalidInput
from thera.networks import Spec, Thera
from thera.networks.heat import field_values
from thera.training.alignment import Aligner, affine, aligned
from thera.training.config import Objective
from thera.training.data import Batch
from thera.training.objective import objective


def batch_of(n=2, P=8, q=2):
    x = torch.rand(n, P, P, q, 2) - 0.5
    return Batch(torch.rand(n, 3, P, P), torch.rand(n, P, P, q, 3), x, torch.full((n,), 0.2))


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    made = Thera(Spec("edsr", "air"))
    torch.nn.init.normal_(made.head.weight, std=0.05)
    return made


def colours(batch, value):
    """Field values as colours: what the loss compares with the targets of the batch."""
    return batch.source.permute(0, 2, 3, 1).unsqueeze(3) + 0.5 * value


def test_an_untrained_aligner_changes_nothing(network):
    batch, aligner = batch_of(), Aligner()
    features = torch.randn(2, 64, 8, 8)
    other, value, slope = aligned(network, features, batch, aligner(batch))
    plain, plain_slope = field_values(network, features, batch.x, batch.t)
    torch.testing.assert_close(value, plain, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(slope, plain_slope, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(other.target, batch.target)
    config = Objective(loss="rms")
    with_, without = objective(network, batch, config, aligner), objective(network, batch, config)
    torch.testing.assert_close(with_[0], without[0], atol=1e-5, rtol=1e-4)


def test_a_shift_by_a_whole_pixel_reads_the_next_cells(network):
    batch, features = batch_of(), torch.randn(2, 64, 8, 8)
    batch.x = batch.x[:, :, :1].expand(-1, -1, 8, -1, -1).contiguous()  # the same offsets in all columns
    moved = torch.tensor([[[1.0, 0, 0], [0, 1, 1]]]).repeat(2, 1, 1)  # one column to the right
    other, value, _ = aligned(network, features, batch, moved)
    plain, _ = field_values(network, features, batch.x, batch.t)
    found = colours(batch, value) + (batch.target - other.target)
    torch.testing.assert_close(found[:, :, :-1], colours(batch, plain)[:, :, 1:], atol=1e-4, rtol=1e-4)


def test_the_map_is_bounded_and_has_the_order_it_says():
    torch.testing.assert_close(affine(torch.full((1, 6), 99.0))[0, :, 2], torch.tensor([2.0, 2.0]))
    turn = torch.zeros(1, 6)
    turn[0, 4] = 99  # the largest rotation
    (a, b), (c, d) = affine(turn)[0, :, :2].tolist()
    assert a == d == pytest.approx(np.cos(0.05)) and c == -b == pytest.approx(np.sin(0.05))


def test_gradients_lead_to_the_true_shift(network):
    """The targets are the field itself, read a little aside: the six numbers find by how much."""
    torch.manual_seed(1)
    batch = batch_of(n=1, P=12, q=2)
    smooth = torch.nn.functional.interpolate(torch.randn(1, 64, 3, 3), size=(12, 12), mode="bicubic")
    with torch.no_grad():
        moved = torch.tensor([[[1.0, 0, 0.2], [0, 1, -0.15]]])
        other, value, _ = aligned(network, smooth, batch, moved)
        batch.target = colours(batch, value) + (batch.target - other.target)
    numbers = torch.zeros(1, 6, requires_grad=True)
    optimiser = torch.optim.Adam([numbers], lr=0.02)
    for _ in range(60):
        other, value, _ = aligned(network, smooth, batch, affine(numbers))
        loss = (colours(other, value) - other.target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert affine(numbers.detach())[0, :, 2].tolist() == pytest.approx([0.2, -0.15], abs=0.05)


def test_alignment_is_for_pairs(small, photos, tmp_path):
    from thera.training.run import start

    with pytest.raises(InvalidInput, match="give --pairs"):
        start(small(objective={"align": True}), [photos], tmp_path / "run", device="cpu")
