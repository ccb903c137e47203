"""What goes into an image file comes out of it again."""

import io
import struct
import sys
import zlib
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import ExifTags, Image, ImageCms, ImageOps, PngImagePlugin

import thera
from thera.errors import ImageFileError, InvalidInput, MissingDependency
from thera.files import replacing
from thera.imaging import jxl, tiff
from thera.imaging.files import adapted, default_suffix, prepare_file
from thera.imaging.formats import FORMATS, format_named, format_of
from thera.imaging.metadata import Metadata, TiffTag
from thera.imaging.picture import Picture
from thera.imaging.png import paeth
from thera.imaging.reading import from_pillow, read
from thera.imaging.sizing import TargetSize
from thera.imaging.writing import encode, write
from thera.values.ranges import Range

LAYOUTS = [("grey", False), ("grey", True), ("rgb", False), ("rgb", True)]


@pytest.mark.parametrize(("colour", "alpha"), LAYOUTS)
@pytest.mark.parametrize(
    ("suffix", "dtype"),
    [(".png", "u1"), (".png", "u2"), (".jxl", "u1"), (".jxl", "u2"), (".jxl", "f4")]
    + [(".tif", d) for d in ("u1", "u2", "u4", "i2", "f2", "f4", "f8")],
)
def test_lossless_formats_keep_every_sample_at_every_depth(
    tmp_path, make_picture, colour, alpha, suffix, dtype
):
    picture = make_picture(colour, alpha, dtype)
    write(tmp_path / f"a{suffix}", picture)
    again = read(tmp_path / f"a{suffix}")
    assert again.layout == picture.layout
    np.testing.assert_array_equal(again.samples, picture.samples)


@pytest.mark.parametrize(
    ("colour", "alpha", "suffix"),
    [
        (colour, alpha, form.suffix)
        for form in map(format_named, ("jpeg", "webp", "avif", "bmp"))
        for colour, alpha in [*LAYOUTS, ("cmyk", False)]
        if form.alpha >= alpha and (colour != "cmyk" or form.cmyk)
    ],
)
def test_8_bit_formats_keep_the_picture_to_their_quality(tmp_path, make_picture, colour, alpha, suffix):
    picture = make_picture(colour, alpha)
    write(tmp_path / f"a{suffix}", picture)
    again = read(tmp_path / f"a{suffix}")
    samples = picture.samples
    if again.colour != picture.colour:  # WebP knows no grey, AVIF none with alpha
        samples = np.concatenate([samples[..., :1]] * 3 + [samples[..., 1:]], axis=2)
    error = np.abs(again.samples.astype(int) - samples)
    assert np.mean(error) < (1e-9 if suffix == ".bmp" else 3)  # WebP's colours are of half resolution


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_a_file_written_in_uneven_bands_equals_one_written_whole(make_picture, suffix):
    picture = make_picture("rgb", True, "u2", size=(301, 257))
    cuts = [0, 1, 130, 131, 300, 301]
    files = []
    for bands in ([picture.samples], [picture.samples[a:b] for a, b in pairwise(cuts)]):
        files.append(io.BytesIO())
        files[-1].name = f"a{suffix}"
        encode(files[-1], picture.layout, Metadata(), bands, format_named(suffix))
    assert files[0].getvalue() == files[1].getvalue()


def test_png_filter_is_undone_by_the_definition_in_the_standard():
    rows = np.random.default_rng(1).integers(0, 256, (5, 12), np.uint8)
    filtered, above = paeth(rows, np.zeros(12, np.uint8), 3), np.zeros(12, int)
    for row, line in zip(rows, filtered, strict=True):
        assert line[0] == 4
        decoded = np.zeros(12, int)
        for i in range(12):
            a, b, c = (decoded[i - 3] if i > 2 else 0), above[i], (above[i - 3] if i > 2 else 0)
            p = a + b - c
            nearest = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            decoded[i] = (int(line[1 + i]) + nearest) % 256
        np.testing.assert_array_equal(decoded, row)
        above = decoded


def test_our_png_opens_in_pillow_and_in_libpng(tmp_path, make_picture, carried):
    picture = make_picture("rgb", False, "u2", size=(700, 600), metadata=carried)  # several pieces of rows
    write(tmp_path / "a.png", picture)
    np.testing.assert_array_equal(imagecodecs.png_decode((tmp_path / "a.png").read_bytes()), picture.samples)
    with Image.open(tmp_path / "a.png") as image:
        image.load()
        assert image.text["Title"] == "Zürich"
        np.testing.assert_allclose(np.asarray(image), picture.samples >> 8, atol=1)


def test_drawings_compress_as_well_as_pillow_compresses_them(tmp_path):
    drawing = np.kron(np.random.default_rng(0).integers(0, 2, (40, 40)), np.ones((20, 20)))
    picture = Picture((drawing[..., None] * 255).astype(np.uint8), "grey")
    write(tmp_path / "ours.png", picture)
    Image.fromarray(picture.samples[..., 0]).save(tmp_path / "theirs.png")
    assert (tmp_path / "ours.png").stat().st_size < 1.2 * (tmp_path / "theirs.png").stat().st_size


def test_a_tiff_that_may_pass_4_gib_is_a_bigtiff_with_all_it_carries(
    tmp_path, make_picture, carried, monkeypatch
):
    monkeypatch.setattr(tiff, "CLASSIC_LIMIT", 1000)
    write(tmp_path / "a.tif", make_picture(metadata=carried))
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        assert file.is_bigtiff
    exif = Image.Exif()
    exif.load(read(tmp_path / "a.tif").metadata.exif)
    assert exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.MakerNote] == b"secret\0recipe"


