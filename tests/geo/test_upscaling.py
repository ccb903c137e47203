"""Rasters to another size: the same ground, the same units, and nothing where there was nothing."""

import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import rasterio
from geo_options import split
from PIL import ExifTags, Image, ImageOps
from rasterio.control import GroundControlPoint
from rasterio.enums import ColorInterp

from thera.errors import ImageFileError, InvalidInput
from thera.geo import upscaling
from thera.geo.raster import describe, is_raster
from thera.geo.reading import open_reader
from thera.geo.upscaling import RasterOptions, prepare_raster
from thera.imaging.sizing import TargetSize
from thera.values.planes import Plane
from thera.values.ranges import Stretch


def scaled(source, model, scale=1.5, output=None, **options):
    output = output or source.with_name("out.tif")
    given = split(RasterOptions, overwrite=True, **options)
    job = prepare_raster(source, output, model, TargetSize(scale=scale), *given)
    job.run()
    with rasterio.open(output) as dataset:
        return dataset.read()


def bands_of(photo, dtype, count=1, low=0.0, high=1.0):
    values = low + (high - low) * np.stack([np.roll(photo, 9 * k, axis=1) for k in range(count)])
    return (values if np.dtype(dtype).kind == "f" else np.rint(values)).astype(dtype)


def xy(transform, column, row):
    a, b, c, d, e, f = tuple(transform)[:6]
    return a * column + b * row + c, d * column + e * row + f


RANGES = {"u1": (3, 250), "u2": (120, 9000), "i2": (-2000, 6000), "i4": (-1e6, 1e6), "f4": (-3.5, 41.25)}


