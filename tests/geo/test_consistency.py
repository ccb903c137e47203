"""Consistent results: the mean over each input pixel is that pixel, through every door."""

import dask.array as da
import numpy as np
import pytest
import rasterio
import xarray as xr
from click.testing import CliRunner

import thera
import thera.xarray
from thera.cli.main import cli
from thera.dask import upscale
from thera.errors import InvalidInput
from thera.geo.upscaling import RasterOptions, prepare_raster
from thera.imaging.sizing import TargetSize
from thera.tiled import Options
from thera.values.consistency import cubic_slack, with_means


def means(output, a, b):
    h, w = output.shape[0] // a, output.shape[1] // b
    return output.reshape(h, a, w, b, -1).mean(axis=(1, 3), dtype=np.float64)


@pytest.mark.parametrize("dtype", ["u1", "u2", "i2", "f4"])
def test_the_smallest_change_reaches_the_means(dtype):
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 256, (5, 4, 2)).astype(dtype)
    output = np.clip(rng.normal(samples.repeat(3, 0).repeat(2, 1), 20), 0, 255).astype(dtype)
    changed = with_means(output, samples)
    assert changed.dtype == output.dtype
    inner = (samples > 60) & (samples < 190)  # far from the ends of bytes
    np.testing.assert_allclose(means(changed, 3, 2)[inner], samples[inner], atol=1e-4 if dtype == "f4" else 0)
    change = (changed.astype(float) - output).reshape(5, 3, 4, 2, 2)
    assert (np.ptp(change, axis=(1, 3))[inner] <= 1.0001).all()


def test_the_ends_of_a_type_are_handed_on():
    output = np.array([[[255], [200]], [[255], [250]]], np.uint8)
    assert with_means(output, np.uint8([[[254]]])).sum() == 4 * 254


def fields():
    """Fields that a network alone reproduces worse than cubic interpolation: smooth, steep, one outlier."""
    y, x = np.mgrid[:40, :50] / 50
    outlier = np.full((40, 50), 100, np.int16) + (20 * np.sin(9 * x)).astype(np.int16)
    outlier[20, 30] = 30_000
    step = np.rint(1000 * np.sin(x + y * y / 2) + 3000 * (x > 0.5)).astype(np.int32)
    return {"smooth": (1000 * x + 300 * y * y).astype(np.float32), "step": step, "outlier": outlier}


def roundtrip(output, samples):
    return np.sqrt(np.mean((means(output, 2, 2)[..., 0] - samples) ** 2))


@pytest.mark.parametrize("name", fields())
def test_means_are_no_farther_from_the_input_than_with_cubic_interpolation(make, model, name):
    samples = fields()[name]
    source = make(samples[None])
    with rasterio.open(source) as dataset:
        cubic = dataset.read(1, out_shape=(80, 100), resampling=rasterio.enums.Resampling.cubic)
    limit = roundtrip(cubic, samples)
    whole = thera.upscale(samples, 2, model=model, value_range="extent")
    assert 0 < roundtrip(whole, samples) < limit
    without = thera.upscale(samples, 2, model=model, value_range="extent", psf=model.psf((0.5, 0.5)))
    assert roundtrip(without, samples) > limit  # a filter that was asked for is left alone
    lazy = upscale(da.from_array(samples, (20, 25)), 2, "edsr-air", value_range="extent")
    np.testing.assert_allclose(
        lazy.compute(scheduler="synchronous"), whole, atol=1 if samples.dtype.kind == "i" else 0.01
    )


def test_the_allowed_difference_is_that_of_gdals_cubic(make):
    samples = np.random.default_rng(1).normal(size=(40, 50)).astype(np.float32)
    with rasterio.open(make(samples[None])) as dataset:
        cubic = dataset.read(1, out_shape=(120, 100), resampling=rasterio.enums.Resampling.cubic)
    squares = np.square(means(cubic, 3, 2)[2:-2, 2:-2, 0] - samples[2:-2, 2:-2])
    expected = np.sqrt(np.lib.stride_tricks.sliding_window_view(squares, (3, 3)).mean(axis=(2, 3)))
    np.testing.assert_allclose(cubic_slack(samples[..., None], (3, 2))[..., 0], expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["i2", "f4"])
def test_means_within_the_slack_stay_and_others_come_as_near_as_it(dtype):
    samples = np.array([[[10], [10], [10]]], dtype)
    output = np.array([[12, 13, 16, 17, 2, 3]], dtype).repeat(2, axis=0)[..., None]
    changed = with_means(output, samples, np.full((1, 3, 1), 2.5))
    np.testing.assert_array_equal(means(changed, 2, 2)[0, :, 0], [12.5, 12.5, 7.5])


def test_arrays_and_chunks_agree_with_their_input(model, photo):
    image = np.rint(photo[:60, :90, None] * 4000 + 300).astype(np.uint16)
    whole = thera.upscale(image, 2, model=model, consistent=True)
    np.testing.assert_array_equal(means(whole, 2, 2), image)
    lazy = upscale(da.from_array(image, (30, 90, 1)), 2, "edsr-air", consistent=True)
    np.testing.assert_array_equal(means(lazy.compute(scheduler="synchronous"), 2, 2), image)
    scene = xr.DataArray(image, dims=("y", "x", "band")).thera.upscale(2, "edsr-air", consistent=True)
    np.testing.assert_array_equal(means(scene.values, 2, 2), image)
    with pytest.raises(InvalidInput, match="no whole-number scale"):
        thera.upscale(image, 1.5, model=model, consistent=True)


def test_what_alpha_hides_is_no_value_to_agree_with():
    y, x = np.mgrid[:16, :16] - 7.5
    alpha = np.where(y**2 + x**2 < 30, 65535, 0).astype(np.uint16)
    image = np.dstack([np.where(alpha, 40000, 0)] * 3 + [alpha]).astype(np.uint16)
    result = thera.upscale(image, scale=2, model="edsr-air", value_range="extent")
    assert result[result[..., 3] > 1000][:, :3].min() > 35000


def test_rasters_agree_with_their_input_in_every_frame(make, model, photo, monkeypatch):
    """At ×3 frames cut input pixels, and so do bounds."""
    bands = np.rint(np.stack([photo[:50, :60], 1 - photo[:50, :60]]) * 4000 + 300).astype(np.int16)
    bands[:, :7, :9] = -999
    source = make(bands, nodata=-999)
    output = source.with_name("out.tif")

    def run(*options):
        words = ["upscale", source, "--out", output, "-s", 3, "-m", "edsr-air", "-q", "--overwrite", *options]
        result = CliRunner().invoke(cli, [str(word) for word in words], standalone_mode=False)
        assert result.return_value == 0, result.output
        with rasterio.open(output) as dataset:
            return np.moveaxis(dataset.read(), 0, -1)

    monkeypatch.setattr("thera.geo.upscaling.TILE", 64)
    every = run("--consistent")
    np.testing.assert_array_equal(means(every, 3, 3), np.moveaxis(bands, 0, -1))
    part = run("--consistent", "--bounds", "400104,6599701,400300,6599899")
    height, width = part.shape[:2]
    np.testing.assert_array_equal(part, every[30 : 30 + height, 31 : 31 + width])
    file = RasterOptions(overwrite=True)
    with pytest.raises(InvalidInput, match="60×50 to 78×65 is no whole-number scale"):
        prepare_raster(source, output, model, TargetSize(scale=1.3), Options(consistent=True), file)