@pytest.mark.parametrize("suffix", [form.suffix for form in FORMATS.values()])
def test_every_format_carries_what_it_says_it_carries(tmp_path, make_picture, carried, suffix):
    form = format_of(Path("a" + suffix))
    kept, lost = carried.fitting(form)
    write(tmp_path / f"a{suffix}", make_picture(dtype=form.depths[0], metadata=kept))
    again = read(tmp_path / f"a{suffix}").metadata
    usual = {"icc", "exif", "xmp", "dpi"}
    assert len(lost) == len(usual - form.carries) + ("text" not in form.carries)
    assert again.icc == (carried.icc if "icc" in form.carries else None)
    assert again.xmp == (carried.xmp if "xmp" in form.carries else None)
    if "dpi" in form.carries:
        assert again.dpi == pytest.approx(carried.dpi, abs=0.01)
    if "exif" in form.carries:
        exif = Image.Exif()
        exif.load(again.exif)
        assert exif[ExifTags.Base.Make] == "Acme"
        details = exif.get_ifd(ExifTags.IFD.Exif)
        assert details[ExifTags.Base.ExposureTime] == pytest.approx(0.01)
        assert details[ExifTags.Base.DateTimeOriginal] == "2020:02:29 12:00:00"
        assert details[ExifTags.Base.MakerNote] == b"secret\0recipe"
        assert exif.get_ifd(ExifTags.IFD.GPSInfo)[2] == pytest.approx((47.0, 22.0, 30.5))


def test_metadata_follows_the_new_size(carried):
    resized = carried.resized((37, 53), (74, 159))
    exif = Image.Exif()
    exif.load(resized.exif)
    details = exif.get_ifd(ExifTags.IFD.Exif)
    assert (details[ExifTags.Base.ExifImageWidth], details[ExifTags.Base.ExifImageHeight]) == (159, 74)
    assert b'exif:PixelXDimension="159"' in resized.xmp
    assert b"<exif:PixelYDimension>74</exif:PixelYDimension>" in resized.xmp


def test_a_map_stays_on_the_ground_when_it_is_resized():
    corner = (0.0, 0.0, 0.0, 600000.0, 200000.0, 0.0, 10.0, 20.0, 0.0, 600005.0, 199990.0, 0.0)
    matrix = (0.5, 0, 0, 600000, 0, -0.5, 0, 200000, 0, 0, 0, 0, 0, 0, 0, 1)
    tags = (
        TiffTag(33550, 12, 3, (0.5, 0.5, 0.0)),
        TiffTag(33922, 12, 12, corner),
        TiffTag(34264, 12, 16, matrix),
    )
    scale, ties, transform = (
        tag.value for tag in Metadata(tiff_tags=tags).resized((10, 20), (20, 80)).tiff_tags
    )
    assert scale == (0.125, 0.25, 0.0)
    assert ties[6:9] == (40.0, 40.0, 0.0)
    assert ties[9:] == corner[9:]
    at = np.reshape(transform, (4, 4)) @ (80, 20, 0, 1)  # the far corner, in pixels of the new image
    np.testing.assert_allclose(at[:2], (600010, 199995))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif", ".webp"])
def test_every_orientation_is_applied_and_reset(tmp_path, orientation, suffix):
    image = Image.fromarray(np.kron(np.arange(6).reshape(2, 3), np.ones((16, 16))).astype(np.uint8) * 50)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    exif[ExifTags.Base.Make] = "Acme"
    image.save(tmp_path / f"a{suffix}", exif=exif, quality=95)
    picture = read(tmp_path / f"a{suffix}")
    image.getexif()[ExifTags.Base.Orientation] = orientation
    expected = np.asarray(ImageOps.exif_transpose(image), int)
    assert np.abs(picture.samples[..., 0] - expected).max() < 3  # lossy formats
    after = Image.Exif()
    after.load(picture.metadata.exif)
    assert after.get(ExifTags.Base.Orientation, 1) == 1
    assert after[ExifTags.Base.Make] == "Acme"


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif"])
def test_resolutions_are_exchanged_where_a_picture_is_turned(tmp_path, suffix):
    xmp = b'<d tiff:XResolution="72/1" tiff:YResolution="300/1"/>'
    for orientation, expected in ((3, (72, 300)), (6, (300, 72))):
        exif = Image.Exif()
        exif.update({274: orientation, 282: 72.0, 283: 300.0})
        image, path = Image.new("L", (8, 4)), tmp_path / f"{orientation}{suffix}"
        image.save(path, dpi=(72, 300), exif=exif, xmp=xmp)
        carried = read(path).metadata
        assert carried.dpi == pytest.approx(expected, abs=0.02)  # PNG counts by the metre
        if suffix != ".tif":  # which has them in no other place
            after = Image.Exif()
            after.load(carried.exif)
            assert (after[282], after[283]) == expected
        if suffix == ".jpg":
            assert (b'tiff:YResolution="72/1"' in carried.xmp) == (orientation == 6)


