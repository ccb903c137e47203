"""`thera.upscale` and what lies beneath it: planes, alpha, depth."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import thera
from thera.errors import ImageFileError, InvalidInput
from thera.field.grid import Axis
from thera.imaging.files import FileOptions, prepare_file
from thera.imaging.light import write_hdr
from thera.imaging.metadata import Metadata
from thera.imaging.picture import Picture
from thera.imaging.reading import read
from thera.imaging.sizing import TargetSize
from thera.imaging.srgb import srgb_planes
from thera.imaging.upscaling import scale_picture
from thera.memory import human_bytes, parse_bytes
from thera.tiled import Options
from thera.values.alpha import AlphaLimits
from thera.values.places import interpolated, interpolated_at
from thera.values.ranges import Range
from thera.values.survey import FloatRange
from thera.values.transfer import HLG, LINEAR, PQ, SRGB, from_light, to_light


@pytest.mark.parametrize("shape", [(9, 7), (9, 7, 1), (9, 7, 2), (9, 7, 3), (9, 7, 4)], ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64, np.int16])
def test_arrays_come_back_as_they_came(model, shape, dtype):
    values = np.random.default_rng(0).random(shape)
    image = (values if np.dtype(dtype).kind == "f" else values * np.iinfo(dtype).max).astype(dtype)
    scaled = thera.upscale(image, 2.5, model=model)
    assert scaled.dtype == dtype
    assert scaled.shape == (22, 18, *shape[2:])
    assert thera.upscale(image, size=(5, 30), model=model).shape == (5, 30, *shape[2:])


@pytest.mark.parametrize("dtype", ["u2", "i2", "f4", "f8"])
def test_arrays_of_either_byte_order_become_the_same(model, dtype):
    image = np.random.default_rng(0).integers(100, 3000, (9, 7, 3)).astype(dtype)
    swapped = image.astype(image.dtype.newbyteorder())
    scaled = thera.upscale(swapped, 2, model=model)
    assert scaled.dtype == swapped.dtype
    np.testing.assert_array_equal(scaled, thera.upscale(image, 2, model=model))


def test_float64_keeps_small_differences_of_large_numbers(model):
    unit = np.random.default_rng(0).random((12, 10, 4))
    unit.flat[:2] = 0, 1
    unit[:6, :, 3], unit[6:, :, 3] = 1, 0
    offset = np.array([1e9, 1e9, 1e9, 0])
    scaled = thera.upscale(unit + offset, 2, model=model)
    np.testing.assert_allclose(scaled - offset, thera.upscale(unit, 2, model=model), atol=1e-5)


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "CMYK", "I;16", "F"])
def test_pillow_images_keep_their_mode_and_what_they_carry(model, mode):
    image = Image.effect_noise((8, 6), 50)
    image = Image.fromarray(np.asarray(image, np.uint16) * 200) if mode == "I;16" else image.convert(mode)
    image.info["icc_profile"] = b"profile"
    scaled = thera.upscale(image, 2, model=model)
    assert (scaled.mode, scaled.size) == (mode, (16, 12))
    assert scaled.info["icc_profile"] == b"profile"


def test_palettes_become_colours_and_pillow_images_are_turned_upright(model):
    palette = Image.effect_noise((8, 6), 50).convert("P")
    assert thera.upscale(palette, 2, model=model).mode == "RGB"
    turned = Image.effect_noise((8, 6), 50)
    turned.getexif()[274] = 6
    scaled = thera.upscale(turned, 2, model=model)
    assert scaled.size == (12, 16)
    assert scaled.getexif()[274] == 1


@pytest.mark.parametrize("shape", [(9, 7), (3, 9, 7), (1, 9, 7), (2, 3, 9, 7)], ids=str)
def test_tensors_come_back_as_they_came(model, shape):
    torch = pytest.importorskip("torch")
    image = torch.rand(shape)
    scaled = thera.upscale(image, 2, model=model)
    assert scaled.dtype == image.dtype
    assert tuple(scaled.shape) == (*shape[:-2], 18, 14)
    flat, flat_scaled = image.reshape(-1, 9, 7), scaled.reshape(-1, 18, 14)
    if shape[0] == 3:
        array = flat.permute(1, 2, 0).numpy()
        expected = thera.upscale(array, 2, model=model)
        np.testing.assert_array_equal(flat_scaled.permute(1, 2, 0).numpy(), expected)


@pytest.mark.parametrize("shape", [(9, 7, 3), (2, 9, 7, 4)], ids=str)
def test_a_tensor_whose_channels_come_last_is_refused(model, shape):
    """It would be taken for nine bands, each as wide as there are channels."""
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidInput, match=r"channels come first.*movedim\(-1, -3\)"):
        thera.upscale(torch.rand(shape), 2, model=model)
    assert thera.upscale(torch.rand(9, 7, 3), 2, model=model, groups=[]).shape == (9, 14, 6)


def test_tensors_of_bfloat16_come_back_as_such_and_empty_batches_are_refused(model):
    torch = pytest.importorskip("torch")
    result = thera.upscale(torch.full((3, 8, 6), 0.5, dtype=torch.bfloat16), 2, model=model)
    assert result.shape == (3, 16, 12) and result.dtype == torch.bfloat16
    with pytest.raises(InvalidInput, match="none 0"):
        thera.upscale(torch.zeros(0, 3, 8, 6), 2, model=model)


@pytest.mark.parametrize(
    "wish",
    [
        {"scale": "2"},
        {"scale": (2, 3)},
        {"size": 5},
        {"size": "34"},
        {"size": (3.7, 4.2)},
        {"size": ("3", "4")},
    ],
)
def test_a_size_that_is_none_is_refused_in_a_sentence(model, wish):
    with pytest.raises(InvalidInput, match="makes no image"):
        thera.upscale(np.zeros((8, 6), np.uint8), **wish, model=model)


def test_integers_are_the_floats_rounded(model):
    image = np.random.default_rng(1).integers(0, 256, (12, 10, 3), np.uint8)
    exact = model.upscale(image.astype(np.float32) / 255, scale=3)
    np.testing.assert_array_equal(thera.upscale(image, 3, model=model), np.rint(np.clip(exact, 0, 1) * 255))


def test_grey_is_what_three_equal_channels_would_be(model):
    grey = np.random.default_rng(2).random((12, 10), np.float32)
    colours = model.upscale(np.repeat(grey[..., None], 3, axis=2), scale=2)
    np.testing.assert_allclose(thera.upscale(grey, 2, model=model), colours.mean(axis=2), atol=1e-6)


def test_values_outside_zero_to_one_are_scaled_in_their_own_range(model):
    unit = np.random.default_rng(3).random((12, 10, 3), np.float32)
    unit.flat[:2] = 0, 1
    wide = unit * 5000 - 300
    scaled = thera.upscale(wide, 2, model=model)
    np.testing.assert_allclose((scaled + 300) / 5000, thera.upscale(unit, 2, model=model), atol=1e-5)


def test_inks_are_scaled_as_the_light_they_leave(make_picture, model):
    picture = make_picture("cmyk")
    colours, black = picture.planes(halo=2)
    np.testing.assert_allclose(
        colours.cells((0, 0, 3, 4)), 1 - picture.samples[:3, :4, :3] / 255.0, atol=1e-6
    )
    np.testing.assert_allclose(
        black.cells((2, 2, 4, 4))[..., 1], 1 - picture.samples[2:4, 2:4, 3] / 255.0, atol=1e-6
    )


def seen_colours(image, halo=40):
    """What the network sees of the colours of a picture with alpha, in the picture's own units."""
    plane = Picture.of_channels(image).planes(halo)[0]
    return plane.cells((0, 0, *image.shape[:2])) * np.iinfo(image.dtype).max


