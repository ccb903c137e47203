"""Rasters as people have them: read as they are meant, or refused with a sentence that is true."""

import re
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pyproj
import pytest
import rasterio
import rasterio.shutil
import tifffile
from click.testing import CliRunner
from PIL import Image
from rasterio.control import GroundControlPoint
from rasterio.crs import CRS

from thera.cli.main import cli
from thera.errors import ImageFileError, InvalidInput
from thera.geo.crs import Reprojection, reprojected
from thera.geo.raster import describe
from thera.geo.upscaling import prepare_raster
from thera.geo.warped_rasters import prepare_warped_raster
from thera.imaging.sizing import TargetSize
from thera.warp.mappings import Projective
from thera.warp.pictures import prepare_warped_picture


@pytest.fixture
def small(photo):
    return np.rint(photo[:24, :30] * 200 + 20).astype(np.uint8)


def upscaled(source, output=None, *options):
    output = output or source.with_name("out.tif")
    words = [
        "upscale",
        str(source),
        "--out",
        str(output),
        "-s",
        "2",
        "-m",
        "edsr-air",
        "-q",
        *map(str, options),
    ]
    CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False)
    return output


@pytest.mark.parametrize("dtype", ["complex_int16", "complex64"])
def test_complex_numbers_are_refused_by_name(tmp_path, dtype):
    path = tmp_path / "radar.tif"
    with rasterio.open(path, "w", driver="GTiff", width=8, height=8, count=1, dtype=dtype):
        pass
    with pytest.raises(ImageFileError, match=rf"complex numbers \({dtype}\): scale its amplitude"):
        describe(path)


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of memory")
def test_a_tiny_file_of_more_bands_than_any_instrument_has_is_refused_at_once(make, tmp_path):
    """Before anything is decoded: within 4 GiB of addresses and 20 s of processor, however busy a machine."""
    import resource

    source = make(np.ones((1, 16, 16), np.uint8), tiled=False, blockxsize=16, blockysize=16)
    with tifffile.TiffFile(source, mode="r+") as file:
        file.pages[0].tags["SamplesPerPixel"].overwrite(32767)
    assert source.stat().st_size < 1000

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))

    output, options = tmp_path / "out.tif", ("-s", "2", "-m", "edsr-air")
    words = [sys.executable, "-m", "thera", "upscale", source, output, *options]
    result = subprocess.run(words, capture_output=True, text=True, preexec_fn=limited, timeout=300)
    assert result.returncode == 1 and not output.exists()
    assert result.stderr.startswith(f"thera: {source} has 32,767 bands, and Thera scales 4,096 at most")


def test_control_points_without_a_coordinate_system_are_kept(make, small):
    points = [GroundControlPoint(row, col, 100.0 + col, 50.0 - row) for row in (0, 24) for col in (0, 30)]

    def place(dataset):
        dataset.gcps = points, CRS()

    source = make(small[None], crs=None, transform=None, describe=place)
    with rasterio.open(upscaled(source)) as dataset:
        kept, crs = dataset.gcps
        assert not crs
        assert [(p.row, p.col, p.x, p.y) for p in kept] == [(2 * p.row, 2 * p.col, p.x, p.y) for p in points]


def test_a_coordinate_system_with_three_axes_is_kept_in_a_sidecar(make, small):
    height = CRS.from_wkt(pyproj.CRS("EPSG:32633").to_3d().to_wkt())
    output = upscaled(make(small[None], crs=height))
    with rasterio.open(output) as dataset:
        assert dataset.crs == height
    assert output.with_name("out.tif.aux.xml").exists()
    upscaled(make(small[None]), output, "--overwrite")
    with rasterio.open(output) as dataset:  # what an older file had beside it is gone with it
        assert dataset.crs.to_epsg() == 32633


def test_a_mask_of_each_band_hides_that_band_only(make, tmp_path, small):
    mask = np.full(small.shape, 255, np.uint8)
    mask[:, :10] = 0
    make(np.stack([small, small, mask, mask * 0 + 255]), "parts.tif")

    def band(number, inner=""):
        file = '<SourceFilename relativeToVRT="1">parts.tif</SourceFilename>'
        source = f"<SimpleSource>{file}<SourceBand>{number}</SourceBand></SimpleSource>"
        return f'<VRTRasterBand dataType="Byte">{source}{inner}</VRTRasterBand>'

    bands = "".join(band(k, f"<MaskBand>{band(k + 2)}</MaskBand>") for k in (1, 2))
    path = tmp_path / "masked.vrt"
    path.write_text(f'<VRTDataset rasterXSize="30" rasterYSize="24">{bands}</VRTDataset>')
    with rasterio.open(path) as dataset:
        assert dataset.mask_flag_enums[0] == []  # GDAL's sign for it
    with rasterio.open(upscaled(path)) as dataset:
        assert not dataset.read(1)[:, :20].any() and dataset.read(1)[:, 20:].all()
        assert dataset.read(2).all()