def test_exif_in_a_text_of_a_png_is_written_as_exif_alone(tmp_path):
    exif = Image.Exif()
    exif.update({271: "Acme", 274: 6})
    block = exif.tobytes()
    info = PngImagePlugin.PngInfo()
    info.add_text("Raw profile type exif", f"\nexif\n{len(block):8}\n{block.hex()}\n")
    info.add_text("Title", "Zürich")
    Image.new("L", (8, 4)).save(tmp_path / "a.png", pnginfo=info)
    write(tmp_path / "b.png", read(tmp_path / "a.png"))
    with Image.open(tmp_path / "b.png") as image:
        assert image.size == (4, 8)
        assert image.text == {"Title": "Zürich"}
        assert dict(image.getexif()) == {271: "Acme", 274: 1}


def test_the_stale_thumbnail_is_dropped(tmp_path):
    exif = Image.Exif()
    exif[ExifTags.Base.Make] = "Acme"
    block = exif.tobytes()
    thumbnail = b"\xff\xd8 old thumbnail \xff\xd9"
    # A second directory with one entry, JPEGInterchangeFormatLength, and the thumbnail behind it.
    order = "big" if block[6:8] == b"MM" else "little"
    end = len(block) - 6
    entry = b"".join(v.to_bytes(n, order) for v, n in ((1, 2), (0x0202, 2), (4, 2), (1, 4), (20, 4), (0, 4)))
    position = 6 + 8 + 2 + 12 * len(exif)
    block = block[:position] + end.to_bytes(4, order) + block[position + 4 :] + entry + thumbnail
    Image.new("RGB", (20, 10)).save(tmp_path / "a.jpg", exif=block)
    assert thumbnail in (tmp_path / "a.jpg").read_bytes()
    assert thumbnail not in read(tmp_path / "a.jpg").metadata.exif


def test_palette_and_one_bit_images_say_what_they_became(tmp_path):
    colours = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 9, 3), np.uint8))
    palette = colours.quantize(4)
    palette.save(tmp_path / "p.png")
    palette.save(tmp_path / "t.png", transparency=0)
    palette.save(tmp_path / "p.tif")
    colours.convert("1").save(tmp_path / "b.png")
    colours.convert("1").save(tmp_path / "b.tif")
    for name, channels in (("p.png", 3), ("t.png", 4), ("p.tif", 3), ("b.png", 1), ("b.tif", 1)):
        picture = read(tmp_path / name)
        assert picture.layout.channels == channels
        assert picture.layout.dtype == np.uint8
        assert len(picture.notes) == 1
        expected = np.asarray(Image.open(tmp_path / name).convert("RGBA" if channels == 4 else "RGB"))
        np.testing.assert_array_equal(picture.samples, expected[..., :channels])