def test_hidden_colours_continue_the_visible_ones_and_visible_ones_stay():
    rng = np.random.default_rng(4)
    image = rng.integers(0, 256, (70, 301, 4), np.uint8)
    image[..., 3] = rng.random((70, 301)) < 0.01
    filled = seen_colours(image)
    seen = image[..., 3] > 0
    np.testing.assert_allclose(filled[seen], image[seen][:, :3], atol=1e-4)
    assert filled.min() >= image[seen][:, :3].min() - 1e-3
    assert filled.max() <= image[seen][:, :3].max() + 1e-3
    one_colour = np.zeros((40, 50, 4), np.uint16)
    one_colour[20, 30] = (1000, 2000, 60000, 1)
    expected = np.broadcast_to(np.float32((1000, 2000, 60000)), (20, 20, 3))
    np.testing.assert_allclose(seen_colours(one_colour)[10:30, 20:40], expected, rtol=1e-4)


def test_what_stands_in_for_hidden_colours_does_not_depend_on_the_window():
    image = np.random.default_rng(5).integers(0, 256, (300, 280, 4), np.uint8)
    image[..., 3] = (np.hypot(*(np.mgrid[:300, :280] - 140)) < 60) * 255
    plane = Picture.of_channels(image).planes(halo=10)[0]
    whole = plane.cells((0, 0, 300, 280))
    for box in ((50, 60, 170, 200), (0, 0, 90, 100), (77, 130, 78, 131)):
        part = whole[box[0] : box[2], box[1] : box[3]]
        np.testing.assert_allclose(plane.cells(box), part, atol=1e-6)


