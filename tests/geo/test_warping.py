"""Warps: the place of every pixel, the ellipse it covers, and nothing where there is nothing to see."""

import math

import numpy as np
import pytest
import rasterio
from geo_options import split
from PIL import Image
from rasterio.enums import ColorInterp, Resampling
from rasterio.warp import reproject

from thera.errors import ImageFileError, InvalidInput
from thera.field import Gaussian, Lanczos, Point
from thera.field.points import principal_axes
from thera.geo import warped_rasters
from thera.geo.crs import Reprojection, reprojected
from thera.geo.raster import describe
from thera.geo.upscaling import RasterOptions
from thera.geo.warped_rasters import prepare_warped_raster
from thera.imaging.files import FileOptions
from thera.tiled import Options
from thera.tiled.plan import frames
from thera.values.ranges import Stretch
from thera.warp import pictures
from thera.warp.mappings import Lens, Projective, centres
from thera.warp.pictures import prepare_warped_picture
from thera.warp.warping import Warp

UNIT = Stretch("given", 0, 1)


def warped(source, model, view, **options):
    output = source.with_name("out.tif")
    given = split(RasterOptions, overwrite=True, **options)
    job = prepare_warped_raster(describe(source), output, model, view, *given)
    job.run()
    with rasterio.open(output) as dataset:
        return dataset.read()


def to_mercator(source, resolution):
    return reprojected(describe(source), "EPSG:3857", resolution=resolution)


def interior(place):
    H, W = place.size
    return H // 4, W // 4, 3 * H // 4, 3 * W // 4


def gaussian_weights(place, source, box, kappa):
    """A Gaussian of the pixel's own variance, in output pixels around its centre."""
    _, jacobian = Reprojection(describe(source), place)(box)
    size = principal_axes(jacobian)[1][..., 0].mean()
    sigma = math.sqrt(Gaussian().variance(size, kappa)) / size
    z = np.linspace(-4, 4, 33) * sigma
    return z, np.exp(-0.5 * (z[:, None] ** 2 + z**2) / sigma**2)


def lanczos_weights(*_):
    z = np.linspace(-3.24, 3.24, 61)
    return z, Lanczos().falloff(np.hypot(z[:, None], z))


@pytest.mark.parametrize("resolution", [24.0, 60.0], ids=["about_as_fine", "three_times_coarser"])
@pytest.mark.parametrize(
    ("psf", "weights"),
    [(Gaussian(), gaussian_weights), (Lanczos(), lanczos_weights)],
    ids=["gaussian", "lanczos"],
)
def test_a_warp_to_another_crs_is_a_supersampled_one(make, model, photo, resolution, psf, weights):
    """Each pixel is the mean of the field at a thousand places around it, each projected by itself."""
    photo = photo[:64, :64]
    source = make(photo[None])
    place = to_mercator(source, resolution)
    out = warped(source, model, place, psf=psf, stretch=UNIT)[0]
    field = model.encode(np.repeat(photo[..., None], 3, axis=2))
    box, way = interior(place), Reprojection(describe(source), place)
    offsets, weight = weights(place, source, box, model.info.kappa)
    total = np.zeros((box[2] - box[0], box[3] - box[1]))
    for dy, row in zip(offsets, weight, strict=True):
        for dx, w in zip(offsets, row, strict=True):
            if w:
                total += w * field.sample(way.locate(centres(box) + np.array([dy, dx])), Point()).mean(-1)
    expected = total / weight.sum()
    assert np.abs(out[box[0] : box[2], box[1] : box[3]] - expected).max() < 1 / 255


def zone_plate(side):
    r, c = np.mgrid[:side, :side] + 0.5 - side / 2
    return 0.5 + 0.5 * np.cos(np.pi / side * (r * r + c * c)).astype(np.float32)


