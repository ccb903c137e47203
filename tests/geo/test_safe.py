"""Sentinel-2 SAFE folders: the bands of a resolution as one raster."""

import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
import rasterio
import rasterio.shutil
from click.testing import CliRunner

from thera.cli.main import cli
from thera.errors import ImageFileError
from thera.geo.raster import describe
from thera.geo.safe import parts

if "JP2OpenJPEG" not in rasterio.drivers.raster_driver_extensions().values():
    pytest.skip("this rasterio reads no JPEG 2000", allow_module_level=True)

DOCS = Path(__file__).parents[2] / "docs"
BANDS = {10: ("B02", "B03", "B04", "B08"), 20: ("B02", "B05", "B8A")}


@pytest.fixture
def product(make, photo, tmp_path):
    """A level 2 product of 24×30 pixels of 10 m, with nodata in a corner."""
    folder = tmp_path / "S2A_MSIL2A_20250601_T33VVF.SAFE"
    for side, names in BANDS.items():
        images = folder / "GRANULE" / "L2A_T33VVF" / "IMG_DATA" / f"R{side}m"
        images.mkdir(parents=True)
        step = side // 10
        for k, name in enumerate(names):
            values = np.rint(np.roll(photo, 5 * k, axis=1)[:24:step, :30:step] * 3000 + 200).astype(np.uint16)
            values[:4, :4] = 0
            transform = rasterio.Affine(side, 0, 400_000, 0, -side, 6_600_000)
            source = make(values[None], "band.tif", transform=transform)
            lossless = {"QUALITY": "100", "REVERSIBLE": "YES"}
            target = images / f"T33VVF_20250601_{name}_{side}m.jp2"
            rasterio.shutil.copy(source, target, driver="JP2OpenJPEG", **lossless)
    (tmp_path / "band.tif").unlink()
    return folder


def upscaled(*words):
    call = ["upscale", *map(str, words), "-m", "edsr-air", "-q"]
    result = CliRunner().invoke(cli, call, standalone_mode=False, catch_exceptions=False)
    assert result.return_value == 0, result.output


def test_names_say_the_resolution():
    assert parts("a/B.SAFE")[1] == 10 and parts("a/B.SAFE:20m")[1] == 20 and parts("a/B.tif") is None


def test_the_bands_of_ten_metres_become_one_raster(product, tmp_path):
    raster = describe(product)
    assert raster.descriptions == BANDS[10] and raster.nodata == (0, 0, 0, 0)
    output = tmp_path / "fine.tif"
    upscaled(product, output, "--resolution", 5)
    with rasterio.open(output) as dataset:
        assert dataset.descriptions == BANDS[10] and dataset.crs.to_epsg() == 32633
        assert dataset.shape == (48, 60) and dataset.transform.a == 5
        assert not dataset.read()[:, :8, :8].any() and dataset.read()[:, 8:, 8:].all()


def test_bands_of_twenty_metres_are_brought_to_ten(product, tmp_path):
    upscaled(f"{product}:20m", tmp_path / "ten.tif", "--resolution", 10)
    with rasterio.open(tmp_path / "ten.tif") as dataset:
        assert dataset.descriptions == ("B05", "B8A")  # B02 is there at 10 m
        assert dataset.shape == (24, 30) and dataset.transform.a == 10


def test_products_jpeg_2000_and_virtual_files_are_part_of_a_folder(product, tmp_path):
    folder, out = tmp_path / "scenes", tmp_path / "out"
    folder.mkdir()
    product.rename(folder / product.name)
    band = next((folder / product.name).glob("GRANULE/*/*/R20m/*B05*"))
    rasterio.shutil.copy(band, folder / "alone.jp2", driver="JP2OpenJPEG")
    rasterio.shutil.copy(band, folder / "virtual.vrt", driver="VRT")
    upscaled(folder, out, "-s", 2)
    assert sorted(path.name for path in out.iterdir()) == [f"{product.stem}.tif", "alone.tif", "virtual.tif"]


def test_what_is_missing_is_said(product, tmp_path):
    with pytest.raises(ImageFileError, match="has no bands of 60 m"):
        describe(f"{product}:60m")
    with pytest.raises(ImageFileError, match="has no bands of 10 m"):
        describe(tmp_path / "other.SAFE")
    granule = next(product.glob("GRANULE/*"))
    shutil.copytree(granule, granule.with_name("L2A_T33VWF"))
    with pytest.raises(ImageFileError, match="holds several tiles: scale the files in its GRANULE folders"):
        describe(product)


def test_a_jpeg_2000_without_a_place_is_scaled(make, photo, tmp_path):
    pixels = np.rint(photo[:24, :30] * 255).astype(np.uint8)
    source = make(pixels[None], "plain.tif", crs=None, transform=None)
    rasterio.shutil.copy(
        source, tmp_path / "plain.jp2", driver="JP2OpenJPEG", QUALITY="100", REVERSIBLE="YES"
    )
    upscaled(tmp_path / "plain.jp2", tmp_path / "out.tif", "-s", 2)
    upscaled(source, tmp_path / "of_tiff.tif", "-s", 2, "--range", "dtype")
    with rasterio.open(tmp_path / "out.tif") as out, rasterio.open(tmp_path / "of_tiff.tif") as expected:
        assert out.crs is None and out.transform.is_identity
        np.testing.assert_array_equal(out.read(), expected.read())


def test_the_walk_through_of_the_page_runs_as_printed(tmp_path, monkeypatch):
    """With the scene that its picture was made of, a fifth as large."""
    ndvi = runpy.run_path(str(DOCS / "images" / "ndvi.py"))
    monkeypatch.setitem(ndvi["make_product"].__globals__, "SIDE", 24)
    page = (DOCS / "rasters.md").read_text().split("## From a Sentinel-2 product")[1].split("\n## ")[0]
    monkeypatch.chdir(tmp_path)
    folder = ndvi["make_product"](tmp_path)
    commands = [line.split()[1:] for line in page.splitlines() if line.startswith("    thera ")]
    assert [command[1] for command in commands] == [folder.name, f"{folder.name}:20m"]
    fine, coarse = (next(folder.rglob("IMG_DATA")) / name for name in ("R10m", "R20m"))
    coarse.mkdir()
    for name in ("B05", "B8A"):
        shutil.copy(next(fine.glob("*B04*")), coarse / f"T33VVF_20250601T103041_{name}_20m.jp2")
    for command in commands:
        upscaled(*command[1:])
    found: dict = {}
    exec(re.search("```python\n(.*?)```", page, re.DOTALL)[1], found)
    red, near = (rasterio.open(next(fine.glob(f"*{name}*"))).read(1).astype(float) for name in ("B04", "B08"))
    coarse_index = ((near - red) / (near + red)).repeat(2, axis=0).repeat(2, axis=1)
    truth = ndvi["ground"](8 * 24).reshape(4, 48, 4, 48, 4).mean(axis=(2, 4))
    truth = (truth[3] - truth[2]) / (truth[3] + truth[2])
    error, before = (np.sqrt(np.mean((index - truth) ** 2)) for index in (found["ndvi"], coarse_index))
    assert error < 0.9 * before