@pytest.mark.parametrize("alpha", [0, 7])
def test_colours_are_seen_as_they_are_if_all_or_nothing_is_visible(alpha):
    image = np.random.default_rng(6).integers(0, 256, (9, 8, 4), np.uint8)
    image[..., 3] = alpha
    np.testing.assert_allclose(seen_colours(image), image[..., :3], atol=1e-4)


def test_alpha_may_take_the_values_it_lies_between_and_no_others():
    alpha = np.zeros((9, 9), np.uint8)
    alpha[4, 4] = 200
    axis = Axis.whole(9, 36)
    low, high = AlphaLimits(alpha, (36, 36)).at(axis, axis)
    assert low.max() == 0
    near = np.abs(axis.centre - 4.5) < 1  # nearer to that pixel's centre than its neighbours' are
    np.testing.assert_array_equal(high > 0, np.outer(near, near))
    coarse = Axis.whole(9, 3)
    _, high = AlphaLimits(alpha, (3, 3)).at(coarse, coarse)
    assert high.max() == 200
    assert high[1, 1] == 200


def test_what_a_soft_alpha_shows_is_no_nodata(model):
    alpha = np.clip((9 - np.hypot(*(np.mgrid[:24, :24] - 11.3))) * 90, 0, 255)
    image = np.concatenate([np.full((24, 24, 3), 200), alpha[..., None]], axis=2).astype(np.uint8)
    scaled = thera.upscale(image, 3, model=model, nodata=7)
    shown, under = scaled[..., 3] > 0, np.kron(image[..., 3] > 0, np.ones((3, 3), bool))
    assert (shown & ~under).any()  # beyond the input's edge
    np.testing.assert_array_equal((scaled[..., :3] == 7).all(axis=2), ~shown)


