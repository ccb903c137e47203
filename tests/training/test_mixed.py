"""Batches of pairs and of ordinary pictures together."""

import numpy as np
import pytest
import torch
from PIL import Image

from thera.errors import InvalidInput, TheraError
from thera.evaluation.pairs import PicturePair
from thera.evaluation.resize import imresize
from thera.training import checkpoint, loop
from thera.training.alignment import Aligner, aligned_pairs
from thera.training.config import Config
from thera.training.data import Sampler
from thera.training.images import read_images
from thera.training.pairs import MixedSampler, PairSampler
from thera.training.run import initial_network, start

SHARE = {"paired": 0.25, "batch": 8, "targets": 2}


def scene():
    y, x = np.mgrid[:90, :120] / 9.0
    return (127 + 90 * np.sin(x + np.cos(y))[..., None] * [1, 0.5, -1]).astype(np.uint8)


def a_pair():
    """Half of its pixels count little, and its ratio is 3."""
    weight = np.full((30, 40), 255, np.uint8)
    weight[:, 20:] = 51
    return PicturePair(imresize(scene(), (30, 40)), scene(), weight, (0.0, 0.0))


def stored_pair(folder):
    for name, pixels in (("low", imresize(scene(), (30, 40))), ("high", scene())):
        (folder / name).mkdir(parents=True)
        Image.fromarray(pixels).save(folder / name / "a.png")
    return folder


def mixed(config, photos):
    pictures = Sampler(read_images([photos], 48), config.data, degradation=config.degradation)
    return MixedSampler(PairSampler([a_pair()], config.data), pictures)


def run_of(config, photos):
    torch.manual_seed(config.seed)
    return loop.Run(config, mixed(config, photos), initial_network(config)[0], config.optimiser.steps)


def test_a_batch_is_pairs_first_and_then_pictures_that_count_in_full(small, photos):
    config = small(data=SHARE | {"scales": (1.5, 2.0)}, degradation={"noise": 1.0, "noise_level": (9, 9)})
    sampler = mixed(config, photos)
    torch.manual_seed(0)
    u = sampler.draw(8)
    batch = sampler.build(u)
    assert batch.paired == 2 and len(batch.t) == 8
    torch.testing.assert_close(batch.t[:2], torch.full((2,), 1 / 9))
    assert (batch.t[2:] >= 1 / 4).all()  # pictures have the scales of the configuration
    assert (batch.weight[2:] == 1).all() and batch.weight[:2].min() < 0.3
    torch.manual_seed(0)
    pairs = sampler.pairs.build(sampler.pairs.draw(2))
    assert torch.equal(pairs.source, batch.source[:2])  # without noise
    pictures = sampler.pictures.build(sampler.pictures.draw(6))
    for name in ("source", "target", "x", "t"):
        assert torch.equal(getattr(pictures, name), getattr(batch, name)[2:])
    assert not torch.equal(pictures.source, pictures.clean)


def test_only_pairs_are_aligned(small, photos):
    config = small(data=SHARE)
    sampler, network, aligner = mixed(config, photos), initial_network(config)[0], Aligner()
    torch.nn.init.normal_(network.head.weight, std=0.05)
    torch.nn.init.constant_(aligner.last.bias, 0.5)  # moves whatever it sees
    batch = sampler.build(sampler.draw(8))
    features = torch.randn(8, 64, 12, 12)
    moved, *fields = aligned_pairs(network, features, batch, aligner)
    still = network.field(features, batch.source, batch.x, batch.t)
    for with_, without in zip(fields, still, strict=True):
        torch.testing.assert_close(with_[2:], without[2:])
        assert (with_[:2] - without[:2]).abs().mean() > 0.01
    assert torch.equal(moved.target[2:], batch.target[2:])
    assert not torch.equal(moved.target[:2], batch.target[:2])


def test_with_and_without_alignment_a_run_sees_the_same_patches(small, photos):
    batches = [run_of(small(data=SHARE, objective={"align": a}), photos)._batch() for a in (False, True)]
    assert torch.equal(batches[0].source, batches[1].source)