def test_transparent_colour_of_a_png_becomes_alpha(tmp_path):
    samples = np.random.default_rng(0).integers(0, 60000, (5, 6), np.uint16)
    Image.fromarray(samples).save(tmp_path / "a.png", transparency=int(samples[2, 3]))
    picture = read(tmp_path / "a.png")
    assert picture.alpha
    assert picture.samples[2, 3, 1] == 0
    assert picture.samples[0, 0, 1] == 65535
    np.testing.assert_array_equal(picture.samples[..., 0], samples)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_transparent_grey_of_fewer_bits_becomes_alpha(tmp_path, bits):
    levels = np.arange(8) % 2**bits
    key = min(5, 2**bits - 1)
    row = levels.reshape(-1, 8 // bits) @ 2 ** np.arange(0, 8, bits)[::-1]
    with (tmp_path / "a.png").open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        PngImagePlugin.putchunk(file, b"IHDR", struct.pack(">IIBBBBB", 8, 1, bits, 0, 0, 0, 0))
        PngImagePlugin.putchunk(file, b"tRNS", struct.pack(">H", key))
        PngImagePlugin.putchunk(file, b"IDAT", zlib.compress(bytes([0, *row])))
        PngImagePlugin.putchunk(file, b"IEND")
    for picture in (read(tmp_path / "a.png"), from_pillow(Image.open(tmp_path / "a.png"))):
        assert (picture.format, picture.alpha) == ("png", True)
        np.testing.assert_array_equal(picture.samples[0, :, 0], levels * (255 // (2**bits - 1)))
        np.testing.assert_array_equal(picture.samples[0, :, 1], np.where(levels == key, 0, 255))


def test_premultiplied_tiff_alpha_is_undone_and_an_unnamed_fourth_channel_is_data(tmp_path):
    straight = np.full((4, 4, 4), (200, 100, 50, 128), np.uint8)
    premultiplied = straight.copy()
    premultiplied[..., :3] = np.rint(straight[..., :3] * (128 / 255))
    for name, extra, samples in (("a.tif", "assocalpha", premultiplied), ("d.tif", "unspecified", straight)):
        tifffile.imwrite(tmp_path / name, samples, photometric="rgb", extrasamples=[extra])
    assert np.abs(read(tmp_path / "a.tif").samples.astype(int) - straight).max() <= 1
    assert not read(tmp_path / "d.tif").covers
    write(tmp_path / "again.tif", read(tmp_path / "d.tif"))
    assert not read(tmp_path / "again.tif").covers


def test_white_is_zero_and_planar_tiffs_read_as_others_do(tmp_path):
    samples = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    tifffile.imwrite(
        tmp_path / "planar.tif", np.moveaxis(samples, 2, 0), photometric="rgb", planarconfig="separate"
    )
    tifffile.imwrite(tmp_path / "white.tif", 255 - samples[..., 0], photometric="miniswhite")
    np.testing.assert_array_equal(read(tmp_path / "planar.tif").samples, samples)
    np.testing.assert_array_equal(read(tmp_path / "white.tif").samples[..., 0], samples[..., 0])


def test_heic_is_read_upright_at_its_depth(tmp_path):
    pillow_heif = pytest.importorskip("pillow_heif")
    deep = (np.mgrid[:48, :64][1] * 1000).astype(np.uint16)[..., None].repeat(3, 2)
    pillow_heif.from_bytes("RGB;16", (64, 48), deep.tobytes()).save(tmp_path / "deep.heic", quality=-1)
    picture = read(tmp_path / "deep.heic")
    assert picture.layout.dtype == np.uint16
    assert np.abs(picture.samples.astype(int) - deep).max() < 200  # ten bits of sixteen
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    heif = pillow_heif.from_bytes("RGB", (64, 48), (deep >> 8).astype(np.uint8).tobytes())
    heif.save(tmp_path / "turned.heic", exif=exif.tobytes())
    assert read(tmp_path / "turned.heic").layout.size == (64, 48)


def test_heic_without_its_extra_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(100))
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(MissingDependency, match=r"pip install 'thera\[heic\]'"):
        read(tmp_path / "a.heic")


def _bomb(path: Path) -> None:
    """A PNG header of 60,000×60,000 pixels over next to nothing."""
    with path.open("wb") as file:
        Image.new("L", (1, 1)).save(file, "PNG")
    data = bytearray(path.read_bytes())
    data[16:24] = (60_000).to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    path.write_bytes(data)


def test_what_is_not_one_whole_still_image_is_refused_in_one_sentence(tmp_path):
    frames = [Image.new("RGB", (9, 9), color) for color in ("red", "green")]
    frames[0].save(tmp_path / "animated.gif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "animated.webp", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "animated.png", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "pages.tif", save_all=True, append_images=frames[1:])
    (tmp_path / "text.png").write_text("not an image at all")
    (tmp_path / "empty.jpg").touch()
    Image.effect_noise((64, 64), 50).save(tmp_path / "whole.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:800])
    volume = np.zeros((1, 16, 16, 16, 1), np.uint8)
    tifffile.imwrite(tmp_path / "volume.tif", volume, volumetric=True, photometric="minisblack")
    tifffile.imwrite(tmp_path / "complex.tif", np.zeros((8, 8), np.complex64))
    tifffile.imwrite(tmp_path / "five.tif", np.zeros((8, 8, 5), np.uint8), photometric="rgb")
    bands = {"photometric": "minisblack", "planarconfig": "contig"}
    tifffile.imwrite(tmp_path / "bands.tif", np.zeros((8, 8, 3), np.uint16), **bands)
    _bomb(tmp_path / "bomb.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    reasons = {
        "animated.gif": "2 frames",
        "animated.webp": "2 frames",
        "animated.png": "2 frames",
        "pages.tif": "2 pages",
        "text.png": "not an image",
        "empty.jpg": "empty",
        "cut.jpg": "cut short",
        "volume.tif": "does not read",
        "complex.tif": "does not read",
        "five.tif": "5 channels",
        "bands.tif": "3 channels, and does not declare them as grey, RGB",
        "bomb.png": "max-pixels",
        "missing.png": "does not exist",
        "loop.png": "levels of symbolic links",
        "n" * 300: "name too long",
        ".": "folder",
    }
    for name, reason in reasons.items():
        with pytest.raises(ImageFileError, match=reason) as caught:
            read(tmp_path / name)
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)


def test_pixels_without_number_are_refused_and_wide_ranges_come_back():
    with pytest.raises(InvalidInput, match="NaN"):
        Range.of(np.array([0.0, np.nan]))
    for samples in (np.array([-400, 30, 3200], "i2"), np.array([-1e4, 7e8]), np.array([5], "i4")):
        span = Range.of(samples)
        normal = span.normalise(samples)
        assert normal.min() >= 0
        assert normal.max() <= 1
        restored = span.restore(normal, samples.dtype)
        np.testing.assert_allclose(restored, samples, rtol=1e-6, atol=1)  # float32 between


def test_wide_types_keep_digits_that_float32_has_not():
    for samples in (1e9 + np.linspace(0, 1, 9), np.arange(2**31 - 9, 2**31, dtype=np.int64).astype("i4")):
        span = Range.of(samples)
        restored = span.restore(span.normalise(samples), samples.dtype)
        np.testing.assert_allclose(restored - samples[0], samples - samples[0], atol=1e-6)


def test_what_tiff_cannot_hold_either_is_not_sent_there():
    picture = Picture(np.arange(4, dtype=np.uint64).reshape(2, 2, 1), "grey")
    for name in ("tiff", "png"):
        with pytest.raises(ImageFileError, match="make them 32-bit or floats first"):
            adapted(picture, format_named(name))


def test_restoring_rounds_and_holds_to_the_type():
    span = Range.of(np.zeros(1, np.uint8))
    restored = span.restore(np.array([-0.1, 0.4999 / 255, 0.5001 / 255, 1.2], np.float32), np.dtype("u1"))
    assert restored.tolist() == [0, 0, 1, 255]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError, OSError(28, "No space left on device")])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, failure):
    target = tmp_path / "a.png"
    target.write_bytes(b"precious")

    def fail_halfway() -> None:
        with replacing(target) as file:
            file.write(b"half")
            raise failure

    with pytest.raises((KeyboardInterrupt, ValueError, ImageFileError)) as caught:
        fail_halfway()
    if isinstance(failure, OSError):
        assert "disk is full" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    assert target.read_bytes() == b"precious"


