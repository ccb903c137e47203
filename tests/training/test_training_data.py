"""Batches are what the paper says they are."""

import io
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image
from ramps import errors_by_position, ramp

from thera.errors import InvalidInput
from thera.evaluation.resize import resize
from thera.training.config import Data
from thera.training.data import Sampler, log_spread, reducing_weights, stratified
from thera.training.images import read_images


def test_bicubic_weights_are_those_of_evaluation_away_from_the_border():
    n, patch = torch.tensor([61]), 24
    ours = reducing_weights(n, patch, 61, "bicubic")[0].double().numpy()
    theirs = resize(np.eye(61), (patch, 61))
    np.testing.assert_allclose(ours[3:-3], theirs[3:-3], atol=1e-6)
    np.testing.assert_allclose(ours.sum(1), 1, atol=1e-6)


@pytest.mark.parametrize("scale", [1.2, 1.5, 2, 3.3, 4])
def test_every_target_lies_in_its_own_cell(scale):
    u = torch.rand(3, 20, 20, 2, 2)
    at, x = stratified(u, torch.full((3,), scale))
    assert x.abs().max() <= 0.5 + 1e-6
    cell = torch.stack(torch.meshgrid(torch.arange(20), torch.arange(20), indexing="ij"), -1)[
        None, :, :, None
    ]
    torch.testing.assert_close((at + 0.5) / scale, cell + 0.5 + x, atol=1e-5, rtol=0)


def test_all_pixels_of_a_cell_are_drawn():
    u = torch.rand(400, 4, 4, 1, 2, generator=torch.Generator().manual_seed(0))
    at, _ = stratified(u, torch.full((400,), 3.0))
    assert {tuple(p) for p in at[:, 1, 2, 0].tolist()} == {(i, j) for i in (3, 4, 5) for j in (6, 7, 8)}


@pytest.mark.parametrize("spread", ["uniform", "log"])
def test_targets_are_the_pixels_of_the_picture_at_their_positions(spread):
    config = Data(patch=16, batch=8, scales=(1.2, 4), targets=3, spread=spread)
    sampler = Sampler([ramp()], config)
    torch.manual_seed(3)
    batch = sampler.build(sampler.draw(8))
    assert batch.source.shape == (8, 3, 16, 16) and batch.target.shape == (8, 16, 16, 3, 3)
    assert errors_by_position(batch).amin(1).max() < 0.55


def test_batches_hold_all_eight_orientations():
    sampler = Sampler([ramp()], Data(patch=16, batch=64, scales=(2, 2)))
    torch.manual_seed(0)
    batch = sampler.build(sampler.draw(64))
    down = batch.source[:, :2, -1, 8] - batch.source[:, :2, 0, 8]
    along = batch.source[:, :2, 8, -1] - batch.source[:, :2, 8, 0]
    steps = torch.cat([down, along], 1) * 255  # about ±30 along an axis of the ramp, 0 across it
    seen = {tuple((row / 30).round().int().tolist()) for row in steps}
    assert len(seen) == 8


def test_scales_cover_their_range_and_log_favours_the_small():
    u = torch.rand(4000, generator=torch.Generator().manual_seed(0))
    n = 12 + log_spread(u, 12, 49) * 37
    assert n.min() >= 12 and n.max() < 49
    assert abs((n < (12 * 49) ** 0.5).float().mean() - 0.5) < 0.03


def test_a_small_image_is_drawn_at_the_scales_that_it_has_room_for():
    rng = np.random.default_rng(0)
    dark, light = rng.integers(0, 100, (40, 30, 3), np.uint8), rng.integers(150, 250, (60, 90, 3), np.uint8)
    sampler = Sampler([dark, light], Data(patch=12, scales=(1.5, 4.0)))
    torch.manual_seed(0)
    batch = sampler.build(sampler.draw(1000))
    from_dark = batch.target.flatten(1) < 0.5
    assert (from_dark.all(1) | ~from_dark.any(1)).all()  # nothing of a neighbour in the buffer
    size = 12 * batch.t**-0.5
    for sizes, largest in ((size[from_dark[:, 0]], 30.0), (size[~from_dark[:, 0]], 48.0)):
        torch.testing.assert_close(torch.stack([sizes.min(), sizes.max()]), torch.tensor([18.0, largest]))


def test_sources_are_multiples_of_a_255th(photos):
    sampler = Sampler(read_images([photos], 48), Data(patch=12, batch=4))
    torch.manual_seed(0)
    source = sampler.build(sampler.draw(4)).source * 255
    torch.testing.assert_close(source, source.round(), atol=1e-4, rtol=0)
    assert source.min() >= 0 and source.max() <= 255


def test_images_come_from_folders_and_tar_files_and_bad_ones_are_named(photos, tmp_path):
    (photos / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnot really")
    Image.new("RGB", (20, 20)).save(photos / "tiny.png")
    Image.new("I;16", (90, 90)).save(photos / "deep.png")
    archive = tmp_path / "more.tar"
    with tarfile.open(archive, "w") as tar:
        data = io.BytesIO()
        Image.fromarray(ramp()).save(data, "PNG")
        info = tarfile.TarInfo("ramp.png")
        info.size = data.tell()
        tar.addfile(info, io.BytesIO(data.getvalue()))
    messages = []
    images = read_images([photos, archive], 48, resized=(0.5,), skip=messages.append)
    assert len(images) == 4 + 4 + 1  # at half size the ramp is 45 pixels high: too small
    assert len(messages) == 3 and "broken.png" in messages[0] and "20×20" in messages[2]
    assert "deep.png: its samples have more than 8 bits" in messages[1]
    archive.write_bytes(archive.read_bytes()[:600])
    with pytest.raises(InvalidInput, match=r"more\.tar is damaged or cut short"):
        read_images([archive], 48)


def test_soft_copies_are_as_bright_and_less_sharp(photos):
    crisp, *soft = (image.astype(float) for image in read_images([photos], 48, soft=(0.5, 1.0))[:3])
    slopes = [np.abs(np.diff(image, axis=0)).mean() for image in (crisp, *soft)]
    assert slopes[0] > slopes[1] > slopes[2]
    assert all(abs(image.mean() - crisp.mean()) < 1 for image in soft)


def test_an_image_too_large_for_pillow_is_skipped(photos, monkeypatch):
    messages = []
    with Image.open(photos / "0.png") as image:
        image.resize((400, 400)).save(photos / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 120 * 140)
    assert len(read_images([photos], 48, skip=messages.append)) == 4
    assert len(messages) == 1 and "large.png" in messages[0]


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(InvalidInput, match="No usable image"):
        read_images([tmp_path], 48)
    with pytest.raises(InvalidInput, match="neither a folder nor a tar file"):
        read_images([tmp_path / "missing"], 48)