def test_alpha_of_the_same_size_stays_as_it_is_on_every_side():
    alpha = np.random.default_rng(0).integers(0, 256, (7, 9), np.uint8)
    for limit in AlphaLimits(alpha, alpha.shape).at(Axis.whole(7, 7), Axis.whole(9, 9)):
        np.testing.assert_array_equal(limit, alpha)
    three = AlphaLimits(alpha, (21, 27)).at(Axis.whole(7, 21), Axis.whole(9, 27))
    assert (three[1][1::3, 1::3] > three[0][1::3, 1::3]).any()  # of a third of a pixel it is not known


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ([[1, 2]], "type list"),
        (np.zeros((3, 4, 4, 3)), r"shape \(3, 4, 4, 3\)"),
        (np.zeros((4, 4, 5)), "channels come last"),
        (np.zeros((0, 4)), "shape"),
        (np.full((4, 4), np.nan), "NaN"),
        (np.zeros((4, 4), bool), "bool"),
        (np.zeros((4, 4), complex), "complex"),
        pytest.param(
            np.zeros((4, 4), np.longdouble),
            "64 bits at most",
            marks=pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="a double is the longest"),
        ),
        (np.ma.masked_less(np.ones((4, 4)), 0), r"masked.*filled\(value\)"),
        (Image.new("RGB", (0, 5)), "0×5"),
    ],
)
def test_what_is_no_image_is_refused_in_a_sentence(model, image, reason):
    with pytest.raises(InvalidInput, match=reason):
        thera.upscale(image, 2, model=model)


def test_a_pillow_image_that_is_cut_short_is_refused_in_a_sentence(model):
    file = io.BytesIO()
    Image.effect_noise((40, 30), 60).save(file, "PNG")
    image = Image.open(io.BytesIO(file.getvalue()[:-200]))
    with pytest.raises(ImageFileError, match=r"^The image is damaged or cut short \(.+\)\.$"):
        thera.upscale(image, 2, model=model)


def test_a_pillow_image_that_does_not_fit_in_memory_is_not_called_damaged(model, monkeypatch):
    def load():
        raise MemoryError

    image = Image.new("RGB", (40, 30))
    monkeypatch.setattr(image, "load", load)
    with pytest.raises(ImageFileError, match="does not fit in memory"):
        thera.upscale(image, 2, model=model)


def test_tensors_that_numpy_cannot_hold_are_refused_in_a_sentence(model):
    torch = pytest.importorskip("torch")
    plain = torch.zeros(3, 4, 4)
    for odd in (plain.to_sparse(), plain.to("meta")):
        with pytest.raises(InvalidInput, match="expected a dense one with data"):
            thera.upscale(odd, 2, model=model)
    for odd in (plain.to(torch.float8_e4m3fn), plain.to(torch.complex64).conj()):
        with pytest.raises(InvalidInput, match="expected integers or floats of"):
            thera.upscale(odd, 2, model=model)


def test_memory_is_an_amount_as_people_write_it_and_the_message_tells_it_back(model):
    image = np.zeros((9, 7, 3), np.uint8)
    assert thera.upscale(image, 2, model=model, memory="2GiB").shape == (18, 14, 3)
    with pytest.raises(InvalidInput, match="and 10 B are allowed"):
        thera.upscale(image, 40, model=model, memory=10)
    for nonsense in ("much", 0, -3, [1]):
        with pytest.raises(InvalidInput, match="is not an amount of memory"):
            thera.upscale(image, 2, model=model, memory=nonsense)


def test_a_result_that_fits_in_no_memory_is_refused(model):
    with pytest.raises(InvalidInput, match="writes such images to disk"):
        thera.upscale(np.zeros((100, 100, 3)), 3000, model=model)


@pytest.mark.parametrize(
    ("target", "source", "size"),
    [
        (TargetSize(scale=2.5), (3, 5), (8, 12)),
        (TargetSize(width=1000), (600, 800), (750, 1000)),
        (TargetSize(height=1), (600, 8000), (1, 13)),
        (TargetSize(width=1), (10, 1000), (1, 1)),
        (TargetSize(fit=(1080, 1920)), (600, 800), (1080, 1440)),
        (TargetSize(fit=(100, 100)), (600, 800), (75, 100)),
        (TargetSize(size=(7, 9)), (600, 800), (7, 9)),
    ],
)
def test_sizes_are_what_was_asked_for(target, source, size):
    assert target.for_image(source) == size