def test_tiffs_that_only_gdal_reads_are_read_by_it(tmp_path, small):
    big = tmp_path / "big.tif"
    tifffile.imwrite(big, small.astype(">u2"), bigtiff=True, byteorder=">", photometric="minisblack")
    three = tmp_path / "three.tif"
    values = np.stack([small, small, small], axis=-1).astype(np.float32) / 7
    tifffile.imwrite(three, values, photometric="minisblack", planarconfig="contig", extrasamples=(0, 0))
    for source, count in ((big, 1), (three, 3)):
        with rasterio.open(upscaled(source, source.with_name("of_" + source.name))) as dataset:
            assert (dataset.count, dataset.shape) == (count, (48, 60))


@pytest.mark.parametrize(("driver", "suffix"), [("ENVI", ".img"), ("AAIGrid", ".asc"), ("netCDF", ".nc")])
def test_other_formats_of_gdal_are_rasters(make, small, tmp_path, driver, suffix):
    path = tmp_path / f"scene{suffix}"
    if driver not in rasterio.drivers.raster_driver_extensions().values() and driver == "netCDF":
        pytest.skip("this rasterio reads no NetCDF")
    rasterio.shutil.copy(make(small[None].astype(np.int32)), path, driver=driver)
    with rasterio.open(path) as given, rasterio.open(upscaled(path)) as dataset:
        assert dataset.crs == given.crs and dataset.transform.a == given.transform.a / 2
        assert dataset.shape == (48, 60)


def test_a_file_of_several_rasters_names_them_and_one_of_them_is_scaled(make, small, tmp_path):
    path = tmp_path / "ocean.nc"
    rasterio.shutil.copy(make(np.stack([small, small]).astype(np.int32)), path, driver="netCDF")
    with pytest.raises(ImageFileError, match="holds 2 rasters: give the name of one of them") as refused:
        describe(path)
    name = re.search("'(.*?)'", str(refused.value))[1]
    assert name.endswith("ocean.nc:Band1")
    with rasterio.open(upscaled(name, tmp_path / "out.tif")) as dataset:
        assert (dataset.count, dataset.shape) == (1, (48, 60)) and dataset.crs.to_epsg() == 32633


def test_what_gdal_fails_to_read_is_not_called_damaged_for_sure(make, model, small, tmp_path):
    """Some drivers open files that they cannot read, such as texts in NetCDF."""
    path = make(small[None], compress="deflate")
    path.write_bytes(path.read_bytes()[:-40] + bytes(40))
    with pytest.raises(ImageFileError, match=r"scene.tif cannot be read, and may be damaged \("):
        prepare_raster(path, tmp_path / "out.tif", model, TargetSize(scale=2)).run()


def test_a_raster_without_pixels_is_refused(monkeypatch):
    """As GDAL's driver of NOAA's level 1b opens some."""
    empty = SimpleNamespace(count=1, shape=(0, 409), height=0, width=409)
    monkeypatch.setattr("thera.geo.raster.opened", lambda path: nullcontext(empty))
    with pytest.raises(ImageFileError, match=r"a\.l1b has no pixels, or is damaged \(409×0\)"):
        describe("a.l1b")


@pytest.mark.parametrize("value", [0.0, -7e22, 3e38])
def test_a_constant_raster_stays_so_however_large_its_value(make, value):
    source = make(np.full((2, 12, 14), value, np.float32))
    with rasterio.open(upscaled(source)) as dataset:
        np.testing.assert_allclose(dataset.read(), np.float32(value), rtol=1e-5, atol=1e-2)


def test_a_picture_with_a_world_file_keeps_its_place_in_a_tiff(tmp_path, small):
    source = tmp_path / "map.png"
    Image.fromarray(small).save(source)
    source.with_suffix(".pgw").write_text("10\n0\n0\n-10\n500005\n4599995\n")
    with rasterio.open(upscaled(source)) as dataset:
        assert tuple(dataset.transform)[:6] == (5, 0, 500_000, 0, -5, 4_600_000)
    assert upscaled(source, tmp_path / "map_large.png").exists()  # a picture stays one otherwise


def test_what_gdal_cannot_read_either_is_said_by_the_picture_reader(tmp_path):
    source = tmp_path / "notes.img"
    source.write_text("no raster at all")
    result = CliRunner().invoke(cli, ["upscale", str(source), str(tmp_path / "out.tif"), "-s", "2"])
    assert "is not an image that Thera reads" in str(result.exception or result.output)


