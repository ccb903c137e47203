"""Decoders of other methods, each against a direct evaluation of its equations at single points."""

import math

import pytest
import torch
import torch.nn.functional as F

from thera.errors import ModelError
from thera.networks import Spec, make_network
from thera.networks.decoders import DECODERS
from thera.networks.network import Points
from thera.networks.spec import DECODERS as NAMES
from thera.networks.spec import STD

H, W = 5, 7
STEP = (0.4, 0.3)  # the sides of an output pixel, in input pixels
AT = [(0.1, 0.2), (2.3, 3.9), (2.5, 3.5), (4.9, 6.8), (1.0, 5.0)]  # border, inside, centre, corner, edge


@pytest.fixture
def decoded():
    """decoded(name): the decoder with random weights, its features and image, and its colours at AT."""

    def make(name):
        torch.manual_seed(0)
        decoder = DECODERS[name]().eval().requires_grad_(False)
        features, image = torch.randn(1, 64, H, W), torch.randn(1, 3, H, W)
        points = Points(torch.tensor([AT]), torch.tensor([[STEP]]))
        return decoder, features, image, decoder(decoder.maps(features, image), points)[0]

    return make


def around(y, x):
    """The four cells around a point: (row, column), offset in cells times two, weight."""
    sides = []
    for p, n in ((y, H), (x, W)):
        low = math.floor(p - 0.5 + 1e-6)
        cells = [min(max(c, 0), n - 1) for c in (low, low + 1)]
        offsets = [2 * (p - c - 0.5) for c in cells]
        near, far = (abs(o) + 1e-9 for o in offsets)
        sides.append(
            [(cells[0], offsets[0], far / (near + far)), (cells[1], offsets[1], near / (near + far))]
        )
    for i, dy, wy in sides[0]:
        for j, dx, wx in sides[1]:
            yield (i, j), torch.tensor([dy, dx]), wy * wx


def run(mlp, x):
    return mlp(x[None])[0]


def test_every_name_has_a_decoder_and_only_those():
    assert set(DECODERS) == set(NAMES)


def test_liif_is_the_blend_of_four_perceptrons(decoded):
    decoder, features, _, colours = decoded("liif")
    unfolded = F.unfold(features, 3, padding=1).view(576, H, W)
    size = 2 * torch.tensor(STEP)
    for (y, x), colour in zip(AT, colours, strict=True):
        expected = torch.zeros(3)
        for (i, j), offset, weight in around(y, x):
            hidden = decoder.first(torch.cat([unfolded[:, i, j], offset, size]))
            expected += weight * run(decoder.mlp, torch.relu(hidden))
        torch.testing.assert_close(colour, expected, rtol=1e-4, atol=1e-5)


PARAMETERS = {"liif": 346_883}


@pytest.mark.parametrize("name", PARAMETERS)
def test_decoders_have_the_published_number_of_parameters(name):
    assert sum(p.numel() for p in DECODERS[name]().parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", NAMES)
def test_training_and_rendering_ask_for_the_same_colours(name):
    torch.manual_seed(0)
    network = make_network(Spec("edsr", name)).eval().requires_grad_(False)
    image = torch.rand(1, 3, 6, 5)
    features = network.features(image)
    x = torch.tensor([[-0.25, -0.25], [-0.25, 0.25], [0.25, -0.25], [0.25, 0.25]]).expand(1, 6, 5, 4, 2)
    value, slope = network.field(features, image, x, torch.tensor([0.25]))
    assert slope is None
    inside = image.permute(0, 2, 3, 1).unsqueeze(3) + STD * value  # the four output pixels of each cell at ×2
    grid = torch.stack(torch.meshgrid(torch.arange(12), torch.arange(10), indexing="ij"), -1).view(1, -1, 2)
    points = Points((grid + 0.5) / 2, torch.full((1, 1, 2), 0.5))
    colours = network.colours(network.maps(features, image), points).view(6, 2, 5, 2, 3).transpose(1, 2)
    torch.testing.assert_close(inside[0], colours.reshape(6, 5, 4, 3), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_an_output_pixel_depends_on_the_stated_neighbours_only(name):
    reach = Spec("edsr", name).neighbours
    if reach > 20:
        pytest.skip("it sees the whole picture")
    torch.manual_seed(0)
    decoder = DECODERS[name]().eval()
    size = 2 * reach + 5
    features = torch.randn(1, 64, size, size, requires_grad=True)
    image = torch.randn(1, 3, size, size, requires_grad=True)
    centre = size // 2
    at = centre + torch.rand(1, 40, 2) * 0.98 + 0.01
    decoder(decoder.maps(features, image), Points(at, torch.full((1, 1, 2), 0.3))).square().sum().backward()
    for leaf in (features, image):
        if leaf.grad is None:
            continue
        rows, cols = leaf.grad[0].abs().sum(0).nonzero().T
        assert max((rows - centre).abs().max(), (cols - centre).abs().max()) <= reach
    assert features.grad is not None


def test_a_decoder_has_no_components_and_an_unknown_one_is_named():
    with pytest.raises(ModelError, match="edsr-liif is no heat field"):
        Spec("edsr", "liif", components=8)
    with pytest.raises(ModelError, match="unknown variant 'lief': expected air, plus, pro, liif"):
        Spec("edsr", "lief")