def test_unknown_endings_and_formats_are_refused_by_name():
    with pytest.raises(ImageFileError, match=r"'\.gif'"):
        format_of(Path("a.gif"))
    with pytest.raises(InvalidInput, match="'psd'"):
        format_named("psd")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_tiff_of_luma_and_chroma_is_turned_once(tmp_path, orientation):
    rows, cols = np.mgrid[:20, :30]
    rgb = np.stack([8 * rows, 8 * cols, 255 - 8 * rows], axis=2).astype(np.uint8)
    luma = np.asarray(Image.fromarray(rgb).convert("YCbCr"))
    tags = [(274, 3, 1, orientation, True)]
    tifffile.imwrite(tmp_path / "rgb.tif", rgb, photometric="rgb", extratags=tags)
    tifffile.imwrite(tmp_path / "luma.tif", luma, photometric="ycbcr", extratags=tags)
    expected, found = (read(tmp_path / name).samples.astype(int) for name in ("rgb.tif", "luma.tif"))
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 4  # what rounding luma and chroma to bytes costs


@pytest.mark.parametrize(("last", "pages"), [(0, 1), (1, 2)])
def test_pages_that_point_in_a_circle_are_counted_once(tmp_path, last, pages):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for rows in (9, 7):
            file.write(np.zeros((rows, 8), np.uint8), photometric="minisblack")
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        offsets = [page.offset for page in file.pages]
    data = bytearray((tmp_path / "a.tif").read_bytes())
    (entries,) = struct.unpack_from("<H", data, offsets[last])
    struct.pack_into("<I", data, offsets[last] + 2 + 12 * entries, offsets[0])
    (tmp_path / "a.tif").write_bytes(data)
    if pages == 1:
        assert read(tmp_path / "a.tif").samples.shape == (9, 8, 1)
    else:
        with pytest.raises(ImageFileError, match="holds 2 pages"):
            read(tmp_path / "a.tif")


def test_a_small_file_of_thousands_of_channels_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    samples = np.zeros((600, 600, 40), np.uint8)
    options = {"photometric": "minisblack", "planarconfig": "contig", "compression": "zlib"}
    tifffile.imwrite(tmp_path / "a.tif", samples, **options)
    monkeypatch.setattr(tifffile.TiffPage, "asarray", lambda page: pytest.fail("it was decoded"))
    with pytest.raises(ImageFileError, match="40 channels"):
        read(tmp_path / "a.tif")


def test_a_palette_that_the_file_does_not_call_one_becomes_colours(tmp_path):
    indices = np.arange(12, dtype=np.uint8).reshape(3, 4)
    colours = np.random.default_rng(0).integers(0, 256, (3, 256)).astype(np.uint16) * 257
    tifffile.imwrite(tmp_path / "a.tif", indices, photometric="palette", colormap=colours)
    data = bytearray((tmp_path / "a.tif").read_bytes())
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        data[file.pages[0].tags["PhotometricInterpretation"].valueoffset] = 1  # black is 0
    (tmp_path / "b.tif").write_bytes(data)
    said, unsaid = (read(tmp_path / name) for name in ("a.tif", "b.tif"))
    np.testing.assert_array_equal(unsaid.samples, said.samples)
    assert unsaid.notes == said.notes


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".bmp"])
def test_a_resolution_that_a_format_cannot_hold_is_left_out_with_a_word(tmp_path, make_picture, suffix):
    form = format_of(Path(f"a{suffix}"))
    huge = Metadata(dpi=(4.3e9, 300.0))
    kept, (reason,) = huge.fitting(form)
    assert kept.dpi is None and "4.3e+09 per inch" in reason
    most = Metadata(dpi=(60_000.0, 60_000.0)).fitting(form)[0]
    write(tmp_path / f"a{suffix}", replace(make_picture("rgb", False), metadata=most))
    assert read(tmp_path / f"a{suffix}").metadata.dpi == pytest.approx((60_000, 60_000), rel=1e-3)


@pytest.mark.parametrize(
    ("code", "kind", "value"),
    [
        (33550, 3, (7,)),  # one number where three belong
        (33922, 12, (1.0, 2.0)),
        (34264, 12, (float("nan"),) * 16),
        (34735, 12, (1.5,) * 4),  # not whole
        (42113, 1, b"\xff"),
    ],
)
def test_a_malformed_georeference_is_left_out_with_a_word(tmp_path, code, kind, value):
    scale = (33550, 12, 3, (10.0, 10.0, 0.0), True)
    tags = [(code, kind, len(value), value, True), *([scale] if code != 33550 else [])]
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((3, 4), np.uint8), extratags=tags, metadata=None)
    picture = read(tmp_path / "a.tif")
    assert picture.metadata.tiff_tags == ()
    assert "the georeference is damaged and was left out" in picture.notes


def test_libraries_print_no_warnings_of_their_own(tmp_path, capfd):
    interlaced = bytearray(imagecodecs.png_encode(np.zeros((5, 7, 3), np.uint16)))
    interlaced[28] = 1  # the pixels are then wrong, and libpng warns
    interlaced[29:33] = struct.pack(">I", zlib.crc32(interlaced[12:29]))
    (tmp_path / "a.png").write_bytes(interlaced)
    with suppress(ImageFileError):
        read(tmp_path / "a.png")
    assert capfd.readouterr() == ("", "")


IPTC = b"\x1c\x02\x05\x00\x05Title"


