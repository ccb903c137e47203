"""`thera upscale` on the files people really have."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import ExifTags, Image, ImageCms

from thera import Gaussian, upscale
from thera.geo import files as geo_files
from thera.imaging.picture import Picture
from thera.imaging.reading import read
from thera.imaging.writing import write
from thera.models.choice import ModelChoice
from thera.values.transfer import SRGB, to_light

ASTRONAUT = Path(__file__).parents[2] / "docs" / "images" / "astronaut.png"


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".avif", ".tif", ".bmp"])
def test_every_format_comes_back_as_itself_under_a_name_that_says_the_scale(
    thera, tmp_path, as_bytes, suffix
):
    Image.fromarray(as_bytes).save(tmp_path / f"photo{suffix}", quality=95)
    result = thera("upscale", tmp_path / f"photo{suffix}", "--scale", "2.5")
    assert result.status == 0, result.err
    scaled = read(tmp_path / f"photo_x2.5{suffix}")
    assert scaled.format == read(tmp_path / f"photo{suffix}").format
    assert scaled.layout.size == (120, 160)
    nearest = as_bytes[np.arange(120) * 48 // 120][:, np.arange(160) * 64 // 160]
    assert np.abs(scaled.samples.astype(int) - nearest).mean() < 12  # the same picture, of 255


@pytest.mark.parametrize("form", ["png", "jpeg", "webp", "avif", "tiff", "bmp"])
def test_format_overrides_the_name_and_quality_changes_the_size(thera, tmp_path, png, form):
    (tmp_path / "a.png").write_bytes(png)
    for quality in (30, 95):
        output = tmp_path / f"{quality}.dat"
        options = ("--quality", quality) if form in ("jpeg", "webp", "avif") else ()
        assert thera("upscale", tmp_path / "a.png", output, "-s", 2, "--format", form, *options).status == 0
        with Image.open(output) as image:
            assert image.format.lower() == form
            assert image.size == (128, 96)
    smaller = (tmp_path / "30.dat").stat().st_size < (tmp_path / "95.dat").stat().st_size
    assert smaller == (form in ("jpeg", "webp", "avif"))


@pytest.mark.parametrize(
    ("wish", "size", "name"),
    [
        (["--scale", "3.14"], (201, 151), "a_x3.14.png"),
        (["--size", "100x90"], (100, 90), "a_100x90.png"),
        (["--width", "100"], (100, 75), "a_w100.png"),
        (["--height", "60"], (80, 60), "a_h60.png"),
        (["--fit", "100x60"], (80, 60), "a_fit100x60.png"),
        (["--scale", "0.3"], (19, 14), "a_x0.3.png"),
        (["--width", "1"], (1, 1), "a_w1.png"),
    ],
)
def test_every_wish_for_a_size_is_met_exactly(thera, tmp_path, png, wish, size, name):
    (tmp_path / "a.png").write_bytes(png)
    result = thera("upscale", tmp_path / "a.png", *wish)
    assert result.status == 0, result.err
    assert Image.open(tmp_path / name).size == size


def test_a_phone_photograph_keeps_what_it_carries_upright(thera, tmp_path, as_bytes):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    exif[ExifTags.Base.Make] = "Acme"
    exif.get_ifd(ExifTags.IFD.Exif).update({0xA002: 64, 0xA003: 48, 0x9003: "2020:02:29 12:00:00"})
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><d tiff:Orientation="6"/></x:xmpmeta>'
    image = Image.fromarray(as_bytes)
    image.save(tmp_path / "a.jpg", quality=95, exif=exif, icc_profile=profile, xmp=xmp, dpi=(240, 240))
    assert thera("upscale", tmp_path / "a.jpg", "-s", 2).status == 0
    with Image.open(tmp_path / "a_x2.jpg") as scaled:
        assert scaled.size == (96, 128)
        after = scaled.getexif()
        assert after[ExifTags.Base.Orientation] == 1
        assert after[ExifTags.Base.Make] == "Acme"
        details = after.get_ifd(ExifTags.IFD.Exif)
        assert (details[0xA002], details[0xA003], details[0x9003]) == (96, 128, "2020:02:29 12:00:00")
        assert scaled.info["icc_profile"] == profile
        assert scaled.info["xmp"] == xmp.replace(b'"6"', b'"1"')
        assert scaled.info["dpi"] == (240, 240)
        turned = np.asarray(image.transpose(Image.Transpose.ROTATE_270).resize((96, 128)), int)
        assert np.abs(np.asarray(scaled, int) - turned).mean() < 15
    assert thera("upscale", tmp_path / "a.jpg", tmp_path / "bare.jpg", "-s", 2, "--strip").status == 0
    bare = read(tmp_path / "bare.jpg").metadata
    assert (bare.icc, bare.exif, bare.xmp) == (None, None, None)


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_16_bits_stay_16_bits_and_are_computed_as_such(thera, tmp_path, photo, suffix):
    samples = np.rint(photo * 0.02 * 65535).astype(np.uint16)  # 1,300 levels that 8 bits would make 5
    if suffix == ".png":
        import imagecodecs

        (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(samples))
    else:
        tifffile.imwrite(tmp_path / "a.tif", samples, photometric="rgb")
    assert thera("upscale", tmp_path / f"a{suffix}", "-s", 2).status == 0
    scaled = read(tmp_path / f"a_x2{suffix}").samples
    assert scaled.dtype == np.uint16
    assert len(np.unique(scaled)) > 600
    result = thera("upscale", tmp_path / f"a{suffix}", tmp_path / "a.jpg", "-s", 2)
    assert "16-bit samples became 8-bit" in result.err


def test_bytes_become_floats_where_the_format_has_only_those(thera, tmp_path, as_bytes):
    Image.fromarray(as_bytes).save(tmp_path / "a.png")
    result = thera("upscale", tmp_path / "a.png", tmp_path / "a.hdr", "-s", 1)
    assert result.status == 0 and "8-bit samples became 32-bit" in result.err
    light = read(tmp_path / "a.hdr").samples
    expected = to_light(as_bytes / np.float32(255), SRGB)
    assert np.abs(light - expected).max() < 0.005  # Radiance has 8 bits a channel
    assert thera("upscale", tmp_path / "a.hdr", tmp_path / "b.png", "-s", 1).status == 0
    # A pixel's three mantissas share an exponent: beside a bright channel a dark one is coarse.
    assert np.abs(read(tmp_path / "b.png").samples / 257 - as_bytes).mean() < 1


def test_light_is_shown_to_the_network_as_srgb_and_written_as_light(thera, tmp_path, photo):
    """The same picture as light and as sRGB becomes the same picture, and a PNG cuts off what overshoots."""
    pytest.importorskip("OpenEXR")
    photo = photo[:24, :24].astype(np.float32)
    tifffile.imwrite(tmp_path / "a.tif", photo, photometric="rgb")
    write(tmp_path / "a.exr", Picture.of_channels(to_light(photo, SRGB)))
    for name in ("a.tif", "a.exr"):
        assert thera("upscale", tmp_path / name, "-s", 2, "-m", "edsr-air").status == 0
    stored, light = (read(tmp_path / name).samples for name in ("a_x2.tif", "a_x2.exr"))
    np.testing.assert_allclose(light, to_light(stored, SRGB), atol=2e-5)
    bright = to_light(stored, SRGB)
    bright[:8, :8] = -0.1, 5.0, 0.5
    write(tmp_path / "b.exr", Picture.of_channels(bright))
    result = thera("upscale", tmp_path / "b.exr", tmp_path / "b.png", "-s", 1)
    assert result.status == 0 and "beyond black and white" in result.err
    made = read(tmp_path / "b.png")
    np.testing.assert_allclose(made.samples[8:] / 65535, np.clip(stored, 0, 1)[8:], atol=1e-4)
    assert made.samples[0, 0] / 65535 == pytest.approx([0, 1, 0.7354], abs=1e-3)
    assert made.metadata.cicp is None  # it is sRGB


def test_a_float_tiff_comes_back_in_its_own_range(thera, tmp_path, photo):
    heights = (photo[..., 0] * 3000 - 400).astype(np.float32)
    tifffile.imwrite(tmp_path / "dem.tif", heights)
    assert thera("upscale", tmp_path / "dem.tif", "-s", 2).status == 0
    scaled = read(tmp_path / "dem_x2.tif")
    assert scaled.layout.dtype == np.float32
    means = scaled.samples[..., 0].reshape(48, 2, 64, 2).mean(axis=(1, 3))
    assert np.abs(means - heights).mean() < 60  # of 3,000
    assert "write TIFF" in thera("upscale", tmp_path / "dem.tif", tmp_path / "a.png", "-s", 2).err


def test_grey_stays_grey_and_palettes_and_bits_say_what_they_became(thera, tmp_path, as_bytes):
    image = Image.fromarray(as_bytes)
    image.convert("L").save(tmp_path / "grey.png")
    image.quantize(16).save(tmp_path / "palette.png")
    image.convert("1").save(tmp_path / "bits.png")
    modes = {"grey": ("L", ""), "palette": ("RGB", "palette became full colour"), "bits": ("L", "8-bit grey")}
    for name, (mode, note) in modes.items():
        result = thera("upscale", tmp_path / f"{name}.png", "-s", 2)
        assert result.status == 0
        assert note in result.err
        assert Image.open(tmp_path / f"{name}_x2.png").mode == mode


@pytest.mark.parametrize("suffix", [".jpg", ".tif"])
def test_cmyk_stays_cmyk_with_its_colours(thera, tmp_path, as_bytes, suffix):
    cmyk = Image.fromarray(as_bytes).convert("CMYK")
    samples = np.array(cmyk)
    samples[..., 3] = np.linspace(0, 120, 64).astype(np.uint8)
    Image.fromarray(samples, "CMYK").save(
        tmp_path / f"a{suffix}", quality=95, icc_profile=b"profile of a press"
    )
    assert thera("upscale", tmp_path / f"a{suffix}", "-s", 2).status == 0
    scaled = read(tmp_path / f"a_x2{suffix}")
    assert scaled.colour == "cmyk"
    assert scaled.metadata.icc == b"profile of a press"
    means = scaled.samples.reshape(48, 2, 64, 2, 4).mean(axis=(1, 3))
    assert np.abs(means - samples).mean() < 8
    assert "holds no CMYK" in thera("upscale", tmp_path / f"a{suffix}", tmp_path / "a.png", "-s", 2).err


def test_transparency_has_no_fringe_over_black_or_white(thera, tmp_path):
    rows, cols = np.mgrid[:64, :64] - 31.5
    disc = np.clip(22.5 - np.hypot(rows, cols), 0, 1)  # antialiased
    logo = np.zeros((64, 64, 4), np.uint8)  # black under the transparent part, as most programs leave it
    logo[disc > 0] = (250, 120, 20, 0)
    logo[..., 3] = np.rint(disc * 255)
    Image.fromarray(logo).save(tmp_path / "logo.png")
    assert thera("upscale", tmp_path / "logo.png", "-s", 4).status == 0
    scaled = np.asarray(Image.open(tmp_path / "logo_x4.png"), float)
    colour, alpha = scaled[..., :3], scaled[..., 3:] / 255
    # Where anything shows, the colour is the disc's: over any background there is neither dark nor light rim.
    visible = alpha[..., 0] > 0.02
    assert np.abs(colour[visible] - (250, 120, 20)).max() < 12
    distance = np.hypot(*(np.mgrid[:256, :256] - 127.5)) / 4
    assert alpha[distance > 26].max() == 0  # exactly empty, exactly full
    assert alpha[distance < 18].min() == 1
    for background in (0, 255):
        over = colour * alpha + background * (1 - alpha)
        low, high = np.minimum((250, 120, 20), background), np.maximum((250, 120, 20), background)
        assert (over > low - 12).all()
        assert (over < high + 12).all()
    result = thera("upscale", tmp_path / "logo.png", tmp_path / "logo.jpg", "-s", 1)
    assert "put on white" in result.err
    assert np.asarray(Image.open(tmp_path / "logo.jpg"))[0, 0].min() > 245


def test_alpha_as_data_keeps_the_colours_it_would_hide(thera, tmp_path, as_bytes):
    texture = np.concatenate([as_bytes, np.zeros((48, 64, 1), np.uint8)], axis=2)
    texture[:24, :, 3] = 200
    Image.fromarray(texture).save(tmp_path / "t.png")
    assert thera("upscale", tmp_path / "t.png", "-s", 2, "--alpha", "data").status == 0
    scaled = np.asarray(Image.open(tmp_path / "t_x2.png"), float)
    means = scaled.reshape(48, 2, 64, 2, 4).mean(axis=(1, 3))
    assert np.abs(means[30:, :, :3] - as_bytes[30:]).mean() < 8
    result = thera("upscale", tmp_path / "t.png", tmp_path / "t.jpg", "-s", 2, "--alpha", "data")
    assert "the alpha channel was left out" in result.err
    means = np.asarray(Image.open(tmp_path / "t.jpg"), float).reshape(48, 2, 64, 2, 3).mean(axis=(1, 3))
    assert np.abs(means - as_bytes).mean() < 8


def test_opaque_alpha_costs_nothing_and_stays(thera, tmp_path, as_bytes):
    Image.fromarray(as_bytes).convert("RGBA").save(tmp_path / "a.png")
    Image.fromarray(as_bytes).save(tmp_path / "b.png")
    for name in "ab":
        assert thera("upscale", tmp_path / f"{name}.png", "-s", 2).status == 0
    rgba, rgb = (np.asarray(Image.open(tmp_path / f"{name}_x2.png")) for name in "ab")
    np.testing.assert_array_equal(rgba[..., :3], rgb)
    assert (rgba[..., 3] == 255).all()


def test_filters_sharpness_and_ensemble_change_the_result_as_they_should(thera, tmp_path, png):
    (tmp_path / "a.png").write_bytes(png)
    options = {
        "plain": [],
        "soft": ["--sharpness", "0.4"],
        "box": ["--filter", "box"],
        "none": ["--filter", "none"],
        "turned": ["--ensemble"],
    }
    images = {}
    for name, extra in options.items():
        assert thera("upscale", tmp_path / "a.png", tmp_path / f"{name}.png", "-s", 3, *extra).status == 0
        images[name] = np.asarray(Image.open(tmp_path / f"{name}.png"), float)
    energy = {name: np.abs(np.diff(image, axis=1)).mean() for name, image in images.items()}
    assert energy["soft"] < energy["plain"] <= energy["none"]
    assert len({image.tobytes() for image in images.values()}) == len(images)
    assert np.abs(images["turned"] - images["plain"]).mean() < 5


def test_a_folder_is_done_file_by_file_and_a_second_run_goes_on(thera, tmp_path, png, as_bytes):
    folder = tmp_path / "textures"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.png").write_bytes(png)
    (folder / "deep" / "er" / "b.png").write_bytes(png)
    (folder / "bad.png").write_bytes(png[:300])
    (folder / "notes.txt").write_text("not an image, and not named like one")
    Image.fromarray(as_bytes).save(folder / "c.jpg")
    Image.fromarray(as_bytes).quantize(8).save(folder / "c.gif")

    result = thera("upscale", folder, "-s", 2, "-r", "--json")
    assert result.status == 1
    assert result.err.count("bad.png") == 1
    assert result.counts == {"done": 4, "failed": 1}
    made = sorted(str(p.relative_to(tmp_path)) for p in (tmp_path / "textures_x2").rglob("*") if p.is_file())
    assert made == [
        "textures_x2/a.png",
        "textures_x2/c.gif.png",
        "textures_x2/c.jpg",
        "textures_x2/deep/er/b.png",
    ]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "textures_x2").rglob("*.png")}
    (tmp_path / "textures_x2" / "a.png").unlink()
    (folder / "bad.png").write_bytes(png)
    again = thera("upscale", folder, "-s", 2, "-r", "--json")
    assert again.status == 0
    assert again.counts == {"done": 2, "skipped": 3}
    kept = tmp_path / "textures_x2" / "deep" / "er" / "b.png"
    assert kept.stat().st_mtime_ns == before[kept]
    assert thera("upscale", folder, "-s", 2, "--json", "--overwrite").counts == {"done": 4}


def test_what_fails_in_a_folder_is_named(thera, tmp_path, png, photo):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(png)
    tifffile.imwrite(tmp_path / "in" / "float.tif", photo * 300, photometric="rgb")
    tifffile.imwrite(tmp_path / "in" / "nan.tif", photo * np.nan, photometric="rgb")
    Image.new("CMYK", (8, 8)).save(tmp_path / "in" / "inks.tif")
    result = thera("upscale", tmp_path / "in", "-s", 1.5, "--format", "png", "-q")
    assert result.status == 1
    lines = dict(line.split(": ", 2)[1:] for line in result.err.splitlines())
    reasons = {"float.tif": "cannot hold", "inks.tif": "holds no CMYK", "nan.tif": "NaN"}
    assert sorted(lines) == [str(tmp_path / "in" / name) for name in sorted(reasons)]
    for name, reason in reasons.items():
        assert reason in lines[str(tmp_path / "in" / name)]


def test_files_that_differ_in_their_ending_become_files_of_their_own(thera, tmp_path, png, as_bytes):
    (tmp_path / "in").mkdir()
    for suffix in (".gif", ".jpg", ".png", ".tif"):
        Image.fromarray(as_bytes).quantize(8).convert("RGB").save(tmp_path / "in" / f"a{suffix}")
    options = {"kept": [], "one": ["--format", "png"]}
    for name, extra in options.items():
        for status in ("done", "skipped"):
            result = thera("upscale", tmp_path / "in", tmp_path / name, "-s", 1.5, "--json", *extra)
            assert result.counts == {status: 4}
    names = {name: sorted(path.name for path in (tmp_path / name).iterdir()) for name in options}
    assert names["kept"] == ["a.gif.png", "a.jpg", "a.png", "a.tif"]
    assert names["one"] == ["a.gif.png", "a.jpg.png", "a.png", "a.tif.png"]
    (tmp_path / "kept" / "a.tif").unlink()
    again = thera("upscale", tmp_path / "in", tmp_path / "kept", "-s", 1.5, "--json")
    assert again.counts == {"done": 1, "skipped": 3}


def test_an_unforeseen_failure_in_a_folder_does_not_stop_the_rest(thera, tmp_path, png, monkeypatch):
    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / "in" / f"{name}.png").write_bytes(png)
    real = geo_files.prepare_file

    def prepare(picture: object, output: Path, *rest: object) -> object:
        if output.name == "b.png":
            raise RuntimeError("the roof is leaking")
        return real(picture, output, *rest)

    monkeypatch.setattr(geo_files, "prepare_file", prepare)
    result = thera("upscale", tmp_path / "in", "-s", 1.5)
    assert result.status == 1
    assert "the roof is leaking" in result.err.splitlines()[-1]
    assert sorted(p.name for p in (tmp_path / "in_x1.5").iterdir()) == ["a.png", "c.png"]


def test_the_plan_and_the_end_are_a_line_each_quiet_is_silent_and_json_is_whole(thera, tmp_path, png):
    (tmp_path / "a.png").write_bytes(png)
    loud = thera("upscale", tmp_path / "a.png", "-s", 2)
    assert loud.out == ""
    line, end = loud.err.splitlines()
    assert "a_x2.png is done in " in end and end.endswith(" s.")
    for part in ("64×48", "128×96", "edsr-", " on cpu", "1 tile", "MiB"):
        assert part in line
    assert thera("upscale", tmp_path / "a.png", "-s", 2, "--overwrite", "--quiet") == (0, "", "")
    result = thera("upscale", tmp_path / "a.png", "-s", 2, "--overwrite", "-q", "--json")
    (record,) = result.records
    assert record["status"] == "done"
    assert (record["from"], record["to"]) == ([64, 48], [128, 96])
    assert record["memory"] > 0
    assert record["tiles"] == 1


@pytest.mark.parametrize(("engine", "little"), [("onnx", "370MiB"), ("ncnn", "320MiB")])
def test_little_memory_means_tiles_and_the_same_picture(engine, little, thera, tmp_path):
    big = np.random.default_rng(0).integers(0, 65536, (20, 16, 3), np.uint16)
    image = np.kron(big, np.ones((9, 9, 1), np.uint16))
    tifffile.imwrite(tmp_path / "a.tif", image, photometric="rgb")
    for memory, name in (("2GiB", "whole"), (little, "tiled")):
        output = tmp_path / f"{name}.tif"
        options = ["-m", "edsr-air", "--engine", engine, "--threads", 2, "--memory", memory, "--json", "-q"]
        result = thera("upscale", tmp_path / "a.tif", output, "-s", 1.7, *options)
        assert result.status == 0, result.err
        assert (result.records[0]["tiles"] > 1) == (name == "tiled")
    whole, tiled = (read(tmp_path / f"{name}.tif").samples.astype(int) for name in ("whole", "tiled"))
    assert np.abs(whole - tiled).max() <= 1  # of 65,535: rounding of float32


def test_a_photograph_does_not_shift_against_a_bicubic_resize(thera, tmp_path):
    image = Image.open(ASTRONAUT).crop((60, 20, 156, 116))
    image.save(tmp_path / "a.png")
    for scale in (2, 2.5, 4):
        assert thera("upscale", tmp_path / "a.png", "-s", scale, "-m", "edsr-air").status == 0
        ours = Image.open(tmp_path / f"a_x{scale:g}.png")
        bicubic = image.resize(ours.size, Image.Resampling.BICUBIC)
        for axis in (0, 1):
            shift = registration(np.asarray(bicubic, float), np.asarray(ours, float), axis)
            assert abs(shift) < 0.05, (scale, axis, shift)  # of an output pixel


def test_a_photograph_is_scaled_down_without_aliasing(thera, tmp_path):
    image = Image.open(ASTRONAUT).crop((60, 20, 188, 148))
    image.save(tmp_path / "a.png")
    assert thera("upscale", tmp_path / "a.png", "-s", 0.25).status == 0
    ours, own = (
        to_light(np.asarray(each, np.float32) / 255, SRGB)
        for each in (Image.open(tmp_path / "a_x0.25.png"), image)
    )
    channels = [Image.fromarray(np.ascontiguousarray(own[..., c])) for c in range(3)]
    averaged = np.stack([c.resize((32, 32), Image.Resampling.BICUBIC) for c in channels], -1)  # antialiased
    skipped = own[2::4, 2::4]
    assert np.abs(ours - averaged).mean() < 0.4 * np.abs(skipped - averaged).mean()


def registration(a: np.ndarray, b: np.ndarray, axis: int) -> float:
    """The shift d that best explains b = a - d·a' along an axis, away from the borders."""
    a, b = a.mean(axis=2), b.mean(axis=2)
    inside = (slice(8, -8), slice(8, -8))
    slope = np.gradient(a, axis=axis)[inside]
    return float(-np.sum((b - a)[inside] * slope) / np.sum(slope**2))


