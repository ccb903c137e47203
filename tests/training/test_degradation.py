"""Inputs are degraded as cameras and codecs degrade pictures, and only where the configuration says so."""

import hashlib
import io

import numpy as np
import pytest
import torch
from PIL import Image
from ramps import ramp

from thera.errors import InvalidInput
from thera.training.config import Config, Data, Degradation
from thera.training.data import Sampler, reducing_weights
from thera.training.degradation import DRAWN, camera_noise, degraded, discs, filtered, gaussians
from thera.training.jpeg import jpeg, jpeg_of_crop

ALL = Degradation(
    clean=0.2,
    kernels=("bicubic", "box", "bilinear", "lanczos", "area"),
    blur=0.5,
    noise=0.5,
    sharpen=0.4,
    jpeg=0.7,
    jpeg_twice=0.3,
)


def picture(height=48, width=64, seed=0):
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (5, 6, 3), np.uint8))
    smooth = np.array(small.resize((width, height), Image.Resampling.BICUBIC), int)
    return (smooth + rng.integers(-20, 21, smooth.shape)).clip(0, 255).astype(np.uint8)


def by_pillow(pixels, quality, subsampling):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality, subsampling=subsampling)
    return np.array(Image.open(file)).astype(int)


def tensor(pixels):
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].float()


def levels(x):
    return x[0].permute(1, 2, 0).numpy().astype(int)


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:0"])
@pytest.mark.parametrize("quality", [30, 40, 49, 50, 60, 75, 90, 95, 98])
def test_jpeg_is_what_pillow_decodes(quality, subsampling):
    pixels = picture(seed=quality)
    ours = levels(jpeg(tensor(pixels), torch.tensor([quality]), torch.tensor([subsampling == "4:2:0"])))
    apart = abs(ours - by_pillow(pixels, quality, subsampling))
    # With libjpeg-turbo they are equal. Other builds of libjpeg may round differently.
    assert apart.mean() < 0.5 and apart.max() <= 3


def test_every_picture_of_a_batch_has_its_own_quality_and_subsampling():
    pixels = [picture(seed=seed) for seed in (1, 2)]
    both = torch.cat([tensor(p) for p in pixels])
    ours = jpeg(both, torch.tensor([35, 90]), torch.tensor([True, False]))
    expected = [by_pillow(pixels[0], 35, "4:2:0"), by_pillow(pixels[1], 90, "4:4:4")]
    for found, wanted in zip(ours, expected, strict=True):
        assert abs(levels(found[None]) - wanted).max() <= 3


def test_a_crop_is_coded_on_the_grid_of_the_picture_it_came_from():
    pixels, (down, right), side = picture(64, 64), (5, 10), 40
    whole = by_pillow(pixels, 40, "4:4:4")
    # The picture begins at the crop's offset from the grid, so that its first whole blocks are the same.
    crop = pixels[16 - down :, 16 - right :][:side, :side]
    ours = levels(
        jpeg_of_crop(
            tensor(crop), torch.tensor([40]), torch.tensor([False]), torch.tensor([[16 - down, 16 - right]])
        )
    )
    inside = slice(8 + down, 32), slice(8 + right, 32)
    shifted = whole[16 - down :, 16 - right :][:side, :side]
    assert abs(ours - shifted)[inside].max() <= 3
    other = levels(
        jpeg_of_crop(tensor(crop), torch.tensor([40]), torch.tensor([False]), torch.tensor([[0, 0]]))
    )
    assert abs(other - shifted)[inside].mean() > 1


def test_kernels_sum_to_one_and_have_their_widths():
    sigma = torch.tensor([0.3, 0.8, 1.2])
    kernels = gaussians(sigma, sigma / 2, torch.zeros(3))
    at = torch.arange(-4.0, 5.0)
    torch.testing.assert_close(kernels.sum((1, 2)), torch.ones(3))
    widths = [(kernels.sum(axis) * at**2).sum(1).sqrt() for axis in (1, 2)]
    torch.testing.assert_close(widths[0][1:], sigma[1:], rtol=0.02, atol=0)  # along the columns
    torch.testing.assert_close(widths[1][2:], sigma[2:] / 2, rtol=0.05, atol=0)
    torch.testing.assert_close(discs(torch.tensor([0.5, 2.4])).sum((1, 2)), torch.ones(2))