def test_iptc_and_the_comment_of_a_jpeg_are_kept_where_there_is_a_place(tmp_path, make_picture):
    metadata = Metadata(iptc=IPTC, text=(("Comment", "Zürich"),))
    write(tmp_path / "a.jpg", make_picture(metadata=metadata))
    with Image.open(tmp_path / "a.jpg") as image:
        assert image.info["photoshop"][0x0404] == IPTC
        assert image.info["comment"] == "Zürich".encode()
    again = read(tmp_path / "a.jpg").metadata
    assert (again.iptc, again.text) == (metadata.iptc, metadata.text)

    kept, lost = again.fitting(FORMATS["tiff"])
    write(tmp_path / "a.tif", make_picture(metadata=kept))
    assert read(tmp_path / "a.tif").metadata.iptc == IPTC
    assert lost == ["TIFF has no place for the text Comment"]

    kept, lost = again.fitting(FORMATS["png"])
    write(tmp_path / "a.png", make_picture(metadata=kept))
    assert read(tmp_path / "a.png").metadata.text == metadata.text
    assert lost == ["PNG has no place for the IPTC block"]


def test_iptc_that_a_tiff_calls_numbers_of_four_bytes_is_read(tmp_path):
    block = IPTC + bytes(-len(IPTC) % 4)
    numbers = struct.unpack(f"<{len(block) // 4}I", block)
    tags = [(33723, 4, len(numbers), numbers, True)]
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((3, 4), np.uint8), extratags=tags, metadata=None)
    assert read(tmp_path / "a.tif").metadata.iptc == block


@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_the_colour_space_of_a_png_is_kept_and_otherwise_named(tmp_path, make_picture, dtype):
    hdr = bytes([9, 16, 0, 1])  # wide primaries and the transfer function PQ
    write(tmp_path / "a.png", make_picture("rgb", False, dtype, metadata=Metadata(cicp=hdr)))
    again = read(tmp_path / "a.png").metadata
    assert again.cicp == hdr and again.fitting(FORMATS["png"]) == (again, [])
    assert again.fitting(FORMATS["jpeg"])[1] == ["JPEG has no place for the colour space (cICP)"]


def test_other_pictures_in_a_jpeg_are_named(tmp_path):
    images = [Image.new("RGB", (8, 6), colour) for colour in ("red", "blue")]
    images[0].save(tmp_path / "a.mpo", save_all=True, append_images=images[1:])
    picture = read(tmp_path / "a.mpo")
    assert picture.format == "jpeg"
    assert picture.notes == ("another picture in the file: only the first is kept",)


@pytest.mark.parametrize("size", [(37, 53), (64, 64), (300, 400), (9, 1030), (8, 16)])
@pytest.mark.parametrize("cicp", [None, (12, 13), (9, 16), (9, 18), (1, 8), (11, 17)])
@pytest.mark.parametrize(("colour", "dtype"), [("rgb", "u1"), ("rgb", "u2"), ("grey", "u2"), ("rgb", "f4")])
def test_a_jpeg_xl_says_its_size_and_colour_space_before_its_pixels(make_picture, size, cicp, colour, dtype):
    if colour == "grey":
        cicp = cicp and (1, cicp[1])  # grey has a transfer function and no primaries
    space = bytes([*cicp, 0, 1]) if cicp and cicp != (1, 13) else None
    picture = make_picture(colour, True, dtype, size=size, metadata=Metadata(cicp=space))
    file = io.BytesIO()
    encode(file, picture.layout, picture.metadata, [picture.samples], FORMATS["jxl"])
    (codestream,) = [content for name, content in jxl.boxes(file.getvalue()) if name == b"jxlc"]
    found = jxl.parse_header(codestream)
    assert (found.height, found.width, found.cicp) == (*size, space)
    assert not found.animated and not found.premultiplied and not found.other_colours
    np.testing.assert_array_equal(imagecodecs.jpegxl_decode(file.getvalue()), picture.samples)


def test_a_jpeg_xl_of_a_quality_is_smaller_and_near(tmp_path, make_picture):
    picture = make_picture(size=(120, 150))
    write(tmp_path / "a.jxl", picture)
    write(tmp_path / "b.jxl", picture, quality=80)
    assert (tmp_path / "b.jxl").stat().st_size < (tmp_path / "a.jxl").stat().st_size
    assert np.abs(read(tmp_path / "b.jxl").samples.astype(int) - picture.samples).mean() < 4


def test_a_jpeg_xl_larger_than_allowed_is_refused_before_it_is_decoded(tmp_path, make_picture, monkeypatch):
    write(tmp_path / "a.jxl", make_picture())
    monkeypatch.setattr(imagecodecs, "jpegxl_decode", lambda data: pytest.fail("decoded"))
    with pytest.raises(ImageFileError, match="53×37 pixels, more than the limit of 100"):
        read(tmp_path / "a.jxl", max_pixels=100)


@pytest.mark.parametrize("depth", [10, 12])
def test_avif_is_read_at_its_depth_and_keeps_its_colour_space(tmp_path, depth):
    levels = np.linspace(0, 2**depth - 1, 15 * 20 * 3).astype(np.uint16).reshape(15, 20, 3)
    code = imagecodecs.avif_encode(levels, level=100, bitspersample=depth, primaries=9, transfer=16, matrix=0)
    (tmp_path / "a.avif").write_bytes(code)
    picture = read(tmp_path / "a.avif")
    assert picture.samples.dtype == np.uint16 and picture.metadata.cicp == bytes([9, 16, 0, 1])
    assert picture.bits == depth
    np.testing.assert_allclose(picture.samples / 65535, levels / (2**depth - 1), atol=1.5 / 2**depth)
    assert picture.samples.max() == 65535  # white stays white


