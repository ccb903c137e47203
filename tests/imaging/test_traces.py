"""What a picture shows of its past is measured as it is."""

import io

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from thera.imaging.reading import read
from thera.imaging.traces import Traces, grid, jpeg_quality, noise, traces


@pytest.fixture(scope="module")
def photograph():
    """256×320: shading, and on the right texture without the finest frequencies, as in a photograph."""
    rng = np.random.default_rng(0)
    rows, cols = np.mgrid[:256, :320]
    grey = 120 + 60 * np.sin(rows / 30) * np.cos(cols / 37) + rows / 8
    texture = rng.normal(0, 60, grey.shape)
    for axis in (0, 1):
        texture = sum(np.roll(texture, shift, axis) for shift in range(4)) / 2
    grey[:, 160:] += texture[:, 160:] / 4
    return np.repeat(grey.clip(0, 255).astype(np.uint8)[..., None], 3, axis=2)


def coded(pixels, quality):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()


@pytest.mark.parametrize("quality", [30, 50, 75, 90, 97])
def test_the_quality_of_a_jpeg_is_read_from_its_tables(photograph, tmp_path, quality):
    path = tmp_path / "a.jpg"
    path.write_bytes(coded(photograph, quality))
    assert jpeg_quality(path) == quality
    found = traces(path, read(path))
    assert found.quality == quality and found.reason() == f"it is a JPEG of quality {quality}"


def brightness(pixels):
    return pixels.astype(np.float32)[..., 0]


@pytest.mark.parametrize("quality", [30, 70, 95])
def test_the_grid_of_a_jpeg_shows_even_in_a_crop_that_was_saved_otherwise(photograph, quality):
    decoded = np.array(Image.open(io.BytesIO(coded(photograph, quality))))
    assert grid(brightness(decoded)) > 0.05
    assert grid(brightness(decoded)[3:, 5:]) > 0.05
    assert grid(brightness(decoded)[3:90, 165:250]) > 0.05


def test_pictures_that_were_never_coded_show_no_grid_though_they_are_drawn_on_one(photograph):
    rng = np.random.default_rng(0)
    rows, cols = np.mgrid[:192, :256]
    squares = np.kron(rng.integers(0, 256, (24, 32, 1)), np.ones((8, 8, 1)))
    for pixels in (photograph, squares, squares[3:, 5:], (rows // 8 + cols // 8)[..., None] % 2 * 255.0):
        assert grid(brightness(pixels)) < 0.02


@pytest.mark.parametrize("sigma", [3, 6])
def test_noise_is_measured_and_texture_is_not(photograph, sigma):
    clean = photograph[..., 1].astype(np.float32)
    assert noise(clean) < 1
    noisy = clean + np.random.default_rng(1).normal(0, sigma, clean.shape).astype(np.float32)
    assert noise(noisy) == pytest.approx(sigma, rel=0.2)


def test_a_clean_picture_and_one_of_a_few_pixels_show_nothing(photograph, tmp_path):
    for name, pixels in (("a.png", photograph), ("b.png", photograph[:3, :5])):
        Image.fromarray(pixels).save(tmp_path / name)
        found = traces(tmp_path / name, read(tmp_path / name))
        assert found.quality is None and found.reason() is None
        assert ("too small to tell" in str(found)) == (name == "b.png")


def test_a_lossy_webp_or_avif_is_known_from_a_lossless_one(photograph, tmp_path):
    for name, options, reason in (
        ("a.webp", {"quality": 95}, "it is a lossy WebP"),
        ("b.webp", {"quality": 95, "exif": bytes(70_000)}, "it is a lossy WebP"),
        ("c.webp", {"lossless": True}, None),
        ("d.avif", {"quality": 80}, "it is a lossy AVIF"),
        ("e.png", {}, None),
    ):
        path = tmp_path / name
        Image.fromarray(photograph).save(path, **options)
        assert traces(path, read(path)).reason() == reason, name
    code = imagecodecs.avif_encode(photograph, level=100, matrix=0)
    (tmp_path / "f.avif").write_bytes(code)
    assert traces(tmp_path / "f.avif", read(tmp_path / "f.avif")).reason() is None


def test_reasons_name_what_was_found():
    assert Traces(60, 0.0, 0.0).reason() == "it is a JPEG of quality 60"
    assert Traces(None, 0.2, 0.0).reason() == "a grid of 8×8 blocks shows, as JPEG leaves it"
    assert Traces(None, 0.0, 4.0).reason() == "it has noise of 4.0/255"
    assert Traces(100, 0.0, 0.0).reason() == "it is a JPEG of quality 100"
    assert str(Traces(None, 0.0, 0.2)) == "it shows no blocks and little noise (0.2/255)"


def test_the_dots_of_a_one_bit_picture_are_not_noise(photograph, tmp_path):
    Image.fromarray(photograph).convert("1").save(tmp_path / "a.png")
    found = traces(tmp_path / "a.png", read(tmp_path / "a.png"))
    assert found.reason() is None and "dots" in str(found)