def test_every_input_is_filtered_by_its_own_kernel_and_constants_stay():
    identity, mean = torch.zeros(9, 9), torch.full((9, 9), 1 / 81)
    identity[4, 4] = 1
    x = torch.rand(2, 3, 12, 12)
    x[1] = 0.25
    y = filtered(x, torch.stack([identity, mean]))
    torch.testing.assert_close(y, x)
    assert filtered(x.flip(0), torch.stack([identity, mean]))[1].std() < x[0].std() / 4


def test_noise_has_a_deviation_of_one_and_correlates_as_asked():
    torch.manual_seed(0)
    noise = camera_noise(torch.randn(2, 4, 200, 200), torch.tensor([0.0, 0.6]), torch.tensor([0.0, 0.5]))
    torch.testing.assert_close(noise.std((2, 3)), torch.ones(2, 3), rtol=0, atol=0.03)
    correlation = [torch.corrcoef(n.flatten(1))[0, 1].item() for n in noise]
    assert abs(correlation[0]) < 0.03 and abs(correlation[1] - 0.6) < 0.05
    neighbours = [(n[..., 1:] * n[..., :-1]).mean().item() for n in noise]
    assert abs(neighbours[0]) < 0.03 and neighbours[1] > 0.4


@pytest.mark.parametrize("kernel", ["box", "bilinear", "lanczos", "area"])
def test_reducing_keeps_constants_and_ramps(kernel):
    weights = reducing_weights(torch.tensor([30, 41]), 10, 41, kernel)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 10))
    assert (weights[0, :, 30:] == 0).all()
    centres = weights[0] @ torch.arange(41.0)
    torch.testing.assert_close(centres[3:-3], 3 * torch.arange(10.0)[3:-3] + 1, rtol=0, atol=1e-4)


def numbers(**chosen):
    """The random numbers of one input: 0.999, at which nothing happens, except for those given."""
    drawn = dict.fromkeys(DRAWN, 0.999) | chosen
    torch.manual_seed(0)
    return {"degradation": torch.tensor([list(drawn.values())]), "noise": torch.randn(1, 4, 32, 32)}


@pytest.mark.parametrize("what", ["blur", "noise", "sharpen", "jpeg"])
def test_each_degradation_happens_where_it_was_drawn(what):
    source = tensor(picture(32, 32)) / 255
    config = Degradation(blur=0.5, noise=0.5, sharpen=0.5, jpeg=0.5, clean=0.1)
    assert torch.equal(degraded(source, numbers(), config), source)
    changed = degraded(source, numbers(**{what: 0.0, "quality": 0.0}), config)
    assert 0.001 < (changed - source).abs().mean() < 0.1
    assert torch.equal((changed * 255).round() / 255, changed)  # 8-bit levels
    assert torch.equal(degraded(source, numbers(**{what: 0.0, "clean": 0.0}), config), source)


def test_a_share_of_a_batch_stays_clean_bit_for_bit():
    sampler = Sampler([picture(150, 170)], Data(patch=16, batch=200, scales=(1.2, 4)), degradation=ALL)
    torch.manual_seed(0)
    u = sampler.draw(200)
    batch = sampler.build(u)
    same = (batch.source == batch.clean).flatten(1).all(1)
    assert same[u["degradation"][:, 0] < ALL.clean].all()
    assert 0.1 < same.float().mean() < 0.35  # those, and the few that drew nothing
    assert (batch.source * 255 - (batch.source * 255).round()).abs().max() < 1e-4


