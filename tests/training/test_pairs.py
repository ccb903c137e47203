"""Pairs of pictures are found, brought together and sampled where they show the same."""

import numpy as np
import pytest
import torch
from PIL import Image
from ramps import errors_by_position

from thera.errors import InvalidInput
from thera.evaluation.pairs import PicturePair, find_pairs, matched, read_pairs
from thera.evaluation.resize import imresize
from thera.models.weights import read_header
from thera.training.config import Data
from thera.training.pairs import PairSampler


def scene(height=180, width=210, seed=0):
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(20, 230, (height // 6, width // 6, 3), np.uint8))
    return np.array(small.resize((width, height), Image.Resampling.BICUBIC))


def store(folder, name, pixels):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def a_pair(folder, low=None, high=None):
    high = scene() if high is None else high
    low = imresize(high, (60, 70)) if low is None else low
    return store(folder, "low/a.png", low), store(folder, "high/a.png", high)


def test_a_pair_is_brought_together(tmp_path):
    """The low picture is darker, redder and shifted, and a car stands in it that had gone in the high one."""
    whole = scene(200, 240)
    high, low = whole[:180, :210], imresize(whole[6:186, 12:222], (60, 70)).astype(float)
    low = low * [0.9, 0.7, 0.7] + [10, 0, 5]
    low[20:32, 30:44] = 255
    pair = matched(*a_pair(tmp_path, low.round().clip(0, 255).astype(np.uint8), high))
    assert pair.ratio == (3, 3)
    assert pair.shift == pytest.approx((2, 4), abs=0.2)
    reduced = imresize(pair.high, (60, 70))[2:, 4:].astype(float)
    same = np.ones((58, 66), bool)
    same[15:36, 25:48] = False
    assert abs(reduced - pair.low[:58, :66])[same].mean() < 4  # colours agree
    assert pair.weight[24:28, 34:40].max() < 60 < 200 < np.median(pair.weight)


def test_targets_are_the_high_pictures_pixels_at_their_positions():
    y, x = np.mgrid[:130, :150]
    whole = np.stack([y, x, y], -1).astype(np.uint8)
    shifted = PicturePair(
        imresize(whole[4:124, 8:148], (60, 70)), whole[:120, :140], np.full((60, 70), 255, np.uint8), (2, 4)
    )
    sampler = PairSampler([shifted], Data(patch=16, targets=3))
    torch.manual_seed(0)
    batch = sampler.build(sampler.draw(60))
    assert batch.source.shape == (60, 3, 16, 16) and batch.weight.shape == (60, 16, 16, 3, 1)
    torch.testing.assert_close(batch.t, torch.full((60,), 0.25))
    whole_patches = (batch.weight == 1).flatten(1).all(1)  # none of their targets lies outside
    errors = errors_by_position(batch)[whole_patches]
    assert len(errors) > 20 and errors.amin(1).max() < 0.55
    assert len(set(errors.argmin(1).tolist())) == 8  # in every orientation


def test_pixels_outside_the_high_picture_and_moved_ones_do_not_count():
    high = np.zeros((60, 60, 3), np.uint8)
    pair = PicturePair(np.zeros((20, 20, 3), np.uint8), high, np.full((20, 20), 51, np.uint8), (-8.0, 0.0))
    batch = (sampler := PairSampler([pair], Data(patch=20))).build(sampler.draw(4))
    counted = batch.weight[..., 0, 0]
    assert counted.unique().tolist() == pytest.approx([0.0, 0.2])
    assert (counted == 0).float().mean() == pytest.approx(0.4)


def test_both_layouts_are_found(tmp_path):
    a_pair(tmp_path / "zoom")
    for letter in "LH":
        store(tmp_path / "City100_NikonD5500", f"001{letter}.PNG", scene())
    zoom, city = sorted(find_pairs(tmp_path), key=lambda pair: "City" in str(pair[0]))
    assert zoom[0].parent.name == "low" and city[1].name == "001H.PNG"
    assert matched(*city).low.shape == (62, 72, 3)  # reduced by 2.9, as the camera enlarged


def a_series(folder, scenes=("154", "155"), sides=(90, 60, 45)):
    """One view at several focal lengths for each scene, as COZ stores them: names do not tell the sizes."""
    for seed, name in enumerate(scenes):
        for number, side in enumerate(sides):
            store(folder, f"{name}/{number}.png", imresize(scene(180, 180, seed), (side, side)))


def test_cozs_scenes_are_pairs_of_their_largest_picture(tmp_path):
    a_series(tmp_path / "train_LR", sides=(60, 90, 45))
    found = [(low.parent.name, low.name, high.name) for low, high in find_pairs(tmp_path / "train_LR")]
    assert found == [(name, low, "1.png") for name in ("154", "155") for low in ("0.png", "2.png")]
    ratios = [pair.ratio[0] for pair in read_pairs([tmp_path / "train_LR"], 16)]
    assert ratios == [1.5, 2.0, 1.5, 2.0]


@pytest.mark.parametrize("name", ["test_LR", "test_LR_add"])
def test_cozs_test_scenes_have_their_high_pictures_beside_them_in_order(tmp_path, name):
    a_series(tmp_path / name, sides=(90, 60))
    for seed, high in enumerate(("a.png", "b.png")):
        store(tmp_path / "test_HR", high, scene(180, 180, seed))
    found = [(low.parent.name, high.name) for low, high in find_pairs(tmp_path / name)]
    assert found == [("154", "a.png")] * 2 + [("155", "b.png")] * 2
    assert [pair.ratio[0] for pair in read_pairs([tmp_path / name], 16)] == [2.0, 3.0] * 2
    (tmp_path / "test_HR" / "a.png").unlink()
    with pytest.raises(InvalidInput, match="test_HR holds 1 pictures for the 2 scenes of test_LR"):
        read_pairs([tmp_path / name], 16)


def test_a_series_without_pairs_is_refused_by_name(tmp_path):
    (tmp_path / "train_LR").mkdir()
    with pytest.raises(InvalidInput, match="train_LR holds no pairs"):
        read_pairs([tmp_path / "train_LR"], 16)
    a_series(tmp_path / "train_LR", sides=(90,))
    with pytest.raises(InvalidInput, match=r"0\.png is the only picture of its scene"):
        read_pairs([tmp_path / "train_LR"], 16)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: f.mkdir(), "holds no pairs"),
        (lambda f: store(f, "low/a.png", scene()), r"a\.png has no high partner"),
        (lambda f: a_pair(f, scene(60, 70, seed=9)), r"a\.png and a\.png show different things"),
        (lambda f: a_pair(f, imresize(scene(), (60, 90))), "one ratio"),
        (lambda f: a_pair(f, scene()), "as large as its partner"),
        (lambda f: a_pair(f, imresize(scene(), (12, 14))), "smaller than a patch of 16"),
    ],
)
def test_bad_pairs_are_refused_by_name(tmp_path, make, message):
    make(tmp_path / "pairs")
    with pytest.raises(InvalidInput, match=message):
        read_pairs([tmp_path / "pairs"], 16)


def test_a_run_on_pairs_ends_with_a_model(tmp_path, small):
    from thera.training.run import start

    a_pair(tmp_path / "pairs")
    config = small(optimiser={"steps": 3, "rate": 1e-4}, objective={"align": True})
    options = {"pairs": [tmp_path / "pairs"], "device": "cpu", "show": lambda _: None, "say": lambda _: None}
    network = start(config, [], tmp_path / "run", **options)
    assert all(torch.isfinite(p).all() for p in network.parameters())
    (stage,) = read_header(tmp_path / "run" / "weights.safetensors")["training"]
    assert stage["images"] == stage["pairs"] == 1
