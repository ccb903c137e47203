"""Sizes as people type them."""

import pytest
from PIL import Image

from thera.errors import InvalidInput
from thera.imaging.reading import read
from thera.imaging.sizing import Paper, TargetSize, parse_scale

QUICK = ("-m", "edsr-air", "-q")


@pytest.mark.parametrize(
    ("wish", "size", "name"),
    [
        (["-s", "1.5x"], (96, 72), "a_x1.5.png"),
        (["-s", "150%"], (96, 72), "a_x1.5.png"),
        (["-s", "×2"], (128, 96), "a_x2.png"),
        (["--long-edge", "80"], (80, 60), "a_long80.png"),
        (["--short-edge", "60"], (80, 60), "a_short60.png"),
        (["--megapixels", "0.0048"], (80, 60), "a_0.0048mp.png"),
        (["--print", "2x1.5cm", "--dpi", "100"], (79, 59), "a_2x1.5cm.png"),
        (["--print", "1.5x2cm", "--dpi", "100"], (79, 59), "a_1.5x2cm.png"),  # the paper is turned
        (["--print", "A6", "--dpi", "13"], (72, 54), "a_a6.png"),
        (["--print", "1x9in", "--dpi", "60"], (80, 60), "a_1x9in.png"),  # it fits inside
    ],
)
def test_sizes_are_what_people_type(thera, tmp_path, png, wish, size, name):
    (tmp_path / "a.png").write_bytes(png)  # 64×48
    result = thera("upscale", tmp_path / "a.png", *wish, *QUICK)
    assert result.status == 0, result.err
    with Image.open(tmp_path / name) as image:
        assert image.size == size


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
def test_a_print_has_the_resolution_it_was_made_for(thera, tmp_path, png, suffix):
    (tmp_path / "a.png").write_bytes(png)
    output = tmp_path / f"b.{suffix}"
    result = thera("upscale", tmp_path / "a.png", output, "--print", "6x4mm", *QUICK)
    assert result.status == 0, result.err
    picture = read(output)
    assert picture.metadata.dpi == pytest.approx((300, 300), rel=1e-3)
    assert picture.layout.size == (47, 63)
    result = thera("upscale", output, tmp_path / f"c.{suffix}", "-s", 1, "--dpi", 72, *QUICK)
    assert result.status == 0, result.err
    assert read(tmp_path / f"c.{suffix}").metadata.dpi == pytest.approx((72, 72), rel=1e-3)


def test_a_new_resolution_is_in_exif_and_xmp_too(thera, tmp_path, as_bytes):
    exif = Image.Exif()
    exif[282], exif[283], exif[296] = 118.0, 118.0, 3
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><a tiff:XResolution="118/1" tiff:YResolution="118/1"/>'
    xmp += b"</x:xmpmeta>"
    Image.fromarray(as_bytes).save(tmp_path / "a.jpg", exif=exif, xmp=xmp)
    result = thera("upscale", tmp_path / "a.jpg", tmp_path / "b.jpg", "-s", 1, "--dpi", 240, *QUICK)
    assert result.status == 0, result.err
    with Image.open(tmp_path / "b.jpg") as image:
        assert (image.getexif()[282], image.getexif()[283], image.getexif()[296]) == (240, 240, 2)
        assert image.info["xmp"].count(b'Resolution="240000/1000"') == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("-s 2 --long-edge 100", "not scale and long edge"),
        ("--megapixels 24 --print 30x20cm", "not megapixels and print"),
        ("--dpi 300", "not none of them"),
        ("-s fourfold", "write it like 4, 2.5, 4x or 200%"),
        ("-s -50%", "A scale of -0.5 makes no image"),
        ("--megapixels 0", "A size of 0 megapixels makes no image"),
        ("--long-edge 0", "A long edge of 0 makes no image"),
        ("--print 30x20", "write it like A4, letter, 30x20cm or 6x4in"),
        ("--print 0x20cm", "write it like A4, letter, 30x20cm or 6x4in"),
        ("--print 3.3.3x20cm", "write it like A4, letter, 30x20cm or 6x4in"),
        ("--print 30x20cm --dpi 0", "A resolution of 0 dpi"),
        ("-s 2 --quality 90", "--quality is for JPEG, JPEG XL, WebP and AVIF"),
        ("-s 2 --format png --quality 90", "--quality is for JPEG, JPEG XL, WebP and AVIF"),
        ("-s 2 --sharpness 0", "sharpness of 0"),
        ("-s 2 --format psd", "'psd'"),
        ("-s 2 --cog --format png", "--cog writes a TIFF"),
    ],
)
def test_contradictions_are_usage_errors_in_one_sentence(thera, tmp_path, png, options, sentence):
    (tmp_path / "a.png").write_bytes(png)
    result = thera("upscale", tmp_path / "a.png", *options.split())
    assert result.status == 2
    (line,) = result.err.splitlines()
    assert sentence in line
    assert line.endswith("(see thera upscale --help).")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_the_quality_of_a_folder_is_for_the_files_that_have_one(thera, tmp_path, png, as_bytes):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(png)
    Image.fromarray(as_bytes).save(tmp_path / "in" / "b.jpg")
    result = thera("upscale", tmp_path / "in", "-s", 1, "--quality", 50, *QUICK)
    assert result.status == 0, result.err


def test_every_size_has_a_name_of_its_own():
    paper = Paper.parse("30 x 20 CM")
    sizes = [
        TargetSize(scale=0.5),
        TargetSize(size=(2, 3)),
        TargetSize(width=5),
        TargetSize(height=5),
        TargetSize(fit=(2, 3)),
        TargetSize(long_edge=5),
        TargetSize(short_edge=5),
        TargetSize(megapixels=0.5),
        TargetSize(paper=paper),
    ]
    labels = [size.label for size in sizes]
    assert len(set(labels)) == len(labels)
    assert TargetSize(paper=paper, dpi=254).for_image((2000, 3000)) == (2000, 3000)
    assert TargetSize(megapixels=24).for_image((4000, 6000)) == (4000, 6000)


@pytest.mark.parametrize("text", ["", "x", "%", "4xx", "1/2", "four"])
def test_what_is_no_scale_is_refused(text):
    with pytest.raises(InvalidInput, match="is no scale"):
        parse_scale(text)