def test_without_the_table_batches_are_those_of_before_bit_for_bit():
    """The digest of targets and positions was taken before there were degradations."""
    config = Data(patch=16, batch=8, scales=(1.2, 4), targets=3, spread="log")
    torch.manual_seed(3)
    sampler = Sampler([ramp(), picture(100, 120)], config)
    batch = sampler.build(sampler.draw(8))
    assert batch.clean is None
    digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in (batch.target, batch.x)))
    assert digest.hexdigest()[:16] == "1552b2d9461c3851"
    torch.manual_seed(3)
    crops = sampler._crops(sampler.draw(8))
    crop = sampler.pixels[crops.indices(sampler.largest)].float()
    weights = reducing_weights(crops.size, 16, sampler.largest, "bicubic")
    rows = torch.bmm(weights, crop.flatten(2)).unflatten(2, (-1, 3))
    source = torch.einsum("npj,nijc->ncip", weights, rows).clamp(0, 255).round() / 255
    assert torch.equal(batch.source, source)
    off = Config.parse({"degradation": {"clean": 0.5, "jpeg_quality": [40, 60]}}).degradation
    torch.manual_seed(3)
    again = Sampler([ramp(), picture(100, 120)], config, degradation=off)
    assert torch.equal(again.build(again.draw(8)).source, batch.source)


def test_targets_and_positions_do_not_depend_on_the_degradation():
    config = Data(patch=16, batch=4, scales=(2, 3))
    plain, other = Sampler([picture(100, 120)], config), Sampler([picture(100, 120)], config, degradation=ALL)
    torch.manual_seed(1)
    u = other.draw(4)
    ours, theirs = other.build(u), plain.build(u)
    assert torch.equal(ours.target, theirs.target) and torch.equal(ours.x, theirs.x)
    assert torch.equal(ours.clean, theirs.source) and not torch.equal(ours.source, theirs.source)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("jpeg_quality", [0, 98]),
        ("jpeg_quality", [80, 40]),
        ("jpeg", 1.5),
        ("noise_level", [2, 300]),
        ("blur_sigma", [0.5, 9.0]),
        ("kernels", ["bicubic", "sinc"]),
        ("kernels", []),
        ("kernels", "bicubic"),
        ("clean", -0.1),
    ],
)
def test_impossible_values_are_refused_with_their_key(key, value):
    with pytest.raises(InvalidInput, match=rf"degradation\.{key} = .*expected"):
        Config.parse({"degradation": {"jpeg": 0.5} | {key: value}})


def test_a_run_with_degradations_and_a_teacher_learns(photos, small, tmp_path):
    from thera.training.run import start

    config = small(
        start="edsr-air",
        degradation={"jpeg": 0.8, "noise": 0.5, "clean": 0.2},
        teacher={"model": "edsr-air", "share": 0.5, "kept": 2},
        optimiser={"steps": 4, "rate": 1e-5},
    )
    network = start(config, [photos], tmp_path / "run", device="cpu", show=lambda _: None, say=lambda _: None)
    assert network is not None and all(torch.isfinite(p).all() for p in network.parameters())


def test_white_noise_has_independent_pixels_and_channels():
    """Numbers below `white` give white noise; the others give all correlations that noise has without it."""
    normal = torch.randn(3, 4, 96, 96, generator=torch.Generator().manual_seed(0))
    drawn = dict.fromkeys(DRAWN, torch.tensor([0.4, 0.4, 0.99])) | {"level": torch.ones(3)}
    u = {"degradation": torch.stack(list(drawn.values()), 1), "noise": normal}
    grey = torch.full((3, 3, 96, 96), 128 / 255)
    for white, coloured in ((0.5, [False, False, True]), (0.0, [True, True, True])):
        config = Degradation(noise=1.0, noise_level=(6.0, 6.0), white=white)
        noise = 255 * (degraded(grey, u, config) - grey)
        beside = (noise[..., 1:] * noise[..., :-1]).mean((1, 2, 3)) / noise.square().mean((1, 2, 3))
        among = (noise[:, 0] * noise[:, 1]).mean((1, 2)) / noise.square().mean((1, 2, 3))
        assert (beside > 0.1).tolist() == coloured and (among > 0.1).tolist() == coloured