def test_a_resumed_run_is_the_same_to_the_last_bit(small, photos, tmp_path):
    config = small(
        data=SHARE, objective={"align": True}, degradation={"blur": 0.5}, optimiser={"steps": 4, "rate": 1e-3}
    )
    whole = run_of(config, photos)
    for step in range(4):
        if step == 2:
            checkpoint.save(tmp_path / loop.STATE, *whole.state())
        whole.step()
    second = run_of(config, photos)
    second.restore(*checkpoint.load(tmp_path / loop.STATE))
    second.step()
    second.step()
    for part in ("network", "average", "aligner"):
        one, other = (getattr(run, part).state_dict() for run in (whole, second))
        assert all(torch.equal(one[k], other[k]) for k in one)


def test_processes_build_equal_parts_of_the_same_batch(small, photos, monkeypatch):
    run = run_of(small(data=SHARE), photos)
    parts = []
    for run.world, run.rank in ((1, 0), (2, 0), (2, 1)):
        torch.manual_seed(5)
        parts.append(run._batch())
    whole, *halves = parts
    assert [half.paired for half in halves] == [1, 1]
    for i, half in enumerate(halves):
        own = [i, *range(2 + 3 * i, 5 + 3 * i)]
        assert torch.equal(half.source, whole.source[own]) and torch.equal(half.weight, whole.weight[own])
    for name, value in (("is_initialized", True), ("get_world_size", 4), ("get_rank", 0)):
        monkeypatch.setattr(loop.dist, name, lambda value=value: value)
    with pytest.raises(TheraError, match="2 pairs of a batch do not divide among 4 processes"):
        run_of(small(data=SHARE), photos)


def test_a_model_of_pairs_and_pictures_says_what_it_saw(small, photos, tmp_path):
    from thera.models.weights import read_header

    config = small(data=SHARE, optimiser={"steps": 2}, degradation={"noise": 0.5})
    pairs, said = [stored_pair(tmp_path / "pairs")], []
    options = {"pairs": pairs, "device": "cpu", "show": lambda _: None, "say": said.append}
    network = start(config, [photos], tmp_path / "run", **options)
    assert all(torch.isfinite(p).all() for p in network.parameters())
    about = read_header(tmp_path / "run" / loop.WEIGHTS)
    (stage,) = about["training"]
    assert about["restores"] and (stage["images"], stage["pairs"]) == (5, 1)
    assert said[0].startswith("5 images")


@pytest.mark.parametrize(
    ("given", "sections", "message"),
    [
        ("data", {"data": {"paired": 0.5}}, "share of pairs in a batch: give --pairs"),
        ("pairs", {"data": {"paired": 0.5}}, "give --data, too"),
        ("pairs", {"degradation": {"noise": 0.5}}, "Only ordinary pictures are degraded"),
        ("pairs data", {}, r"data\.paired = 1 leaves no part"),
        ("pairs data", {"data": {"paired": 0.5}, "teacher": {"model": "edsr-air"}}, "without a teacher"),
    ],
)
def test_what_does_not_go_together_is_refused(small, photos, tmp_path, given, sections, message):
    pairs = [stored_pair(tmp_path / "pairs")] if "pairs" in given else []
    with pytest.raises(InvalidInput, match=message):
        start(small(**sections), [photos] if "data" in given else [], tmp_path / "run", pairs=pairs)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data": {"paired": 0.0}}, r"data\.paired = .*: expected a share above 0"),
        ({"data": {"paired": 1.5}}, r"data\.paired = .*: expected a share above 0"),
        ({"data": {"paired": 0.1, "batch": 4}}, "a part of the 4 patches"),
        ({"data": {"paired": 0.5, "places": "anywhere"}}, r"data\.places"),
        ({"data": {"paired": 0.5}, "objective": {"align": True, "ensemble_weight": 0.5}}, "ensemble_weight"),
    ],
)
def test_impossible_shares_are_refused(values, message):
    with pytest.raises(InvalidInput, match=message):
        Config.parse(values)