@pytest.mark.parametrize(("depth", "channels"), [(10, 3), (12, 4), (10, 1), (12, 2)])
def test_an_avif_of_more_than_8_bits_is_written_as_one(tmp_path, depth, channels):
    levels = np.linspace(0, 2**depth - 1, 12 * 16 * channels).astype(np.uint16).reshape(12, 16, channels)
    code = imagecodecs.avif_encode(
        levels[..., 0] if channels == 1 else levels,
        level=100,
        bitspersample=depth,
        primaries=9,
        transfer=16,
        matrix=9,
    )
    (tmp_path / "a.avif").write_bytes(code)
    picture = read(tmp_path / "a.avif")
    assert default_suffix(Path("a.avif"), picture) == ".avif"

    def scaled(picture, name):
        job = prepare_file(picture, tmp_path / name, thera.load("edsr-air"), TargetSize(scale=1))
        job.run()
        again = read(tmp_path / name)
        assert job.depth == again.layout.depth
        return again, job.notes

    again, notes = scaled(picture, "b.avif")
    assert (again.bits, again.layout, notes) == (depth, picture.layout, ())
    assert again.layout.depth == f"{depth}-bit"
    assert again.metadata.cicp == bytes([9, 16, 0, 1])
    assert np.abs(again.samples.astype(int) - picture.samples).mean() < 65535 / 100
    assert f"{depth} bits a sample became 16" in scaled(picture, "b.png")[1]
    profile = replace(
        picture.metadata, icc=ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    )
    again, notes = scaled(replace(picture, metadata=profile), "c.avif")  # which Pillow writes
    assert again.samples.dtype == np.uint8 and again.metadata.icc
    assert f"{depth}-bit samples became 8-bit" in notes


def test_white_of_a_heic_of_10_bits_is_white(tmp_path):
    pillow_heif = pytest.importorskip("pillow_heif")
    white = np.full((16, 16, 3), 65535, np.uint16)
    heic = pillow_heif.from_bytes(mode="RGB;16", size=(16, 16), data=white.tobytes())
    heic.save(tmp_path / "a.heic", quality=-1)
    picture = read(tmp_path / "a.heic")
    assert picture.samples.dtype == np.uint16 and picture.samples.min() == 65535
    assert picture.metadata.cicp is None


@pytest.mark.parametrize(("colour", "alpha", "dtype"), [("rgb", a, d) for a in (0, 1) for d in ("f2", "f4")])
def test_openexr_keeps_light_beyond_white(tmp_path, make_picture, colour, alpha, dtype):
    pytest.importorskip("OpenEXR")
    picture = make_picture(colour, bool(alpha), dtype)
    picture.samples[:5, :5, :3] = 1000
    write(tmp_path / "a.exr", picture)
    again = read(tmp_path / "a.exr")
    assert again.layout == picture.layout and again.metadata.cicp == bytes([1, 8, 0, 1])
    tolerance = 1e-6 if dtype == "f4" else 2e-3  # colours are multiplied by alpha and divided again
    np.testing.assert_allclose(again.samples, picture.samples, rtol=tolerance)


def test_channels_of_an_openexr_that_are_left_out_are_named(tmp_path, make_picture):
    openexr = pytest.importorskip("OpenEXR")
    samples = make_picture("rgb", False, "f4").samples
    depth = {"Z": samples[..., 0].copy()}
    for name, channels in (("z", {"RGB": samples} | depth), ("rgb", {"RGB": samples})):
        with openexr.File({"type": openexr.scanlineimage}, channels) as file:
            file.write(str(tmp_path / f"{name}.exr"))
    assert read(tmp_path / "z.exr").notes == ("further channels in the file (Z): only RGB is kept",)
    assert read(tmp_path / "rgb.exr").notes == ()


def test_a_cut_openexr_is_called_damaged_and_nothing_else_is_printed(tmp_path, make_picture, capfd):
    pytest.importorskip("OpenEXR")
    write(tmp_path / "a.exr", make_picture("rgb", False, "f4", size=(64, 48)))
    data = (tmp_path / "a.exr").read_bytes()
    (tmp_path / "a.exr").write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(ImageFileError, match="damaged or cut short"):
        read(tmp_path / "a.exr")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kept", [40, 200, 0.5])
def test_a_cut_avif_is_called_damaged(tmp_path, make_picture, kept):
    write(tmp_path / "a.avif", make_picture("rgb", False, "u1", size=(64, 48)))
    data = (tmp_path / "a.avif").read_bytes()
    (tmp_path / "a.avif").write_bytes(data[: kept if kept > 1 else len(data) // 2])
    with pytest.raises(ImageFileError, match="damaged or cut short"):
        read(tmp_path / "a.avif")


def test_radiance_hdr_keeps_light_beyond_white(tmp_path, make_picture):
    picture = make_picture("rgb", False, "f4")
    picture.samples[:5, :5] = 1000
    write(tmp_path / "a.hdr", picture)
    again = read(tmp_path / "a.hdr")
    assert again.layout == picture.layout and again.format == "hdr"
    brightest = picture.samples.max(axis=2, keepdims=True)
    assert (np.abs(again.samples - picture.samples) / brightest).max() < 1 / 100  # 8 bits of the brightest
    with pytest.raises(ImageFileError, match="more than the limit"):
        read(tmp_path / "a.hdr", max_pixels=10)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({271: "Acme"}, None),
        ({282: 300.0}, (300, 300)),
        ({282: 300.0, 283: 150.0, 296: 2}, (300, 150)),
        ({282: 100.0, 283: 100.0, 296: 3}, (254, 254)),
        ({282: 300.0, 283: 300.0, 296: 1}, None),  # a ratio only
        ({282: 0.0, 283: 0.0, 296: 2}, None),
    ],
)
def test_a_jpeg_has_the_resolution_of_its_exif_block_or_none(tmp_path, tags, expected):
    exif = Image.Exif()
    exif.update(tags)
    Image.new("L", (8, 4)).save(tmp_path / "a.jpg", exif=exif)
    picture = read(tmp_path / "a.jpg")
    assert picture.metadata.dpi == expected
    write(tmp_path / "b.jpg", picture)
    assert read(tmp_path / "b.jpg").metadata.dpi == expected


