import pytest
import torch

from thera.networks import Spec, Thera
from thera.training.muon import Muon, matrices, orthogonal


def test_orthogonal_keeps_directions_and_levels_their_sizes():
    torch.manual_seed(0)
    m = torch.randn(3, 16, 48, dtype=torch.float64)
    u, _, v = torch.linalg.svd(m, full_matrices=False)
    result = orthogonal(m)
    sizes = torch.linalg.svdvals(result)
    assert sizes.min() > 0.6 and sizes.max() < 1.25, "the quintic's stated band, a little widened"
    inside = u.mT @ result @ v.mT  # diagonal where the singular directions are kept
    assert (inside - torch.diag_embed(inside.diagonal(dim1=1, dim2=2))).abs().max() < 1e-9


@pytest.mark.parametrize("variant", ["air", "plus", "pro"])
def test_muon_trains_the_layers_between_the_image_and_the_fields(variant):
    network = Thera(Spec("edsr", variant))
    names = {id(p): name for name, p in network.named_parameters()}
    chosen = {names[id(p)]: n for p, n in matrices(network)}
    assert "backbone.body.0.conv1.weight" in chosen
    assert not {"backbone.head.weight", "head.weight", "components", "kappa"} & set(chosen)
    assert not [name for name in chosen if "depthwise" in name or "table" in name or "bias" in name]
    assert all((n == 3) == ("qkv" in name) for name, n in chosen.items())


def test_queries_keys_and_values_are_matrices_of_their_own():
    torch.manual_seed(0)
    together = torch.nn.Parameter(torch.randn(24, 8, dtype=torch.float64))
    alone = [torch.nn.Parameter(part.clone()) for part in together.detach().split(8)]
    gradient = torch.randn(24, 8, dtype=torch.float64)
    lr = torch.tensor(0.1, dtype=torch.float64)
    for parameters, n in (([together], 3), (alone, 1)):
        for p, g in zip(parameters, gradient.split(24 // len(parameters)), strict=True):
            p.grad = g.clone()
        Muon([(p, n) for p in parameters], lr).step()
    assert torch.allclose(together, torch.cat(alone), atol=1e-12)


def test_an_update_has_adams_size_whatever_the_gradients_and_the_layers_shape():
    torch.manual_seed(0)
    shapes = [(64, 64, 3, 3), (96, 24), (24, 96)]
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]
    for p, size in zip(parameters, (1e-6, 1.0, 1e3), strict=True):
        p.grad = size * torch.randn(p.shape)
    Muon([(p, 1) for p in parameters], torch.tensor(1.0)).step()
    for p in parameters:
        assert 0.15 < p.detach().square().mean().sqrt() < 0.25


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_an_update_does_not_depend_on_how_filters_lie_in_memory(layout):
    torch.manual_seed(0)
    filters, gradient = torch.randn(2, 16, 8, 3, 3, dtype=torch.float64)
    lr = torch.tensor(0.1, dtype=torch.float64)
    changed = []
    for one, other in ((torch.contiguous_format, torch.contiguous_format), (layout, torch.channels_last)):
        p = torch.nn.Parameter(filters.clone(memory_format=one))
        p.grad = gradient.clone(memory_format=other)
        Muon([(p, 1)], lr).step()
        changed.append(p.detach())
    assert not torch.equal(changed[0], filters)
    assert torch.allclose(*changed, atol=1e-12)
