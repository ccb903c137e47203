"""The paper's recipe: its files, the table that names the sources, and the keys that only it uses."""

import math
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from thera.errors import InvalidInput
from thera.networks import Thera, make_network
from thera.networks.spec import Spec
from thera.training.config import Config
from thera.training.data import Sampler
from thera.training.loop import Run
from thera.training.objective import objective
from thera.training.run import initial_network

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "configs" / "paper").glob("*.toml"))


def table():
    page = (ROOT / "docs" / "training.md").read_text("utf-8").partition("### The paper's recipe")[2]
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.+) \|$", page, re.MULTILINE)
    return {key: (tomllib.loads(f"value = {value}")["value"], source) for key, value, source in rows}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_key_of_a_file_is_in_the_table_with_its_source(path):
    stated = table()
    raw = tomllib.loads(path.read_text("utf-8"))
    network = raw.pop("network")
    assert f"{network['backbone']}-{network['variant']}" == path.stem
    given = {f"{section}.{key}": value for section, values in raw.items() for key, value in values.items()}
    assert given == {key: value for key, (value, _) in stated.items()}
    assert all("paper" in source or "section" in source or "code" in source for _, source in stated.values())
    assert Config.read(path).optimiser.kappa == pytest.approx(math.sqrt(math.log(4)) / (2 * math.pi**2))


def test_the_bank_and_the_last_layer_start_as_published():
    config = Config.parse({"network": {"variant": "plus"}, "initial": {"bank": 16.0, "head": "lecun"}})
    torch.manual_seed(0)
    network, _ = initial_network(config)
    radius = network.components.norm(dim=0)
    assert 15.5 * math.pi < radius.max() < 16 * math.pi
    assert network.head.bias.abs().max() == 0
    assert network.head.weight.std().item() == pytest.approx(network.head.in_features**-0.5, rel=0.02)


def image(height=90, width=100):
    return np.random.default_rng(0).integers(70, 180, (height, width, 3), np.uint8)


def paper_data(**values):
    data = {"patch": 8, "batch": 5, "scales": [1.2, 4.0], "places": "anywhere"} | values
    return Config.parse({"data": data, "objective": {"tv": 2e-4}, "optimiser": {"steps": 3, "warmup": 0}})


def test_targets_drawn_anywhere_are_different_pixels_of_the_crop_and_know_their_cells():
    config = paper_data()
    sampler = Sampler([image()], config.data)
    torch.manual_seed(0)
    numbers = sampler.draw(5)
    batch, crops = sampler.build(numbers), sampler._crops(numbers)
    pixels = sampler.pixels[crops.indices(sampler.largest)].float()
    row, column = batch.cell // 8, batch.cell % 8
    at = (torch.stack([row, column], -1) + 0.5 + batch.x) * (crops.size / 8).view(-1, 1, 1, 1, 1) - 0.5
    whole = at.round().long()
    torch.testing.assert_close(at, whole.float(), atol=1e-3, rtol=0)
    assert batch.x.abs().max() <= 0.5 + 1e-6
    for n in range(5):
        i, j = whole[n].reshape(-1, 2).T
        assert max(i.max(), j.max()) < crops.size[n]
        assert len(set(zip(i.tolist(), j.tolist(), strict=True))) == 64
        torch.testing.assert_close(batch.target[n].reshape(-1, 3), pixels[n, i, j] / 255)
    assert (batch.cell.flatten(1).sort().values != torch.arange(64)).any()  # not one in every cell


@pytest.mark.parametrize("variant", ["air", "liif"])
def test_fields_read_at_scattered_points_equal_those_read_in_every_cell(variant):
    torch.manual_seed(0)
    network = make_network(Spec("edsr", variant))
    if isinstance(network, Thera):
        network.reset_fields(small=False)
    picture, t = torch.rand(2, 3, 6, 6), torch.tensor([0.25, 0.1])
    x = torch.rand(2, 6, 6, 1, 2) - 0.5
    with torch.no_grad():
        features = network.features(picture)
        plain, _ = network.field(features, picture, x, t)
        order = torch.stack([torch.randperm(36) for _ in range(2)])
        moved = torch.stack([p.flatten(0, 1)[o].view_as(p) for p, o in zip(x, order, strict=True)])
        value, _ = network.scattered_field(features, picture, order.view(2, 6, 6, 1), moved, t)
    wanted = torch.stack([p.flatten(0, 1)[o].view_as(p) for p, o in zip(plain, order, strict=True)])
    torch.testing.assert_close(value, wanted, atol=1e-5, rtol=1e-5)


def test_crops_read_larger_are_reduced_by_bicubic_before_anything_else():
    from PIL import Image

    config = paper_data(shrink=[0.5, 2.0], places="cells")
    sampler = Sampler([image()], config.data)
    torch.manual_seed(2)
    numbers = sampler.draw(8)
    crops = sampler._crops(numbers)
    assert (crops.read == crops.size).any()
    assert (crops.read > 1.3 * crops.size).any()
    seen = sampler._pixels(crops)
    whole = sampler.pixels[crops.indices(64)]
    for n, (m, size) in enumerate(zip(crops.read.tolist(), crops.size.tolist(), strict=True)):
        read = Image.fromarray(whole[n, :m, :m].numpy())
        wanted = np.asarray(read.resize((size, size), Image.Resampling.BICUBIC), np.float32)
        # Pillow also rounds between its two passes.
        np.testing.assert_allclose(seen[n, :size, :size].numpy(), wanted, atol=2)
    assert torch.isfinite(sampler.build(numbers).source).all()


def test_the_published_recipe_trains():
    config = Config.read(
        FILES[0], ["data.patch=8", "data.batch=2", "optimiser.steps=2", "data.shrink=[0.5, 2.0]"]
    )
    torch.manual_seed(0)
    run = Run(config, Sampler([image()], config.data), initial_network(config)[0], 2)
    assert isinstance(run.optimisers["optimiser"], torch.optim.AdamW)
    before = run.network.kappa.item()
    run.step()
    run.step()
    assert math.isfinite(run.report())
    assert run.network.kappa.item() != before
    torch.testing.assert_close(run.averages, run.weights)  # no average


def test_an_error_far_from_its_own_cell_is_that_of_the_pixel_there():
    # A constant picture is fitted by amplitudes of 0: whatever cells the targets lie in, the distance is 0.
    config = paper_data()
    sampler = Sampler([np.full((60, 60, 3), 90, np.uint8)], config.data)
    network = make_network(Spec())
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.zero_()
    _, l1 = objective(network, sampler.build(sampler.draw(2)), config.objective)
    assert l1.item() < 1e-6


def test_keys_that_do_not_go_together_are_refused():
    for section in ({"teacher": {"model": "edsr-pro"}}, {"objective": {"ensemble_weight": 0.5}}):
        with pytest.raises(InvalidInput, match="anywhere"):
            Config.parse({"data": {"places": "anywhere"}} | section)
    with pytest.raises(InvalidInput, match=r"data\.shrink"):
        Config.parse({"data": {"shrink": [0.5, 0.5]}})