def test_a_zone_plate_aliases_less_than_with_gdal_s_cubic_and_shows_more(make, model):
    """From degrees to a polar projection, whose pixels cover one to six of the input's, ever differently."""
    side = 200
    transform = rasterio.Affine(0.9, 0, -135, 0, -0.125, 89.9)
    source = make(zone_plate(side)[None], crs="EPSG:4326", transform=transform)
    place = reprojected(describe(source), "EPSG:3413", resolution=24_000, bounds=(-1.5e6, -2e6, 1.5e6, -1e4))
    ours = warped(source, model, place, stretch=UNIT)[0]
    theirs = np.zeros(place.size, np.float32)
    reproject(
        rasterio.band(rasterio.open(source), 1), theirs,
        dst_transform=place.transform, dst_crs=place.crs, resampling=Resampling.cubic,
    )  # fmt: skip
    points, jacobian = Reprojection(describe(source), place)((0, 0, *place.size))
    inside = np.all((points > 8) & (points < side - 8), axis=-1)
    frequency = np.einsum("hwij,hwi->hwj", jacobian, points - side / 2) / side  # cycles to an output pixel
    highest = np.abs(frequency).max(axis=-1)
    truth = 0.5 + 0.5 * np.cos(np.pi / side * ((points - side / 2) ** 2).sum(-1))
    beyond, within = inside & (highest > 0.55), inside & (highest > 0.05) & (highest < 0.35)
    assert beyond.sum() > 500 and within.sum() > 500

    def rms(values):
        return np.sqrt(np.mean(np.square(values)))

    assert rms(ours[beyond] - 0.5) < 0.85 * rms(theirs[beyond] - 0.5)  # which should be grey
    assert rms((ours - truth)[within]) < 0.5 * rms((theirs - truth)[within])


def test_a_place_in_another_crs_holds_the_whole_raster(make, photo):
    source = make(photo[None])
    place = to_mercator(source, 20)
    raster = describe(source)
    way = Reprojection(raster, place)
    H, W = place.size
    edges = way.locate(np.array([[[0.0, 0.0], [0.0, W], [H, 0.0], [H, W]]]))[0]
    assert (edges[0] <= 0.6).all() and (edges[3] >= np.array(raster.shape) - 0.6).all()
    assert place.crs.to_epsg() == 3857
    assert place.transform.a == -place.transform.e == 20
    # Without a resolution pixels are about as large as they were: 10 m on the ground, at 59.5° north.
    assert to_mercator(source, None).transform.a == pytest.approx(10 / np.cos(np.deg2rad(59.5)), rel=0.01)
    sized = reprojected(raster, "EPSG:3857", size=(50, 70))
    assert sized.size == (50, 70)


def test_reprojecting_agrees_with_gdal_s_idea_of_where_things_are(make, model, photo):
    rows, cols = np.mgrid[:120, :150]
    smooth = (0.5 + 0.4 * np.sin(rows / 17) * np.cos(cols / 23)).astype(np.float32)
    source = make(smooth[None])
    place = to_mercator(source, 20)
    ours = warped(source, model, place, stretch=UNIT)[0]
    theirs = np.full(place.size, np.nan, np.float32)
    reproject(
        rasterio.band(rasterio.open(source), 1), theirs,
        dst_transform=place.transform, dst_crs=place.crs, resampling=Resampling.cubic,
    )  # fmt: skip
    both = np.isfinite(ours) & np.isfinite(theirs)
    inner = both[3:-3, 3:-3]
    assert inner.mean() > 0.9
    # A shift of a tenth of a pixel would show as 0.4 / 17 / 10 = 0.0024, an error of the network as much.
    assert np.abs(ours - theirs)[3:-3, 3:-3][inner].max() < 0.01


def test_parts_change_nothing(make, model, photo, monkeypatch):
    photo = photo[20:90, 30:110]
    source = make(np.where(photo > 0.8, np.float32(-1), photo)[None], nodata=-1)
    place = reprojected(describe(source), "EPSG:3035", resolution=17)
    whole = warped(source, model, place, stretch=UNIT)
    monkeypatch.setattr(warped_rasters, "FRAME", 32)
    monkeypatch.setattr(Warp, "side", property(lambda self: 40))
    monkeypatch.setattr(Warp, "most_cells", property(lambda self: 5000))
    parts = warped(source, model, place, stretch=UNIT)
    np.testing.assert_array_equal(parts == -1, whole == -1)
    # Footprints beyond a pixel are averaged over samples; those of large ones may lie a little elsewhere.
    np.testing.assert_allclose(parts, whole, atol=5e-4)


@pytest.mark.parametrize("numbers", [[1.1, 0.3, 4, -0.2, 0.9, 9], [1, 0.2, 10, 0.1, 0.9, 5, 0.001, 0.002, 1]])
def test_a_matrix_gives_what_the_field_s_own_warp_gives(make, model, photo, numbers):
    photo = photo[20:80, 30:100]
    source = make(photo[None])
    out = warped(source, model, lambda shape: (shape, Projective(numbers, shape)), stretch=UNIT)[0]
    field = model.encode(np.repeat(photo[..., None], 3, axis=2))
    to_input = np.linalg.inv(np.array([*numbers, 0, 0, 1][:9]).reshape(3, 3))[np.ix_([1, 0, 2], [1, 0, 2])]
    expected = field.warp(to_input, photo.shape, Lanczos(), outside=np.nan).mean(-1)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    np.testing.assert_allclose(out, expected, atol=1e-4)