def start(*arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-m", "thera", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_nothing_behind(tmp_path, number, status):
    Image.effect_noise((1000, 1000), 60).convert("RGB").save(tmp_path / "a.png")
    program = start("upscale", tmp_path / "a.png", "-s", 4)
    while not any(path.suffix == ".part" for path in tmp_path.iterdir()):  # until it has begun to write
        assert program.poll() is None, program.communicate()
        time.sleep(0.05)
    program.send_signal(number)
    _, err = program.communicate()  # however busy the machine is
    assert program.returncode in (status, -number)  # a shell shows the same for both
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_an_interrupted_folder_leaves_no_empty_folder_behind(tmp_path):
    for name in ("in/a.png", "in/deep/b.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.effect_noise((1000, 1000), 60).convert("RGB").save(tmp_path / name)
    program = start("upscale", tmp_path / "in", tmp_path / "out", "-r", "-s", 4, "-m", "edsr-air")
    while not any((tmp_path / "out").glob(".*.part")):  # until it has begun to write
        assert program.poll() is None, program.communicate()
        time.sleep(0.05)
    program.send_signal(signal.SIGINT)
    _, err = program.communicate()
    assert program.returncode == 130 and "no partial output was left" in err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(("name", "reason"), [("a.jpg", "a_x2.jpg exists"), ("notes.txt", "is not an image")])
def test_what_cannot_be_done_is_said_before_a_model_is_loaded(thera, tmp_path, monkeypatch, name, reason):
    """A model may take seconds to load on a computer where it never ran."""
    loaded = []
    monkeypatch.setattr(ModelChoice, "load", lambda choice: loaded.append(choice))
    Image.new("RGB", (64, 64)).save(tmp_path / "a.jpg")
    (tmp_path / "a_x2.jpg").touch()
    (tmp_path / "notes.txt").write_text("no picture")
    result = thera("upscale", tmp_path / name, "-s", 2, "--model", "auto")
    assert result.status == 1 and reason in result.err
    assert not loaded


# Linux counts the memory of the process that starts another towards the other's peak: a small one starts it.
SMALL = """
import os, sys
_, status, usage = os.wait4(os.posix_spawn(sys.executable, [sys.executable, *sys.argv[1:]], os.environ), 0)
print(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
sys.exit(status != 0)
"""


def test_a_large_output_goes_to_disk_as_it_comes(tmp_path):
    samples = np.random.default_rng(0).integers(0, 65536, (48, 48, 3), np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", samples, photometric="rgb")
    peaks = []
    # What the program holds, not what the allocator keeps of it: glibc would learn to keep large blocks too.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(128 << 10)}
    for side in (2500, 5000):
        program = ["-m", "thera", "upscale", tmp_path / "a.tif", tmp_path / f"{side}.tif"]
        options = ["--size", f"{side}x{side}", "-m", "edsr-air", "-q"]
        command = [sys.executable, "-c", SMALL, *program, *options]
        peaks.append(int(subprocess.check_output(command, env=environment)))
    with tifffile.TiffFile(tmp_path / "5000.tif") as file:
        assert file.pages.first.shape == (5000, 5000, 3)
    assert peaks[1] - peaks[0] < 50 << 20  # of the 107 MiB by which the outputs differ


def test_heic_comes_back_as_png(thera, tmp_path, as_bytes):
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.from_bytes("RGB", (64, 48), as_bytes.tobytes()).save(tmp_path / "a.heic", quality=95)
    result = thera("upscale", tmp_path / "a.heic", "-s", 2)
    assert result.status == 0, result.err
    assert Image.open(tmp_path / "a_x2.png").size == (128, 96)


def test_output_may_be_a_folder(thera, tmp_path, png):
    (tmp_path / "a.png").write_bytes(png)
    (tmp_path / "out").mkdir()
    assert thera("upscale", tmp_path / "a.png", tmp_path / "out", "-s", 2).status == 0
    assert (tmp_path / "out" / "a_x2.png").is_file()


def test_relative_names_work_from_anywhere(thera, tmp_path, png, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.png").write_bytes(png)
    assert thera("upscale", "a.png", "b.png", "-s", 2).status == 0
    Path("folder").mkdir()
    Path("folder/c.png").write_bytes(png)
    assert thera("upscale", "folder", "-s", 2).status == 0
    assert Path("folder_x2/c.png").is_file()
    assert thera("upscale", ".", "out", "-s", 2, "-r").status == 0
    assert sorted(p.name for p in Path("out").iterdir()) == ["a.png", "b.png", "folder", "folder_x2"]


LONG = "n" * 250


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (f"{LONG}.png -s 2", "_x2.png could not be written: file name too long"),
        (f"{LONG}{LONG}.png -s 2", "could not be read: file name too long"),
        (f"{LONG}{LONG}.png -o a.png -s 2 --overwrite", "could not be read: file name too long"),
        (f"a.png {LONG}{LONG}.png -s 2", "could not be written: file name too long"),
        (f"folder {LONG}{LONG} -s 2", "cannot be made: File name too long"),
        (f"folder {LONG}{LONG}/out -s 2", "does not exist"),
        ("loop.png -s 2", "could not be read: too many levels of symbolic links"),
        ("a.png /dev/zero -s 2 --format png", "is a device"),
        ("a.png /dev/zero -s 2 --format png --overwrite", "is a device"),
        ("a.png -s 2 --format png --cog", "--cog writes a TIFF and --format is png"),
        ("a.png -s 2 --format png --range 0:9", "--range writes a TIFF and --format is png"),
        ("a.png -s 2 --max-pixels 0", "'--max-pixels': 0 is not in the range"),
        ("a.png -s 2 --max-pixels -5", "'--max-pixels': -5 is not in the range"),
    ],
    ids=lambda text: text.replace(LONG, "LONG"),
)
def test_odd_names_and_options_get_one_sentence_and_no_file(
    thera, tmp_path, png, monkeypatch, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for name in (f"{LONG}.png", "a.png", "folder/a.png"):
        Path(name).write_bytes(png)
    Path("loop.png").symlink_to("loop.png")
    before = sorted(tmp_path.rglob("*"))
    result = thera("upscale", *arguments.split())
    assert result.status in (1, 2)
    (line,) = result.err.splitlines()
    assert sentence in line
    assert sorted(tmp_path.rglob("*")) == before


def test_several_inputs_go_beside_themselves_or_into_one_folder(thera, tmp_path, png, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("c").mkdir()
    for name in ("a.png", "b.png", "c/d.png", "c/e.png"):
        Path(name).write_bytes(png)
    assert thera("upscale", "a.png", "b.png", "c", "-s", 1.5, "-o", "large", "-q").status == 0
    made = sorted(path.relative_to("large").as_posix() for path in Path("large").rglob("*.png"))
    assert made == ["a_x1.5.png", "b_x1.5.png", "c/d.png", "c/e.png"]
    result = thera("upscale", "a.png", "b.png", "c", "-s", 1.5, "-o", "large", "--json")
    assert result.counts == {"skipped": 4}  # run again, it continues
    before = {name: Path(name).read_bytes() for name in ("a.png", "b.png", "c/d.png")}
    assert thera("upscale", *before, "-s", 1.5, "-q").status == 0
    assert all(Path(name).with_stem(f"{Path(name).stem}_x1.5").is_file() for name in before)
    assert {name: Path(name).read_bytes() for name in before} == before


def test_a_glob_of_two_pictures_never_replaces_one_of_them(thera, tmp_path, png, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "b.png"):
        Path(name).write_bytes(png)
    result = thera("upscale", "a.png", "b.png", "-s", 2, "--overwrite")
    assert result.status == 2 and "give --out b.png --overwrite" in result.err
    assert Path("b.png").read_bytes() == png
    assert thera("upscale", "a.png", "-o", "b.png", "-s", 1.5, "--overwrite", "-q").status == 0
    assert Path("b.png").read_bytes() != png


def test_several_inputs_that_would_be_one_output_are_told_apart_or_refused(thera, tmp_path, png, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "x/a.png"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(png)
    Image.open("a.png").save("a.bmp")
    assert thera("upscale", "a.png", "a.bmp", "x/a.png", "-s", 1.5, "-q").status == 0
    assert sorted(p.name for p in Path().glob("*_x1.5*")) == ["a_bmp_x1.5.bmp", "a_png_x1.5.png"]
    result = thera("upscale", "a.png", "x/a.png", "-s", 1.5, "-o", "y")
    assert result.status == 1 and "would both become" in result.err


@pytest.mark.parametrize("suffix", [".jpg", ".bmp"])
def test_transparency_on_white_is_that_of_the_scaled_picture(thera, tmp_path, as_bytes, suffix):
    """A cut-out that is put on white before it is scaled rings along its edges."""
    hidden = np.hypot(*(np.mgrid[:48, :64] - np.array([[[24]], [[30]]]))) > 18
    picture = np.dstack([as_bytes, np.where(hidden, 0, 255).astype(np.uint8)])
    picture[hidden, :3] = (255, 0, 255)
    Image.fromarray(picture).save(tmp_path / "a.png")
    for output in ("b.png", f"c{suffix}"):
        options = ("-s", 2, "-m", "edsr-air", "-q", *(("--quality", 100) if output == "c.jpg" else ()))
        assert thera("upscale", tmp_path / "a.png", tmp_path / output, *options).status == 0
    scaled = Image.open(tmp_path / "b.png")
    white = Image.new("RGBA", scaled.size, "white")
    expected = np.asarray(Image.alpha_composite(white, scaled).convert("RGB"), int)
    found = np.asarray(Image.open(tmp_path / f"c{suffix}"), int)
    assert np.abs(found - expected).max() <= (1 if suffix == ".bmp" else 12)  # JPEG rounds frequencies


@pytest.mark.parametrize("hidden", [np.nan, 1000.0])
def test_values_that_nobody_sees_are_no_reason_to_refuse_a_format(thera, tmp_path, photo, hidden):
    picture = np.dstack([photo, np.ones(photo.shape[:2], np.float32)])
    picture[:20] = (hidden, hidden, hidden, 0)
    tifffile.imwrite(tmp_path / "a.tif", picture, photometric="rgb", extrasamples=["unassalpha"])
    for output in ("b.png", "b.jpg", "b.tif"):
        result = thera("upscale", tmp_path / "a.tif", tmp_path / output, "-s", 1.5, "-m", "edsr-air", "-q")
        assert result == (0, "", "")
    made = np.asarray(Image.open(tmp_path / "b.png"))
    assert (made[:28, :, 3] == 0).all() and (made[32:, :, 3] == 255).all()


def test_linear_light_changes_what_is_scaled_down(thera, tmp_path, png):
    (tmp_path / "a.png").write_bytes(png)
    names = ("b.png", "c.png", "d.png")
    for name, option in zip(names, ("--no-linear", "--linear"), strict=False):
        assert thera("upscale", tmp_path / "a.png", tmp_path / name, "-s", 0.5, option).status == 0
    assert thera("upscale", tmp_path / "a.png", tmp_path / "d.png", "-s", 0.5).status == 0
    stored, linear, default = (np.asarray(Image.open(tmp_path / name), int) for name in names)
    assert linear.mean() > stored.mean() + 0.1
    np.testing.assert_array_equal(default, linear)


def test_an_output_with_a_slash_is_a_folder_even_if_it_is_new(thera, tmp_path, png):
    (tmp_path / "a.png").write_bytes(png)
    assert thera("upscale", tmp_path / "a.png", f"{tmp_path}/new/deep/", "-s", 1).status == 0
    assert [path.name for path in (tmp_path / "new/deep").iterdir()] == ["a_x1.png"]
    assert thera("upscale", tmp_path / "a.png", f"{tmp_path}/dry/", "-s", 1, "--dry-run").status == 0
    assert thera("upscale", tmp_path / "none.png", f"{tmp_path}/other/deep/", "-s", 1).status == 1
    assert thera("upscale", tmp_path / "no/folder/none.png", "-s", 1).status == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "new"]


def test_a_place_without_a_size_says_why_it_cannot_be_written(thera, tmp_path, png):
    (tmp_path / "a.png").write_bytes(png)
    result = thera("upscale", tmp_path / "a.png", "/proc/a.png", "-s", 1)
    assert result.status == 1 and "free" not in result.err and "/proc" in result.err


@pytest.mark.parametrize("colour", [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (230, 25, 80)])
def test_flat_colours_stay_as_they_are_up_to_the_borders(thera, tmp_path, colour):
    Image.new("RGB", (24, 20), colour).save(tmp_path / "a.png")
    for scale in (2.5, 0.4):
        output = tmp_path / f"{scale}.png"
        assert thera("upscale", tmp_path / "a.png", output, "-s", scale, "-m", "edsr-air").status == 0
        assert Image.open(output).getcolors() == [(output_pixels(output), colour)]


def test_a_pixel_is_flat_only_where_its_filter_sees_nothing_else():
    edge = np.full((24, 24, 3), 200, np.uint8)
    edge[:, :11] = 30
    softer = upscale(edge, 1.5, model="edsr-air", psf=Gaussian(bandwidth=8))[18, :, 0].astype(int)
    assert np.diff(softer).max() < 30  # a slope of many pixels, and no steps at its ends
    smaller = upscale(edge, 0.3, model="edsr-air")[3, :, 0]
    assert len(set(smaller.tolist())) > 3  # one pixel sees the edge from afar


def test_a_warp_may_end_on_the_last_edge_of_a_flat_picture(thera, tmp_path):
    Image.new("RGB", (24, 20), "red").save(tmp_path / "a.png")
    output = tmp_path / "b.png"
    shift = ("--affine", "1,0,-0.5,0,1,-0.5", "-m", "edsr-air")
    assert thera("warp", tmp_path / "a.png", output, *shift).status == 0
    assert Image.open(output).convert("RGB").getcolors() == [(24 * 20, (255, 0, 0))]


def output_pixels(path) -> int:
    with Image.open(path) as image:
        return image.width * image.height


def test_one_bit_loses_light_only_by_what_is_beyond_black_and_white(thera, tmp_path, photo):
    dots = Image.fromarray(np.rint(255 * photo.mean(axis=2)).astype(np.uint8)).convert("1")  # dithered
    dots.save(tmp_path / "a.png")
    assert thera("upscale", tmp_path / "a.png", "-s", 2, "-m", "edsr-air").status == 0
    grey = np.asarray(dots.convert("L"))
    made = np.asarray(Image.open(tmp_path / "a_x2.png")).astype(float)
    free = 255 * upscale(grey / np.float32(255), 2, model="edsr-air")  # floats are not cut off
    assert free.mean() == pytest.approx(grey.mean(), abs=2)
    assert np.clip(free, 0, 255).mean() == pytest.approx(made.mean(), abs=0.1)
    assert made.mean() == pytest.approx(grey.mean(), abs=6)