def degrees(make, small, west, east, south=-10.0, north=10.0, **profile):
    width, height = (east - west) / small.shape[1], (north - south) / small.shape[0]
    transform = rasterio.Affine(width, 0, west, 0, -height, north)
    return make(small[None], crs="EPSG:4326", transform=transform, **profile)


def test_degrees_beyond_180_are_seen_from_either_side(make, small):
    """A grid from 0° to 360°: places west of Greenwich lie in its right half, and no step is 360° long."""
    raster = describe(degrees(make, small, 0.0, 360.0))
    grid = reprojected(raster, "+proj=eqc", resolution=100_000, bounds=(-5e6, -5e5, 5e6, 5e5))
    points, steps = Reprojection(raster, grid)((0, 0, *grid.size))
    assert np.isfinite(points).all()
    first, last = points[0, 0, 1], points[0, -1, 1]  # 45° west, 45° east
    assert first == pytest.approx((360 - 44.5) / 12, abs=0.1) and last == pytest.approx(44.5 / 12, abs=0.1)
    assert np.abs(steps).max() < 2


def test_a_raster_across_the_antimeridian_stays_in_one_piece(make, small):
    transform = rasterio.Affine(1000, 0, 150_000, 0, -1000, 1_000_000)
    raster = describe(make(small[None], crs="EPSG:32601", transform=transform))  # UTM zone 1 begins at 180°
    grid = reprojected(raster, "EPSG:4326")
    west, east = grid.transform.c, grid.transform.c + grid.transform.a * grid.size[1]
    assert 178 < west < 180 < east < 182
    assert np.abs(Reprojection(raster, grid)((0, 0, *grid.size))[1]).max() < 2


def test_a_pole_in_the_middle_is_in_the_output(make, small):
    transform = rasterio.Affine(1e5, 0, -1.5e6, 0, -1e5, 1.2e6)
    raster = describe(make(small[None], crs="EPSG:3413", transform=transform))
    grid = reprojected(raster, "EPSG:4326", size=(20, 90))
    assert grid.transform.c == -180 and grid.transform.f == 90 and grid.transform.a == 4


def test_a_full_disk_is_shown_as_far_as_its_horizon(make, model, small):
    disk = "+proj=geos +h=35785831 +lon_0=-75 +sweep=x +ellps=GRS80"
    step = 11_000_000 / 30
    source = make(
        small[None], crs=disk, transform=rasterio.Affine(step, 0, -5.5e6, 0, -step * 30 / 24, 5.5e6)
    )
    grid = reprojected(describe(source), "EPSG:4326", size=(16, 16))
    assert -156 < grid.transform.c < -145  # the horizon is 81° away
    output = source.with_name("out.tif")
    prepare_warped_raster(describe(source), output, model, grid).run()
    with rasterio.open(output) as dataset:
        mask = dataset.read_masks(1)
        assert mask[8, 8] and not mask[0, 0]


def test_there_is_no_way_from_mars_to_the_earth(make, small):
    mars = 'GEOGCS["Mars",DATUM["Mars",SPHEROID["Mars_2000",3396190,169.8]],PRIMEM["Reference_Meridian",0],'
    source = make(small[None], crs=f'{mars}UNIT["degree",0.0174532925199433]]')
    with pytest.raises(InvalidInput, match="no way from the coordinate system Mars to WGS 84 / Pseudo"):
        reprojected(describe(source), "EPSG:3857")


def test_longitudes_from_another_meridian_are_refused(make, small):
    raster = describe(degrees(make, small, 10.0, 20.0))
    with pytest.raises(InvalidInput, match="counted from \\+lon_0"):
        reprojected(raster, "+proj=longlat +lon_0=180")
    assert reprojected(raster, "+proj=longlat +pm=180").transform.c == pytest.approx(-170)


def test_a_warp_that_misses_its_input_is_refused(make, model, small, tmp_path):
    raster = describe(make(small[None]))
    grid = reprojected(raster, "EPSG:3857", resolution=1000, bounds=(0, 0, 20_000, 20_000))
    with pytest.raises(InvalidInput, match="Nothing of the input lies in the output: check --bounds"):
        prepare_warped_raster(raster, tmp_path / "out.tif", model, grid)
    picture = tmp_path / "a.png"
    Image.fromarray(small).save(picture)

    def away(shape):
        return shape, Projective([1, 0, 1000, 0, 1, 0], shape)

    with pytest.raises(InvalidInput, match="Nothing of the input"):
        prepare_warped_picture(picture, tmp_path / "b.png", model, away)
    assert list(tmp_path.glob("b*")) == []
