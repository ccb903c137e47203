"""Consistent results: the mean over each input pixel is that pixel, through every door."""

import dask.array as da
import numpy as np
import pytest
import rasterio
from click.testing import CliRunner

import thera
from thera.cli.main import cli
from thera.dask import upscale
from thera.errors import InvalidInput
from thera.values.consistency import with_means


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


def test_arrays_and_chunks_agree_with_their_input(model, photo):
    image = np.rint(photo[:60, :90, None] * 4000 + 300).astype(np.uint16)
    whole = thera.upscale(image, 2, model=model, consistent=True)
    np.testing.assert_array_equal(means(whole, 2, 2), image)
    lazy = upscale(da.from_array(image, (30, 90, 1)), 2, "edsr-air", consistent=True)
    np.testing.assert_array_equal(means(lazy.compute(scheduler="synchronous"), 2, 2), image)
    with pytest.raises(InvalidInput, match="no whole-number scale"):
        thera.upscale(image, 1.5, model=model, consistent=True)


def test_rasters_agree_with_their_input_in_every_frame(make, photo, monkeypatch):
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