def test_an_affine_map_takes_the_place_with_it_and_a_homography_says_that_it_cannot(make, model, photo):
    source = make(photo[None])
    numbers = [0.5, 0, 0, 0, 0.5, 0]
    warped(source, model, lambda shape: ((60, 75), Projective(numbers, (60, 75))))
    with rasterio.open(source) as before, rasterio.open(source.with_name("out.tif")) as after:
        np.testing.assert_allclose(after.bounds, before.bounds, atol=1e-5)
        assert after.crs == before.crs
    job = prepare_warped_raster(
        describe(source), source.with_name("h.tif"), model,
        lambda shape: (shape, Projective([1, 0, 0, 0, 1, 0, 1e-4, 0, 1], shape)),
    )  # fmt: skip
    assert "no place on the ground" in job.notes[0]
    assert job.grid.crs is None


def test_inverse_matrices_are_those_of_the_others():
    numbers = np.array([[1.1, 0.3, 4], [-0.2, 0.9, 9], [0, 0, 1]])
    one = Projective(numbers[:2].ravel(), (20, 20))
    other = Projective(np.linalg.inv(numbers)[:2].ravel(), (20, 20), inverse=True)
    for a, b in zip(one((0, 0, 20, 20)), other((0, 0, 20, 20)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("shift", [0, 20_000, 1e9])
def test_a_matrix_is_judged_by_what_it_does_not_by_where_or_in_which_units(shift):
    for numbers in ([0, -1, shift, 1, 0, 0], [0.5, 0, shift, 0, 0.5, -shift]):
        points, _ = Projective(numbers, (40, 48))((0, 0, 1, 1))
        x, y = points[0, 0, ::-1]
        np.testing.assert_allclose(np.reshape(numbers, (2, 3)) @ [x, y, 1], 0.5, atol=1e-6)
    metres = np.diag([1e-4, 1e-4, 1])
    seen = np.array([[1, 0.2, 10], [0.1, 0.9, 5], [1e-4, 2e-4, 1]])
    flat = np.array([[1, 0.2, 10], [2, 0.4, shift], [1e-4, 2e-5, 1]])
    for units in (np.eye(3), metres, np.linalg.inv(metres)):
        Projective((units @ seen).ravel(), (40, 48))
        with pytest.raises(InvalidInput, match="full rank"):
            Projective((units @ flat).ravel(), (40, 48))
    with pytest.raises(InvalidInput, match="full rank"):
        Projective([1, 2, shift, 2, 4, 0], (40, 48))


def test_a_lens_is_brown_s_and_its_jacobian_its_derivative():
    lens = Lens((90.0, 80.0, 31.0, 25.0), (-0.2, 0.05, 0.004, -0.003, 0.01))
    box = (0, 0, 50, 64)
    points, jacobian = lens(box)
    x, y = (0.5 - 31.0) / 90, (0.5 - 25.0) / 80
    r2 = x * x + y * y
    radial = 1 - 0.2 * r2 + 0.05 * r2**2 + 0.01 * r2**3
    column = 31 + 90 * (x * radial + 2 * 0.004 * x * y - 0.003 * (r2 + 2 * x * x))
    row = 25 + 80 * (y * radial + 0.004 * (r2 + 2 * y * y) - 2 * 0.003 * x * y)
    np.testing.assert_allclose(points[0, 0], [row, column], atol=1e-12)
    differences = np.stack(np.gradient(points, axis=(0, 1)), axis=-1)
    np.testing.assert_allclose(jacobian[1:-1, 1:-1], differences[1:-1, 1:-1], atol=1e-3)


def test_undoing_a_lens_straightens_what_it_bent(model, tmp_path):
    """A straight edge, photographed through a lens, is straight again."""
    lens = Lens((120.0, 120.0, 64.0, 48.0), (0.25, 0.0, 0.0, 0.0))
    rows, cols = np.mgrid[:96, :128] + 0.5
    x, y = (cols - 64) / 120, (rows - 48) / 120
    for _ in range(30):  # where each distorted pixel was before
        r2 = x * x + y * y
        x, y = (cols - 64) / 120 / (1 + 0.25 * r2), (rows - 48) / 120 / (1 + 0.25 * r2)
    bent = 1 / (1 + np.exp(-(y * 120 + 48 - 20.0) * 1.5))
    Image.fromarray(np.rint(bent * 255).astype(np.uint8)).save(tmp_path / "bent.png")
    prepare_warped_picture(
        tmp_path / "bent.png", tmp_path / "straight.png", model, lambda shape: (shape, lens), outside="edge"
    ).run()
    straight = np.asarray(Image.open(tmp_path / "straight.png"), float) / 255

    def edges(image):
        return 96 - image[:, 8:-8].sum(axis=0)  # the row of the edge in every column

    assert np.ptp(edges(bent)) > 1
    assert np.ptp(edges(straight)) < 0.1
    assert edges(straight).mean() == pytest.approx(20, abs=0.1)


def test_beyond_the_fold_of_a_lens_there_is_nothing():
    points, _ = Lens((20.0, 20.0, 32.0, 32.0), (-0.3, 0, 0, 0))((0, 0, 64, 64))
    assert np.isnan(points[0, 0]).all() and np.isfinite(points[32, 32]).all()


QUARTER = [0, -1, 40, 1, 0, 30]  # turned by 90°, half out of the picture


def seen(shape):
    points, _ = Projective(QUARTER, shape)((0, 0, *shape))
    return np.all((points >= 0) & (points <= np.array(shape)), axis=-1)


def test_rasters_say_where_nothing_is_seen(make, model, photo):
    def view(shape):
        return shape, Projective(QUARTER, shape)

    there = seen(photo.shape)
    assert 0.1 < there.mean() < 0.9
    floats = warped(make(photo[None]), model, view)[0]
    np.testing.assert_array_equal(np.isfinite(floats), there)
    bytes_ = np.rint(photo[None] * 255).astype(np.uint8)
    marked = warped(make(bytes_, nodata=7), model, view)[0]
    assert (marked[~there] == 7).all()
    assert (warped(make(bytes_), model, view)[0][~there] == 0).all()
    with rasterio.open(make(bytes_).with_name("out.tif")) as dataset:
        np.testing.assert_array_equal(dataset.dataset_mask() > 0, there)
    rgba = np.concatenate([np.repeat(bytes_, 3, axis=0), np.full_like(bytes_, 255)])
    out = warped(make(rgba, photometric="RGB", alpha="YES"), model, view)
    np.testing.assert_array_equal(out[3], np.where(there, 255, 0))
    with rasterio.open(make(bytes_).with_name("out.tif")) as dataset:
        assert dataset.colorinterp[3] is ColorInterp.alpha


def test_what_a_soft_alpha_shows_in_a_warp_has_its_colour(make, model):
    alpha = np.clip((18 - np.hypot(*(np.mgrid[:48, :48] - 22.3))) * 90, 0, 255)
    rgba = np.concatenate([np.where(alpha > 0, np.float32([[[200]], [[120]], [[60]]]), 0), alpha[None]])

    def view(shape):
        return shape, Projective([0.9, 0.3, 0, -0.3, 0.9, 5], shape)

    out = warped(make(rgba.astype(np.uint8), photometric="RGB", alpha="YES"), model, view)
    shown = out[3] > 0
    assert 0.2 < shown.mean() < 0.7
    np.testing.assert_allclose(out[:3, shown].T.astype(int) - (200, 120, 60), 0, atol=2)
    assert not out[:3, ~shown].any()


def test_nodata_has_no_part_in_a_warp(make, model, photo):
    photo = photo[20:90, 30:120]
    valid = np.ones(photo.shape, bool)
    valid[20:50, 20:70] = False
    outputs = []
    for name, nodata in (("a.tif", 0), ("b.tif", 60_000)):
        bands = np.where(valid, 1000 + 3000 * photo, nodata).astype(np.uint16)[None]
        source = make(bands, name, nodata=nodata)
        outputs.append(
            warped(source, model, to_mercator(source, 30), stretch=Stretch("given", 1000, 4000))[0]
        )
    there = outputs[0] != 0
    np.testing.assert_array_equal(there, outputs[1] != 60_000)
    np.testing.assert_array_equal(outputs[0][there], outputs[1][there])


@pytest.fixture
def png(tmp_path, photo):
    colours = np.stack([photo, photo[::-1], 1 - photo], axis=-1)
    image = Image.fromarray(np.rint(colours * 255).astype(np.uint8))
    image.save(tmp_path / "a.png", dpi=(300, 300))
    return tmp_path / "a.png"


def through(numbers, size=None):
    return lambda shape: (size or shape, Projective(numbers, size or shape))


def turned(source, model, output, **options):
    outside = options.pop("outside", None)
    given = split(FileOptions, **options)
    prepare_warped_picture(source, output, model, through(QUARTER), *given, outside).run()
    return Image.open(output)


def test_pictures_show_what_was_asked_for_beyond_their_edges(png, model, photo, tmp_path):
    there = seen(photo.shape)
    black = turned(png, model, tmp_path / "black.png")
    assert black.mode == "RGB" and black.info["dpi"] == pytest.approx((300, 300), abs=0.1)
    assert (np.asarray(black)[~there] == 0).all()
    clear = turned(png, model, tmp_path / "clear.png", outside="transparent")
    np.testing.assert_array_equal(np.asarray(clear)[..., 3], np.where(there, 255, 0))
    red = turned(png, model, tmp_path / "red.png", outside=(255, 0, 0))
    assert (np.asarray(red)[~there] == (255, 0, 0)).all()
    edge = np.asarray(turned(png, model, tmp_path / "edge.png", outside="edge"))
    np.testing.assert_array_equal(edge[there], np.asarray(black)[there])
    assert (edge[~there].max(axis=1) > 0).all()
    with pytest.raises(ImageFileError, match="transparency"):
        turned(png, model, tmp_path / "clear.jpg", outside="transparent")


@pytest.mark.parametrize(
    ("dtype", "low", "high", "full"),
    [
        ("u4", 1000, 4_000_000_000, 2**32 - 1),
        ("i2", -2000, 9000, 2**15 - 1),
        ("i4", -(10**9), 10**9, 2**31 - 1),
        ("f4", 0, 1, 1),
        ("f4", -20, 300, 1),
        ("f8", 1e9, 1e9 + 1, 1),
    ],
)
def test_white_is_the_picture_s_own_and_opaque_the_type_s(model, photo, tmp_path, dtype, low, high, full):
    import tifffile

    samples = (low + (high - low) * np.float64((photo - photo.min()) / np.ptp(photo))).astype(dtype)
    tifffile.imwrite(tmp_path / "a.tif", samples)

    def moved(outside):
        view, output = through([1, 0, 10, 0, 1, 10]), tmp_path / "b.tif"
        file = FileOptions(overwrite=True)
        prepare_warped_picture(tmp_path / "a.tif", output, model, view, file=file, outside=outside).run()
        return tifffile.imread(output)

    for outside, expected in (((255, 255, 255), high), ((0, 0, 0), low)):
        out = moved(outside)
        assert out.dtype == np.dtype(dtype) and (out[:10] == expected).all()
    alpha = moved("transparent")[..., 1]
    assert (alpha[:10] == 0).all() and (alpha[:, :10] == 0).all() and (alpha[10:, 10:] == full).all()


def test_alpha_stays_within_what_it_was(png, model, photo, tmp_path):
    image = Image.open(png).convert("RGBA")
    alpha = np.zeros(photo.shape, np.uint8)
    alpha[30:90, 40:110] = 255
    image.putalpha(Image.fromarray(alpha))
    image.save(tmp_path / "b.png")
    shift = [1, 0, 0.5, 0, 1, 0]
    prepare_warped_picture(tmp_path / "b.png", tmp_path / "c.png", model, through(shift)).run()
    out = np.asarray(Image.open(tmp_path / "c.png"))[..., 3]
    assert (out[30:90, 41:110] == 255).all()
    beyond = np.ones(photo.shape, bool)
    beyond[29:91, 39:112] = False
    assert (out[beyond] == 0).all()


def test_pictures_in_parts_are_pictures_as_a_whole(png, model, tmp_path, monkeypatch):
    whole = np.asarray(turned(png, model, tmp_path / "whole.png"), int)
    monkeypatch.setattr(pictures, "FRAME", 37)
    parts = np.asarray(turned(png, model, tmp_path / "parts.png"), int)
    assert np.abs(parts - whole).max() <= 1


@pytest.mark.parametrize(
    "numbers",
    [
        (1, 0, 0, 0, 1, 0),
        (0.5, 0.4, 300, -0.4, 0.5, 200),
        (1, 0, 90, 0.2, 1, 120, 2e-4, 4e-3, 1),
        (1, 0, 90, 0.2, 1, 120, -4e-3, 1e-3, 1),
    ],
)
def test_boxes_that_a_matrix_takes_past_the_input_are_those_in_which_nothing_lies(model, numbers):
    shape, size = (70, 90), (480, 640)
    mapping = Projective(numbers, size)
    points = mapping((0, 0, *size))[0]
    there = ((points >= 0) & (points <= shape)).all(axis=-1)
    missed = 0
    for box in frames(size, 40):
        (piece,) = Warp(model, shape, mapping, Options()).pieces(box)
        np.testing.assert_array_equal(piece.inside, there[box[0] : box[2], box[1] : box[3]])
        missed += mapping.misses(box, shape)
    assert there.any() and missed > 0.5 * (~there).mean() * 12 * 16


def test_far_from_the_picture_no_pixel_is_mapped(png, model, tmp_path, monkeypatch):
    mapped, own = [], Projective.__call__

    def call(self, box):
        mapped.append((box[2] - box[0]) * (box[3] - box[1]))
        return own(self, box)

    monkeypatch.setattr(Projective, "__call__", call)
    view = through([1, 0, 2900, 0, 1, 2900], (3072, 3072))
    job = prepare_warped_picture(png, tmp_path / "far.png", model, view)
    job.run()
    assert sum(mapped) < 3 * 1024**2  # one box of nine, to see it and to warp it
    assert job.work[1] > 0.02 * 3072**2


def test_what_cannot_be_placed_is_said(make, photo):
    bytes_ = np.rint(photo[None] * 255).astype(np.uint8)
    with pytest.raises(InvalidInput, match="--crs"):
        reprojected(describe(make(bytes_, crs=None)), "EPSG:3857")
    with pytest.raises(InvalidInput, match="no geotransform"):
        reprojected(describe(make(bytes_, transform=None)), "EPSG:3857")
    raster = describe(make(bytes_))
    with pytest.raises(InvalidInput, match="EPSG:3857"):
        reprojected(raster, "EPSG:999999")
    with pytest.raises(InvalidInput, match="above 0"):
        reprojected(raster, "EPSG:3857", resolution=-1)
    with pytest.raises(InvalidInput, match="west, south"):
        reprojected(raster, "EPSG:3857", bounds=(1, 2, 0, 3))
    with pytest.raises(InvalidInput, match="pixels that Thera writes"):
        reprojected(raster, "EPSG:3857", resolution=1e-6)
    world = describe(make(bytes_, crs="EPSG:4326", transform=rasterio.Affine(2.4, 0, -180, 0, -1.5, 90)))
    with pytest.raises(InvalidInput, match="--bounds"):
        reprojected(world, "EPSG:3857")


def test_a_rotated_geotransform_is_warped_from_where_it_lies(make, model, photo):
    rows, cols = np.mgrid[:120, :150]
    smooth = (0.5 + 0.4 * np.sin(rows / 17) * np.cos(cols / 23)).astype(np.float32)
    source = make(smooth[None], transform=rasterio.Affine(8, 3, 400_000, 2, -9, 6_600_000))
    place = reprojected(describe(source), "EPSG:32633", resolution=10)
    out = warped(source, model, place, stretch=UNIT)[0]
    points, _ = Reprojection(describe(source), place)((0, 0, *place.size))
    expected = 0.5 + 0.4 * np.sin((points[..., 0] - 0.5) / 17) * np.cos((points[..., 1] - 0.5) / 23)
    inner = np.all((points > 3) & (points < np.array(smooth.shape) - 3), axis=-1)
    assert np.abs(out - expected)[inner].max() < 0.01


@pytest.mark.parametrize(
    ("size", "told"),
    [
        ((0, 3), "3×0 makes no image"),
        ((5, -3), "-3×5 makes no"),
        ((10**6, 10**6), "pixels that Thera writes"),
    ],
)
def test_sizes_that_make_no_image_are_refused(make, png, model, photo, size, told):
    def view(shape):
        return size, Projective(QUARTER, shape)

    source = make(photo[None])
    with pytest.raises(InvalidInput, match=told):
        prepare_warped_picture(png, png.with_name("b.png"), model, view)
    with pytest.raises(InvalidInput, match=told):
        warped(source, model, view)
    with pytest.raises(InvalidInput, match=told):
        reprojected(describe(source), "EPSG:3857", size=size)


def test_too_little_memory_is_said_first(make, model, photo):
    source = make(photo[None])
    with pytest.raises(InvalidInput, match="--memory"):
        warped(source, model, to_mercator(source, 20), memory=300 << 20)