def test_amounts_of_memory_are_read_as_people_write_them():
    assert parse_bytes("1.5 GiB") == parse_bytes("1.5g") == 3 << 29
    assert parse_bytes("500MB") == 500_000_000
    assert parse_bytes("4096") == 4096
    for nonsense in ("", "GiB", "-1GiB", "nan", "1 parsec"):
        with pytest.raises(InvalidInput):
            parse_bytes(nonsense)
    assert human_bytes(3 << 40) == "3 TiB"


def test_a_highlight_acts_on_its_surroundings_alone(make_picture):
    model, plain = thera.load("edsr-air"), make_picture("rgb", False, "f4", size=(72, 72)).samples
    lit = plain.copy()
    lit[30:33, 30:33] = 200
    plain, bright = (thera.upscale(image, scale=2, model=model) for image in (plain, lit))
    distance = np.hypot(*(np.mgrid[: plain.shape[0], : plain.shape[1]] - 62))
    change = 255 * np.abs(bright - plain)
    assert change[distance > 40].max() < 1
    assert change[distance > 75].max() < 0.01
    np.testing.assert_allclose(bright[61:65, 61:65], 200, rtol=0.02)
    half = thera.upscale(lit, scale=0.5, model=model)
    assert 4 * half.sum() == pytest.approx(lit.sum(), rel=0.002)  # no light is lost


def test_values_beyond_the_range_are_interpolated_as_straight_lines_are():
    ramp = np.linspace(0, 9, 10, dtype=np.float32)[None, :, None] * np.ones((3, 1, 1), np.float32)
    up = interpolated(ramp, Axis.whole(3, 6), Axis.whole(10, 40))
    expected = np.clip((np.arange(40) + 0.5) / 4 - 0.5, 0, 9)
    np.testing.assert_allclose(up[..., 0], np.tile(expected, (6, 1)), atol=1e-5)
    points = np.stack(np.meshgrid([0.7, 1.5], [2.0, 7.25], indexing="ij"), -1).reshape(-1, 2)
    np.testing.assert_allclose(interpolated_at(ramp, points, 1.0)[:, 0], [1.5, 6.75] * 2, atol=1e-5)


def test_ranges_of_floats_leave_out_outliers_and_are_the_same_in_pieces():
    rng = np.random.default_rng(1)
    cases = {
        (0.0, 1.0): np.append(rng.random(1000), 300.0),
        (0.0, 5.0): np.append(5 * rng.random(1000), [0.0, 5.0]),
    }
    for (low, high), numbers in cases.items():
        for dtype in ("f2", "f4", "f8"):
            samples = numbers.astype(dtype)
            assert Range.of(samples) == Range(low, high)
            wanted = FloatRange(np.dtype(dtype))
            for _ in range(wanted.passes):
                wanted.narrow(wanted.counted(samples[:300]) + wanted.counted(samples[300:]))
            assert wanted.range == Range(low, high)
    far = np.append(rng.normal(1000, 10, 1000), 1e6)
    assert Range.of(far).high < 1100


@pytest.mark.parametrize(("transfer", "level"), [(SRGB, 65535), (PQ, 50000), (HLG, 60000)])
def test_bright_dots_keep_their_light_when_a_picture_becomes_smaller(tmp_path, transfer, level):
    dots = np.zeros((48, 48, 3), np.uint16)  # 8 bits would round faint light to black
    dots[6::12, 6::12] = level
    metadata = Metadata(cicp=None if transfer == SRGB else bytes([9, transfer, 0, 1]))
    picture, model, light = Picture.of_channels(dots, metadata), thera.load("edsr-air"), []
    for linear in (False, True, None):
        output, file = tmp_path / f"{linear}.png", FileOptions(linear=linear)
        prepare_file(picture, output, model, TargetSize(scale=0.25), file=file).run()
        made = read(output)
        assert made.metadata.cicp == metadata.cicp
        before, after = (to_light(s / np.float32(65535), transfer) for s in (dots, made.samples))
        light.append(16 * after.sum() / before.sum())
    assert light[0] < 0.3 and light[1] == pytest.approx(1, abs=0.15) and light[2] == light[1]