def test_highlights_that_a_format_cannot_hold_are_named(make_picture):
    picture = make_picture("rgb", False, "f4", size=(60, 60))
    picture.samples[0, 0] = 7
    assert "highlights were cut off" in " ".join(adapted(picture, FORMATS["png"])[2])
    assert adapted(picture, FORMATS["tiff"])[2] == []


def test_floats_that_become_wider_lose_nothing_and_need_no_note(tmp_path, make_picture):
    light = Metadata(cicp=bytes([1, 8, 0, 1]))
    picture = replace(make_picture("rgb", False, "f2", size=(24, 24)), metadata=light)
    picture.samples[:8, :8] = 7
    job = prepare_file(picture, tmp_path / "a.hdr", thera.load("edsr-air"), TargetSize(scale=1.5))
    assert job.notes == () and job.depth == "32-bit float"
    job.run()
    np.testing.assert_allclose(read(tmp_path / "a.hdr").samples[:6, :6], 7, rtol=0.05)
    picture.samples[0, 0] = -1  # below black, as floats of 32 bits may be
    assert adapted(picture, FORMATS["hdr"])[1:] == (np.float32, [])
    wide = replace(picture, samples=np.abs(picture.samples.astype("f8")))
    assert adapted(wide, FORMATS["hdr"])[2] == ["64-bit float samples became 32-bit"]


@pytest.mark.parametrize("alpha", [False, True])
def test_shadows_that_a_format_cannot_hold_are_cut_off_and_named(make_picture, alpha):
    picture = make_picture("rgb", alpha, "f4", size=(60, 60))
    expected = picture.samples.copy()
    picture.samples[0, 0, 1], expected[0, 0, 1] = -0.3, 0
    picture.samples[1, :, 1], expected[1, :, 1] = -0.001, 0
    if alpha:
        picture.samples[:2, :, -1] = expected[:2, :, -1] = 1
    cut, dtype, notes = adapted(picture, FORMATS["png"])
    assert "PNG holds nothing darker than black: shadows were cut off" in notes
    assert dtype == np.uint16 and cut.planes(1)[0].span == Range(0.0, 1.0)
    np.testing.assert_array_equal(cut.samples, expected)
    assert picture.samples.min() < 0  # the caller's own samples stay
    assert adapted(picture, FORMATS["tiff"])[2] == []


@pytest.mark.parametrize(("low", "high"), [(-2000, 8000), (-0.3, 0.9), (-0.001, 50)])
def test_floats_that_are_no_picture_are_still_refused(make_picture, low, high):
    picture = make_picture("rgb", False, "f4", size=(60, 60))
    picture.samples[...] = np.linspace(low, high, picture.samples.size).reshape(picture.samples.shape)
    with pytest.raises(ImageFileError, match="cannot hold 32-bit float values"):
        adapted(picture, FORMATS["png"])


def raw_file(path: Path) -> None:
    """A DNG as a camera would write it: a mosaic of red, green and blue."""
    mosaic = np.full((64, 96), 2000, np.uint16)
    mosaic[::2, ::2] = 3000  # red
    tags = [
        (50706, 1, 4, (1, 4, 0, 0), True),
        (50708, 2, 0, "Acme", True),
        (33421, 3, 2, (2, 2), True),
        (33422, 1, 4, (0, 1, 1, 2), True),
        (50717, 4, 1, 4095, True),
        (50721, 10, 9, (1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1), True),
        (50728, 5, 3, (1, 1, 1, 1, 1, 1), True),
        (271, 2, 0, "Acme", True),
    ]
    tifffile.imwrite(path, mosaic, photometric=32803, extratags=tags, metadata=None)


def test_a_raw_file_is_developed_at_16_bits(tmp_path):
    pytest.importorskip("rawpy")
    raw_file(tmp_path / "a.dng")
    picture = read(tmp_path / "a.dng")
    assert picture.colour == "rgb" and picture.samples.dtype == np.uint16 and picture.format == "raw"
    assert picture.layout.width > 80 and picture.samples[..., 0].mean() > picture.samples[..., 2].mean()
    (tmp_path / "b.nef").write_bytes(b"II*\0 no picture at all")
    with pytest.raises(ImageFileError, match="cannot be developed"):
        read(tmp_path / "b.nef")


@pytest.mark.parametrize(
    ("name", "module", "extra"), [("a.dng", "rawpy", "raw"), ("a.exr", "OpenEXR", "exr")]
)
def test_formats_without_their_extra_name_it(tmp_path, monkeypatch, name, module, extra):
    (tmp_path / name).write_bytes(b"\x76\x2f\x31\x01 and so on")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency, match=rf"thera\[{extra}\]"):
        read(tmp_path / name)
