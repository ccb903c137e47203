"""Decoders of other methods, each against a direct evaluation of its equations at single points."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

from thera.errors import ModelError
from thera.evaluation.resize import resize
from thera.networks import Spec, make_network
from thera.networks.decoders import DECODERS
from thera.networks.decoders.ciaosr import CrossScale
from thera.networks.decoders.clit import runs
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


def perceptron(cell_mlp, inputs):
    """A `CellMLP` of its inputs in a row, as published."""
    return cell_mlp.mlp(torch.relu(cell_mlp.first(torch.cat(inputs))))


def enlarged(maps, y, x):
    """Bilinear interpolation of 1×C×H×W maps at a point."""
    return sum(weight * maps[0, :, i, j] for (i, j), _, weight in around(y, x))


def test_every_name_has_a_decoder_and_only_those():
    assert set(DECODERS) == set(NAMES)


def test_liif_is_the_blend_of_four_perceptrons(decoded):
    decoder, features, _, colours = decoded("liif")
    unfolded = F.unfold(features, 3, padding=1).view(576, H, W)
    size = 2 * torch.tensor(STEP)
    for (y, x), colour in zip(AT, colours, strict=True):
        expected = torch.zeros(3)
        for (i, j), offset, weight in around(y, x):
            expected += weight * perceptron(decoder.perceptron, [unfolded[:, i, j], offset, size])
        torch.testing.assert_close(colour, expected, rtol=1e-4, atol=1e-5)


def test_metasr_predicts_the_kernel_of_every_output_pixel(decoded):
    decoder, features, _, colours = decoded("metasr")
    padded = F.pad(features, (1, 1, 1, 1))[0]
    for (y, x), colour in zip(AT, colours, strict=True):
        top, left = y - STEP[0] / 2, x - STEP[1] / 2
        i, j = max(math.floor(top + 1e-6), 0), max(math.floor(left + 1e-6), 0)
        kernel = decoder.mlp(torch.tensor([top - i, left - j, STEP[0]])).view(64, 3, 3, 3)
        expected = torch.einsum("cij,cijo->o", padded[:, i : i + 3, j : j + 3], kernel)
        torch.testing.assert_close(colour, expected, rtol=1e-4, atol=1e-4)


def test_lte_is_a_perceptron_of_waves_blended_over_four_cells(decoded):
    decoder, features, image, colours = decoded("lte")
    coefficient, frequency = decoder.coefficient(features)[0], decoder.frequency(features)[0]
    phase = decoder.phase(2 * torch.tensor(STEP))
    for (y, x), colour in zip(AT, colours, strict=True):
        expected = enlarged(image, y, x)
        for (i, j), offset, weight in around(y, x):
            w = frequency[:, i, j].view(128, 2)
            z = math.pi * (w @ offset + phase)
            waves = torch.cat([z.cos(), z.sin()])
            expected = expected + weight * decoder.mlp(coefficient[:, i, j] * waves)
        torch.testing.assert_close(colour, expected, rtol=1e-4, atol=1e-4)


def test_srno_integrates_over_all_output_pixels(decoded):
    decoder, features, image, colours = decoded("srno")
    rows = []
    for y, x in AT:
        four = list(around(y, x))
        offsets = [offset for _, offset, _ in four]
        near = [weight * features[0, :, i, j] for (i, j), _, weight in four]
        rows.append(decoder.lift(torch.cat([*offsets, *near, 2 * torch.tensor(STEP)])))
    v = torch.stack(rows)
    for block in decoder.attention:
        heads = []
        for h in range(16):
            q, k, u = block.qkv(v).view(len(AT), 16, 3, 16)[:, h].unbind(1)
            k, u = (
                (t - t.mean(1, keepdim=True)) / (t.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
                for t in (k, u)
            )
            k = k * block.norm_k.weight[h] + block.norm_k.bias[h]
            u = u * block.norm_v.weight[h] + block.norm_v.bias[h]
            heads.append(q @ (k.T @ u) / len(AT))
        v = v + block.project(F.gelu(block.expand(v + torch.cat(heads, 1))))
    expected = decoder.project(F.gelu(decoder.expand(v)))
    expected = expected + torch.stack([enlarged(image, y, x) for y, x in AT])
    torch.testing.assert_close(colours, expected, rtol=1e-4, atol=1e-5)


def test_cuf_is_a_depthwise_kernel_of_cosines(decoded):
    decoder, features, _, colours = decoded("cuf")
    padded = F.pad(decoder.widen(features), (1, 1, 1, 1))[0]
    for (y, x), colour in zip(AT, colours, strict=True):
        i, j = math.floor(y), math.floor(x)
        total = torch.zeros(256)
        for k in range(3):
            for m in range(3):
                about = torch.tensor([STEP[0], y - i, x - j, k / 2, m / 2])
                waves = torch.cos(math.pi * about[:, None] * torch.arange(1, 9)).flatten()
                total += decoder.kernel(waves) * padded[:, i + k, j + m]
        for layer in decoder.layers:
            total = F.gelu(layer(total))
        torch.testing.assert_close(colour, decoder.project(total), rtol=1e-4, atol=1e-4)


def test_ciaosr_never_holds_the_scores_of_all_pairs_of_cells():
    """80×80 cells have 6,400 × 1,600 pairs, 41 MB of scores; a picture of 300×300 would need 8 GB."""
    attention, features = CrossScale().requires_grad_(False), torch.rand(1, 64, 80, 80)
    with torch.profiler.profile(profile_memory=True) as profile:
        attention(features)
    assert 0 < max(event.self_cpu_memory_usage for event in profile.events()) < 10e6


def test_ciaosr_chooses_among_four_cells_by_its_own_features(decoded):
    decoder, features, _, colours = decoded("ciaosr")
    unfolded = F.unfold(features, 3, padding=1).view(576, H, W)
    branch = decoder.cross_scale
    half = F.avg_pool2d(features, 2, ceil_mode=True)
    q, k, v = (
        f(x).flatten(2)[0] for f, x in ((branch.query, features), (branch.key, half), (branch.value, half))
    )
    other = (v @ torch.softmax(q.T @ k / 32**0.5, 1).T).view(64, H, W)
    size = 2 * torch.tensor(STEP)
    for (y, x), colour in zip(AT, colours, strict=True):
        scores, values = [], []
        for (i, j), offset, _ in around(y, x):
            key, value = unfolded[:, i, j], torch.cat([unfolded[:, i, j], other[:, i, j]])
            own = unfolded[:, math.floor(y), math.floor(x)]
            scores.append(own @ (key * perceptron(decoder.key, [key, offset, size])) / 24)
            values.append(value * perceptron(decoder.value, [value, offset, size]))
        mixed = torch.softmax(torch.stack(scores), 0) @ torch.stack(values)
        torch.testing.assert_close(colour, decoder.colour(mixed), rtol=1e-4, atol=1e-4)


def local_attention(block, features, y, x, step):
    """The direct form of `LocalAttention` at one point."""
    query, key, value = (conv(features) for conv in (block.query, block.key, block.value))
    q = enlarged(query, y, x).view(8, 32)
    cells = [(math.floor(y) + a, math.floor(x) + b) for a in range(-3, 4) for b in range(-3, 4)]
    scores = torch.full((49, 8), -math.inf)
    values = torch.zeros(49, 8, 32)
    for n, (i, j) in enumerate(cells):
        if 0 <= i < H and 0 <= j < W:
            offset = torch.tensor([y - i - 0.5, x - j - 0.5]) / 4
            angles = math.pi * offset[:, None] * 2.0 ** torch.arange(10)
            bias = block.position(torch.cat([angles.cos(), angles.sin()], 1).flatten())
            scores[n] = (q * key[0, :, i, j].view(8, 32)).sum(1) / 32**0.5 + bias
            values[n] = value[0, :, i, j].view(8, 32)
    weighted = torch.softmax(scores, 0)[..., None] * values
    return block.mlp(torch.relu(block.first(torch.cat([weighted.flatten(), 2 * step]))))


@pytest.fixture(params=[False, True], ids=["cell by cell", "point by point"])
def by_point(request):
    """Local attention has two forms: point by point where there are gradients, else cell by cell."""
    with torch.set_grad_enabled(request.param):
        yield


def test_clit_adds_three_local_attentions_from_coarse_to_fine(by_point, decoded):
    decoder, features, image, colours = decoded("clit")
    for (y, x), colour in zip(AT, colours, strict=True):
        expected = enlarged(image, y, x)
        for stage, coarser in zip(decoder.stages, (4, 2, 1), strict=True):
            expected = expected + local_attention(stage, features, y, x, coarser * torch.tensor(STEP))
        torch.testing.assert_close(colour, expected, rtol=1e-4, atol=1e-4)


def test_msit_attends_to_features_mixed_over_four_scales(by_point, decoded):
    decoder, features, image, colours = decoded("msit")
    mixing = decoder.multi_scale
    seen = []
    for conv, axis, by in zip(mixing.convs, (2, 2, 3, 3), (1, -1, 1, -1), strict=True):
        moved = conv(features).roll(by, axis)
        edge = 0 if by == 1 else -1
        moved.select(axis, edge).zero_()
        seen.append(moved)
    mixed = features + mixing.project(F.gelu(mixing.expand(torch.cat(seen, 1))))
    for (y, x), colour in zip(AT, colours, strict=True):
        expected = enlarged(image, y, x) + local_attention(decoder.attention, mixed, y, x, torch.tensor(STEP))
        torch.testing.assert_close(colour, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(3, 4), (2 * H, 2 * W), (13, 18)])
def test_local_attention_cell_by_cell_equals_point_by_point(size):
    """For two pictures at once, one read from its end; points of a cell do not all follow each other."""
    torch.manual_seed(0)
    attention = DECODERS["msit"]().attention.requires_grad_(False)
    rows, cols = ((torch.arange(n) + 0.5) * cells / n for n, cells in zip(size, (H, W), strict=True))
    at = torch.stack(torch.meshgrid(rows, cols, indexing="ij"), -1).view(1, -1, 2)
    points = Points(torch.cat([at, at.flip(1)]), torch.tensor([[STEP]]))
    maps = attention.maps(torch.randn(2, 64, H, W))
    expected = attention.by_point(maps, points)
    torch.testing.assert_close(attention.by_cell(maps, points), expected, rtol=1e-5, atol=1e-6)


def test_a_cell_with_very_many_points_is_shared_out_over_several_runs():
    """70 points in one cell and 70 with a cell of their own would else be 71 × 70 rows."""
    cells = torch.cat([torch.zeros(70, 2), torch.arange(70)[:, None].expand(-1, 2) + 1.0])[None]
    first, member = runs(cells)
    assert member.numel() <= 3 * 140
    assert set(member.flatten().tolist()) == set(range(140))
    torch.testing.assert_close(cells[0, first], cells[0, member[:, -1]])


@pytest.mark.parametrize("size", [(5 * H, 5 * W), (2 * H, 2 * W), (7, 11)])
def test_sinc_is_lanczos_of_the_picture_at_four_times(decoded, size):
    decoder, features, image, _ = decoded("sinc")
    large = decoder.up(features)[0].permute(1, 2, 0).numpy()
    grid = np.stack(np.meshgrid(*((np.arange(n) + 0.5) for n in size), indexing="ij"), -1) / size * (H, W)
    step = torch.tensor([[[H / size[0], W / size[1]]]])
    points = Points(torch.tensor(grid.reshape(1, -1, 2), dtype=torch.float32), step)
    colours = decoder(decoder.maps(features, image), points).view(*size, 3)
    np.testing.assert_allclose(colours, resize(large, size, "lanczos"), atol=1e-4)


#: Published, or stated in the papers; docs/methods.md says what is known of the others.
PARAMETERS = {"metasr": 445_120, "liif": 346_883, "lte": 493_827, "srno": 794_883, "ciaosr": 1_400_000}


@pytest.mark.parametrize("name", PARAMETERS)
def test_decoders_have_the_published_number_of_parameters(name):
    count = sum(p.numel() for p in DECODERS[name]().parameters())
    assert count == pytest.approx(PARAMETERS[name], rel=0.01 if name == "ciaosr" else 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_decoder_states_its_own_number_of_parameters(name):
    count = sum(p.numel() for p in DECODERS[name]().parameters())
    assert f"{count:,} parameters" in " ".join(DECODERS[name].__doc__.split())


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
    with torch.no_grad():
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


@pytest.mark.parametrize("name", NAMES)
def test_a_decoder_is_compiled_as_one_graph_with_the_same_gradients(name, monkeypatch):
    module = torch.nn.Module.compile
    whole = {"backend": "eager", "fullgraph": True}  # no code is generated; a graph that breaks is an error
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **given: module(self, **given, **whole))
    torch.manual_seed(0)
    network = make_network(Spec("edsr", name))
    image, x, t = torch.rand(2, 3, 4, 5), torch.rand(2, 4, 5, 1, 2) - 0.5, torch.tensor([0.1, 0.3])
    features = network.features(image).detach().requires_grad_()

    def gradient():
        value, _ = network.field(features, image, x, t)
        return torch.autograd.grad(value.abs().sum(), features)[0]

    expected = gradient()
    torch._dynamo.reset()
    counters.clear()
    network.compile_blocks()
    torch.testing.assert_close(gradient(), expected, rtol=1e-4, atol=1e-6)
    assert counters["stats"]["unique_graphs"] == 1


def test_a_decoder_has_no_components_and_an_unknown_one_is_named():
    with pytest.raises(ModelError, match="edsr-liif is no heat field"):
        Spec("edsr", "liif", components=8)
    with pytest.raises(
        ModelError, match="unknown variant 'lief': expected air, plus, pro, sinc, metasr, liif"
    ):
        Spec("edsr", "lief")