def test_only_what_becomes_smaller_and_has_known_light_is_scaled_in_light_unasked():
    def chosen(shape, dtype=np.uint8, size=(4, 4), **metadata):
        return Picture.of_channels(np.ones(shape, dtype), Metadata(**metadata)).scaled_to(size, None).linear

    assert chosen((8, 8, 3)) and chosen((8, 4, 1)) and chosen((8, 8, 3), np.uint16)
    assert not chosen((4, 4, 3)) and not chosen((2, 8, 3)) and not chosen((2, 2, 3))
    assert not chosen((8, 8, 1), np.uint16) and chosen((8, 8, 1), np.uint16, icc=b"profile")
    assert not chosen((8, 8, 3), np.float32)
    assert chosen((8, 8, 3), np.float32, cicp=bytes([1, LINEAR, 0, 1]))


def test_highlights_of_light_keep_their_light_when_they_are_averaged():
    light = np.full((24, 24, 3), 0.1, np.float32)
    light[8:16, 8:16] = 30
    picture = Picture.of_channels(light, Metadata(cicp=bytes([1, LINEAR, 0, 1])))
    result = scale_picture(thera.load("edsr-air"), picture.scaled_to((12, 12), None), (12, 12), Options())
    assert result.samples.mean() == pytest.approx(light.mean(), rel=0.03)


def test_pillow_images_become_smaller_as_light_and_arrays_if_asked():
    dots = np.zeros((32, 32, 3), np.uint8)
    dots[4::8, 4::8] = 255
    options = {"size": (16, 16), "model": thera.load("edsr-air")}
    image = Image.fromarray(dots)
    plain, light = thera.upscale(dots, **options), thera.upscale(dots, linear=True, **options)
    np.testing.assert_array_equal(np.asarray(thera.upscale(image, **options)), light)
    np.testing.assert_array_equal(np.asarray(thera.upscale(image, linear=False, **options)), plain)
    assert light.mean() > 1.3 * plain.mean()


@pytest.mark.parametrize("transfer", [SRGB, PQ, HLG])
def test_scale_one_is_the_identity_in_light_too(transfer):
    samples = np.arange(65536, dtype=np.uint16)[:: 65536 // (24 * 24 * 3)][: 24 * 24 * 3].reshape(24, 24, 3)
    picture = replace(Picture.of_channels(samples), linear=True, transfer=transfer)
    result = scale_picture(thera.load("edsr-air"), picture, (24, 24), Options())
    np.testing.assert_array_equal(result.samples, samples)


def test_the_app_and_the_server_show_light_as_srgb():
    light = np.float32([[[0.5, 3.0, 0.0]]])
    picture = Picture.of_channels(light, Metadata(cicp=bytes([1, LINEAR, 0, 1])))
    np.testing.assert_allclose(srgb_planes(picture, 4)[0].cells((0, 0, 1, 1)) * 255, [[[188, 255, 0]]])


def test_the_light_of_a_picture_is_known_when_its_metadata_are_dropped(tmp_path):
    samples = np.full((8, 8, 3), 0.5, np.float32)
    with open(tmp_path / "a.hdr", "wb") as file:
        write_hdr(file, Picture.of_channels(samples).layout, [samples])
    for strip in (False, True):
        picture = FileOptions(strip=strip).read(tmp_path / "a.hdr")
        assert picture.planes(halo=4)[0].codes == (LINEAR, SRGB, LINEAR)


@pytest.mark.parametrize("transfer", [SRGB, LINEAR, PQ, HLG])
def test_light_and_samples_are_inverse_to_each_other(transfer):
    values = np.linspace(0, 1, 301, dtype=np.float32)
    light = to_light(values, transfer)
    brightest = {PQ: 10_000 / 203, HLG: 12 / 3.1795}.get(transfer, 1)  # in units of white paper
    assert (light[0], light[-1]) == pytest.approx((0, brightest), abs=1e-3) and (np.diff(light) >= 0).all()
    np.testing.assert_allclose(from_light(light, transfer), values, atol=1e-4)