def test_frames_are_as_large_as_the_memory_allows_where_that_saves_effort(make, model):
    source = make(np.ones((1, 3000, 3000), np.uint8))
    given = split(RasterOptions, stretch=Stretch("given", 0, 255), memory=2 << 30)
    job = prepare_raster(source, source.with_name("out.tif"), model, TargetSize(scale=2), *given)
    small = replace(job, frame=upscaling.TILE)
    assert job.frame > small.frame and job.effort < small.effort / 1.1
    for tiles in range(1, job.frame // upscaling.TILE):
        assert job.effort <= upscaling.GOOD_ENOUGH * replace(job, frame=tiles * upscaling.TILE).effort


@pytest.mark.parametrize("dtype", RANGES)
def test_values_come_back_in_their_units_as_the_model_alone_makes_them(make, model, photo, dtype):
    low, high = RANGES[dtype]
    source = make(bands_of(photo, dtype, 2, low, high))
    out = scaled(source, model, 1.7, stretch=Stretch("given", low, high))
    assert out.dtype == np.dtype(dtype)
    with rasterio.open(source) as dataset:
        given = (dataset.read().astype(np.float64) - low) / (high - low)
    for band, result in zip(given, out, strict=True):
        image = np.repeat(band[..., None], 3, axis=2).astype(np.float32)
        expected = model.upscale(image, size=result.shape).mean(-1) * (high - low) + low
        tolerance = 1e-5 * (high - low) + (0 if dtype[0] == "f" else 0.5)
        limits = (-np.inf, np.inf) if dtype[0] == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        np.testing.assert_allclose(result, np.clip(expected, *limits), atol=tolerance)


def test_64_bit_floats_keep_their_digits(make, model, photo):
    """Values that differ by less than float32 can tell, at their height."""
    source = make(bands_of(photo.astype(np.float64), "f8", 1, 1e9, 1e9 + 1))
    out = scaled(source, model, 1.5, stretch=Stretch("given", 1e9, 1e9 + 1))[0]
    expected = model.upscale(np.repeat(photo[..., None], 3, axis=2), size=out.shape).mean(-1)
    np.testing.assert_allclose(out - 1e9, expected, atol=1e-5)


def test_red_green_and_blue_are_seen_together(make, model, photo):
    bands = bands_of(photo, "u1", 3, 0, 255)
    source = make(bands, photometric="RGB")
    assert [group.bands for group in describe(source).bands.groups] == [(0, 1, 2)]
    image = np.moveaxis(bands, 0, -1).astype(np.float32) / 255
    expected = model.upscale(image, size=(180, 225)) * 255
    np.testing.assert_allclose(
        np.moveaxis(scaled(source, model), 0, -1), np.clip(expected, 0, 255), atol=0.51
    )


def test_place_bands_and_tags_are_kept(make, model, photo):
    def describe_it(dataset):
        dataset.update_tags(MISSION="synthetic", TIFFTAG_ARTIST="nobody", AREA_OR_POINT="Point")
        dataset.update_tags(ns="PROCESSING", LEVEL="2A")
        dataset.update_tags(2, WAVELENGTH="842 nm", STATISTICS_MEAN="12")
        dataset.descriptions = ("red", "near infrared", None)
        dataset.units = ("W/m2", "W/m2", "")
        dataset.scales, dataset.offsets = (1e-4, 1e-4, 1.0), (0.0, -0.1, 0.0)
        dataset.colorinterp = [ColorInterp.gray, ColorInterp.undefined, ColorInterp.undefined]

    source = make(bands_of(photo, "i2", 3, -100, 3000), nodata=-32768, describe=describe_it)
    scaled(source, model, 2.3)
    with rasterio.open(source) as before, rasterio.open(source.with_name("out.tif")) as after:
        assert after.crs == before.crs
        pixel = after.transform.a
        np.testing.assert_allclose(after.bounds, before.bounds, rtol=0, atol=1e-6 * pixel)
        assert (after.nodata, after.dtypes) == (before.nodata, before.dtypes)
        assert after.tags() == before.tags()
        assert after.tags(ns="PROCESSING") == {"LEVEL": "2A"}
        assert after.tags(2) == {"WAVELENGTH": "842 nm"}  # statistics of other pixels are not its own
        for name in ("descriptions", "units", "scales", "offsets", "colorinterp"):
            assert getattr(after, name) == getattr(before, name)
        assert after.profile["tiled"]
        assert after.compression.name == "deflate"
        assert after.shape == (276, 345)


def test_large_outputs_have_overviews(make, model, photo, monkeypatch):
    monkeypatch.setattr(upscaling, "TILE", 64)
    monkeypatch.setattr("thera.geo.writing.TILE", 64)
    source = make(bands_of(photo, "u1", 1, 0, 255))
    scaled(source, model, 2)
    with rasterio.open(source.with_name("out.tif")) as dataset:
        assert dataset.overviews(1) == [2, 4, 8]


def test_a_rotated_geotransform_stays_rotated(make, model, photo):
    turned = rasterio.Affine(8, 3, 400_000, 2, -9, 6_600_000)
    source = make(bands_of(photo, "u1", 1, 0, 255), transform=turned)
    scaled(source, model, 1.5)
    with rasterio.open(source.with_name("out.tif")) as dataset:
        for corner in ((0, 0), (225, 0), (0, 180), (225, 180)):
            old = xy(turned, corner[0] / 1.5, corner[1] / 1.5)
            np.testing.assert_allclose(xy(dataset.transform, *corner), old, atol=1e-5)


@pytest.mark.parametrize("crs", [4326, None])
def test_ground_control_points_move_with_the_pixels(make, model, photo, crs):
    points = [GroundControlPoint(r, c, 10 + c / 10, 60 - r / 10) for r, c in ((0, 0), (0, 150), (120, 0))]

    def place(dataset):
        dataset.gcps = points, rasterio.crs.CRS.from_epsg(crs) if crs else rasterio.crs.CRS()

    source = make(bands_of(photo, "u1", 1, 0, 255), crs=None, transform=None, describe=place)
    scaled(source, model, 2)
    with rasterio.open(source.with_name("out.tif")) as dataset:
        found, their_crs = dataset.gcps
        assert (their_crs and their_crs.to_epsg()) == crs
        assert [(p.row, p.col, p.x, p.y) for p in found] == [(2 * p.row, 2 * p.col, p.x, p.y) for p in points]


def holes(shape, seed=0):
    """Valid pixels: all but a rectangle, a corner and a scatter of single ones."""
    rng = np.random.default_rng(seed)
    valid = rng.random(shape) > 0.01
    valid[30:50, 40:90] = False
    valid[-25:, :30] = False
    return valid


@pytest.mark.parametrize(("dtype", "scale"), [("u2", 1.5), ("f4", 2.2), ("i2", 0.6)])
def test_nodata_is_where_it_was_and_has_no_part_in_the_rest(make, model, photo, dtype, scale):
    valid = holes(photo.shape)
    bands = bands_of(photo, dtype, 1, 100, 3000)
    outputs = []
    for name, nodata in (("a.tif", 0), ("b.tif", 30_000)):
        marked = np.where(valid, bands, np.array(nodata, dtype))
        outputs.append(scaled(make(marked, name, nodata=nodata), model, scale)[0])
        rows, cols = (
            ((np.arange(n) + 0.5) * (m / n)).astype(int)
            for n, m in zip(outputs[-1].shape, photo.shape, strict=True)
        )
        np.testing.assert_array_equal(outputs[-1] != nodata, valid[np.ix_(rows, cols)])
    there = outputs[0] != 0
    # A valid 0 becomes 1 where 0 means nodata.
    np.testing.assert_array_equal(outputs[0][there], np.where(outputs[1] == 0, 1, outputs[1])[there])
    assert outputs[0][there].min() > 0


def test_values_beside_nodata_are_as_if_the_picture_went_on(make, model, photo):
    """A filled hole costs less than twenty grey levels next to it, where its black would cost a hundred."""
    valid = np.ones(photo.shape, bool)
    valid[:, 75:] = False
    bands = bands_of(photo, "f4", 1, 100, 355)
    whole = scaled(make(bands, "whole.tif"), model, 2, stretch=Stretch("given", 100, 355))[0]
    cut = np.where(valid, bands, np.float32(-9999))
    part = scaled(make(cut, "cut.tif", nodata=-9999), model, 2, stretch=Stretch("given", 100, 355))[0]
    assert np.abs(part - whole)[:, 140:150].mean() < 3
    assert (part[:, 150:] == -9999).all()


def test_what_is_no_number_counts_as_nodata(make, model, photo):
    bands = bands_of(photo, "f4")
    bands[0, 10:20, 10:20] = np.nan
    bands[0, 60, 60] = np.inf
    out = scaled(make(bands), model, 2)[0]
    assert np.isnan(out[20:40, 20:40]).all()
    assert np.isnan(out).sum() == 400 + 4


def test_tiles_change_nothing_also_where_nodata_is_continued(make, model, photo, monkeypatch):
    bands = np.where(holes(photo.shape), bands_of(photo, "f4"), np.float32(-1))[:, 10:90, 20:100]
    source = make(bands, nodata=-1)
    whole = scaled(source, model, 1.5)
    monkeypatch.setattr(upscaling, "TILE", 32)
    monkeypatch.setattr(upscaling, "MOST_TILES", 1)
    tiled = scaled(source, model, 1.5)
    np.testing.assert_allclose(tiled, whole, atol=2e-5)


def test_samples_made_in_threads_beside_a_gpu_are_the_same(make, model, photo, monkeypatch):
    source = make(bands_of(photo, "u2", 2, 100, 9000))
    alone, threads = scaled(source, model, 1.5), set()
    put = Plane.put
    monkeypatch.setattr(Plane, "put", lambda *given: (threads.add(threading.get_ident()), put(*given)))
    monkeypatch.setattr(upscaling, "Behind", lambda count, behind=upscaling.Behind: behind(2))
    np.testing.assert_array_equal(scaled(source, model, 1.5), alone)
    assert threading.get_ident() not in threads and threads


def test_an_error_in_a_thread_that_makes_samples_ends_the_run(make, model, photo, monkeypatch, tmp_path):
    def fails(*given):
        raise MemoryError

    source = make(bands_of(photo, "u2", 1, 100, 9000))
    monkeypatch.setattr(Plane, "put", fails)
    monkeypatch.setattr(upscaling, "Behind", lambda count, behind=upscaling.Behind: behind(2))
    with pytest.raises(MemoryError):
        scaled(source, model, 1.5)
    assert [file.name for file in tmp_path.iterdir()] == [source.name]


def test_tiles_without_a_valid_pixel_cost_nothing(make, model, photo, monkeypatch):
    bands = np.zeros((1, *photo.shape), np.uint16)
    source = make(bands, nodata=0)
    monkeypatch.setattr(model, "encode", None)  # calling it would fail
    assert not scaled(source, model).any()


def test_alpha_stays_empty_and_full_where_it_was(make, model, photo):
    bands = bands_of(photo, "u1", 4, 0, 255)
    bands[3] = 255
    bands[3, 20:60, 30:80] = 0
    bands[:3, 20:60, 30:80] = 0
    source = make(bands, photometric="RGB", alpha="YES")
    out = scaled(source, model, 2)
    with rasterio.open(source.with_name("out.tif")) as dataset:
        assert dataset.colorinterp[3] is ColorInterp.alpha
    assert (out[3, 42:118, 62:158] == 0).all()
    outside = np.ones(out.shape[1:], bool)
    outside[38:122, 58:162] = False
    assert (out[3][outside] == 255).all()


@pytest.mark.parametrize(("scale", "frame"), [(2, 512), (2, 32), (1.7, 32), (0.6, 512)])
def test_what_a_soft_alpha_shows_has_its_colour(make, model, monkeypatch, scale, frame):
    """Also where the pixel of the input is wholly transparent, and next to other frames."""
    monkeypatch.setattr("thera.geo.upscaling.TILE", frame)
    monkeypatch.setattr("thera.geo.upscaling.MOST_TILES", 1)
    away = np.hypot(*(np.mgrid[:48, :48] - 22.3))
    alpha = np.clip((18 - away) * 90, 0, 255)
    rgba = np.where(alpha > 0, np.float32([[[200]], [[120]], [[60]]]), 0)
    source = make(np.concatenate([rgba, alpha[None]]).astype(np.uint8), photometric="RGB", alpha="YES")
    out = scaled(source, model, scale)
    seen = out[3] > 0
    assert 0.2 < seen.mean() < 0.7
    np.testing.assert_allclose(out[:3, seen].T.astype(int) - (200, 120, 60), 0, atol=2)
    assert not out[:3, ~seen].any()


def test_a_mask_is_kept(make, model, photo):
    shown = holes(photo.shape)

    def hide(dataset):
        dataset.write_mask(shown)

    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        source = make(bands_of(photo, "u1", 1, 0, 255), describe=hide)
    scaled(source, model, 2)
    with rasterio.open(source.with_name("out.tif")) as dataset:
        np.testing.assert_array_equal(dataset.dataset_mask() > 0, np.kron(shown, np.ones((2, 2))) > 0)


@pytest.mark.parametrize("nodata", [None, 0])
def test_cogs_are_valid(make, model, photo, nodata):
    from rio_cogeo import cog_validate

    source = make(bands_of(photo, "u2", 2, 0, 5000), nodata=nodata)
    out = scaled(source, model, 5, cog=True)  # larger than a tile, so that there are overviews
    valid, errors, warnings = cog_validate(source.with_name("out.tif"), strict=True)
    assert (valid, errors, warnings) == (True, [], [])
    assert out.shape == (2, 600, 750)
    np.testing.assert_array_equal(out, scaled(source, model, 5))


def test_percentiles_of_the_whole_raster_are_stated(make, model, photo):
    bands = bands_of(photo, "u2", 2, 0, 4000)
    bands[1] //= 2
    source = make(bands, nodata=0)
    job = prepare_raster(
        source,
        source.with_name("o.tif"),
        model,
        TargetSize(scale=2),
        file=RasterOptions(Stretch.parse("2%:98%")),
    )
    for span, band in zip(job.spans, bands, strict=True):
        inner = band[band != 0]
        assert (span.low, span.high) == tuple(np.percentile(inner, [2, 98], method="nearest"))
    assert job.notes[1].startswith("band 2: ")


def test_pictures_are_told_from_rasters(make, photo, tmp_path):
    import tifffile

    bytes_ = bands_of(photo, "u1", 1, 0, 255)
    plain = {"crs": None, "transform": None}
    assert is_raster(make(bytes_))
    assert is_raster(make(bytes_, nodata=0, **plain))
    assert is_raster(make(np.repeat(bytes_, 6, axis=0), **plain))
    assert not is_raster(make(bytes_, **plain))
    tifffile.imwrite(tmp_path / "cut.tif", photo)
    (tmp_path / "cut.tif").write_bytes((tmp_path / "cut.tif").read_bytes()[:50])
    assert not is_raster(tmp_path / "cut.tif")
    assert not is_raster(tmp_path / "none.tif")


@pytest.mark.parametrize("suffix", [".tif", ".png", ".jpg", ".webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_held_sideways_are_upright_rasters(photo, tmp_path, orientation, suffix):
    image = Image.fromarray(np.rint(photo * 255).astype(np.uint8)).convert("RGB")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    exif[ExifTags.Base.XResolution], exif[ExifTags.Base.YResolution] = 72.0, 300.0
    path = tmp_path / f"a{suffix}"
    image.save(path, exif=exif, **({"lossless": True} if suffix == ".webp" else {}))
    with Image.open(path) as stored:
        seen = np.asarray(ImageOps.exif_transpose(stored))
    raster = describe(path)
    assert raster.shape == seen.shape[:2] and "EXIF_Orientation" not in raster.tags[None]
    if suffix == ".jpg":
        assert raster.tags[None]["EXIF_XResolution"] == ("(300)" if orientation > 4 else "(72)")
    with open_reader(raster) as reader:
        for top, left, bottom, right in [(0, 0, *raster.shape), (3, 5, 40, 60)]:
            samples, _ = reader.read((top, left, bottom, right), range(reader.raster.count))
            np.testing.assert_array_equal(samples, seen[top:bottom, left:right])


def test_a_map_stays_as_its_place_describes_it(photo, tmp_path):
    path, exif = tmp_path / "a.tif", Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.fromarray(photo).save(path, exif=exif)
    assert describe(path).orientation == 6
    with rasterio.open(path, "r+") as dataset:
        dataset.crs, dataset.transform = "EPSG:32633", rasterio.Affine(10, 0, 400_000, 0, -10, 6_600_000)
    with Image.open(path) as image:
        assert image.getexif()[ExifTags.Base.Orientation] == 6
    assert describe(path).shape == photo.shape


BIG = """
import sys
from pathlib import Path
import thera
from thera.geo.upscaling import RasterOptions, prepare_raster
from thera.imaging.sizing import TargetSize
from thera.tiled import Options
source, output, model = Path(sys.argv[1]), Path(sys.argv[2]), thera.load("edsr-air")
prepare_raster(source, output, model, TargetSize(scale=1.5), Options(memory=700 << 20)).run()
# The peak of this program alone: getrusage counts from what the process was that started it.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) >> 10)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux does")
def test_neither_input_nor_output_is_ever_whole_in_memory(tmp_path):
    """A raster of 72 MB becomes one of 162 MB in less memory than they would add to the rest."""
    source, output = tmp_path / "in.tif", tmp_path / "out.tif"
    with rasterio.open(
        source, "w", driver="GTiff", height=6_000, width=6_000, count=1, dtype="uint16", crs="EPSG:32633",
        transform=rasterio.Affine(10, 0, 4e5, 0, -10, 6.6e6), nodata=0, tiled=True, compress="deflate",
    ) as dataset:  # fmt: skip
        patch = np.random.default_rng(0).integers(100, 4000, (256, 256), np.uint16)
        dataset.write(patch, 1, window=((3000, 3256), (3000, 3256)))
    run = subprocess.run(
        [sys.executable, "-c", BIG, source, output], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) < 600
    with rasterio.open(output) as dataset:
        assert dataset.shape == (9_000, 9_000)
        assert dataset.read(1, window=((4510, 4870), (4510, 4870))).min() > 0


def test_complex_bands_are_refused(make, model):
    source = make(np.ones((1, 8, 8), np.complex64))
    with pytest.raises(ImageFileError, match="complex"):
        scaled(source, model)


def test_mixed_types_are_refused(make, model, photo, tmp_path):
    make(bands_of(photo, "u1", 1, 0, 255), "a.tif")
    make(bands_of(photo, "f4"), "b.tif")
    band = (
        '<VRTRasterBand dataType="{}" band="{}"><SimpleSource><SourceFilename relativeToVRT="1">{}'
        "</SourceFilename><SourceBand>1</SourceBand></SimpleSource></VRTRasterBand>"
    )
    (tmp_path / "mixed.vrt").write_text(
        '<VRTDataset rasterXSize="150" rasterYSize="120">'
        + band.format("Byte", 1, "a.tif") + band.format("Float32", 2, "b.tif") + "</VRTDataset>"
    )  # fmt: skip
    with pytest.raises(ImageFileError, match="float32 and uint8"):
        scaled(tmp_path / "mixed.vrt", model)


def test_a_palette_with_nodata_is_refused_and_told_how(make, model):
    def colour(dataset):
        dataset.write_colormap(1, {0: (0, 0, 0, 255), 1: (255, 0, 0, 255)})

    source = make(np.ones((1, 20, 20), np.uint8), nodata=0, describe=colour)
    assert is_raster(source)
    with pytest.raises(ImageFileError, match="-expand"):
        scaled(source, model)


def test_other_endings_and_outputs_that_exist_are_refused(make, model, photo, tmp_path):
    source = make(bands_of(photo, "u1", 1, 0, 255))
    with pytest.raises(ImageFileError, match=r"\.tif"):
        scaled(source, model, output=tmp_path / "a.png")
    with pytest.raises(ImageFileError, match="--overwrite"):
        prepare_raster(source, make(bands_of(photo, "u1"), "b.tif"), model, TargetSize(scale=2))
    with pytest.raises(ImageFileError, match="the input itself"):
        scaled(source, model, output=source)
    with pytest.raises(InvalidInput, match="--memory"):
        scaled(source, model, memory=100 << 20)


def test_a_damaged_raster_leaves_no_output(make, model, photo, tmp_path):
    source = make(np.repeat(bands_of(photo, "u1", 1, 0, 255), 2, axis=0), compress="deflate")
    whole = source.read_bytes()
    source.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ImageFileError, match=r"scene\.tif"):
        scaled(source, model)
    assert [path.name for path in tmp_path.iterdir()] == ["scene.tif"]


def test_an_interrupted_run_leaves_nothing(make, model, photo, tmp_path):
    source = make(bands_of(photo, "u1", 2, 0, 255))
    job = prepare_raster(source, tmp_path / "out.tif", model, TargetSize(scale=2))

    def interrupt(pixels):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.run(interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["scene.tif"]


def test_an_older_output_stays_until_the_new_one_is_whole(make, model, photo, tmp_path):
    source, old = make(bands_of(photo, "u1", 2, 0, 255)), make(bands_of(photo, "u1"), "old.tif")
    before = old.read_bytes()
    job = prepare_raster(source, old, model, TargetSize(scale=2), file=RasterOptions(overwrite=True))
    with pytest.raises(ZeroDivisionError):
        job.run(lambda pixels: 1 / 0)
    assert old.read_bytes() == before


FULL = """
import resource, sys
from pathlib import Path
import thera
from thera.errors import ImageFileError
from thera.geo.upscaling import RasterOptions, prepare_raster
from thera.imaging.sizing import TargetSize
source, output, model = Path(sys.argv[1]), Path(sys.argv[2]), thera.load("edsr-air")
file = RasterOptions(cog=sys.argv[3] == "cog")
job = prepare_raster(source, output, model, TargetSize(scale=4), file=file)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), int(sys.argv[4])))
try:
    job.run()
except ImageFileError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit on the size of files")
@pytest.mark.parametrize("limit", [20_000, 300_000])
@pytest.mark.parametrize("kind", ["tif", "cog"])
def test_a_disk_that_fills_up_is_said_and_leaves_nothing(make, photo, tmp_path, kind, limit):
    noise = np.random.default_rng(0).integers(0, 255, (1, 150, 200), np.uint8)
    source = make(noise)
    run = subprocess.run(
        [sys.executable, "-c", FULL, source, tmp_path / "out.tif", kind, str(limit)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "could not be written" in run.stdout, run
    assert [path.name for path in tmp_path.iterdir()] == ["scene.tif"]
