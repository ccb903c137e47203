"""`thera upscale` and `thera warp` on rasters and pictures, as they are called."""

import json
import subprocess
import sys

import click
import numpy as np
import pytest
import rasterio
from click.testing import CliRunner
from PIL import ExifTags, Image

from thera.cli.main import cli
from thera.errors import TheraError


@pytest.fixture
def thera():
    """`thera(*arguments)` runs the program; its errors are raised."""

    def run(*arguments):
        words = [str(argument) for argument in arguments]
        result = CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False)
        return result.stdout

    return run


@pytest.fixture
def scene(make, photo):
    return make(np.rint(100 + 3000 * np.stack([photo, 1 - photo])).astype(np.uint16), nodata=0)


def test_upscale_sends_rasters_to_their_own_reader(thera, scene):
    output = scene.with_name("big.tif")
    record = json.loads(thera("upscale", scene, output, "-s", 1.5, "-m", "edsr-air", "--cog", "--json"))
    assert record["to"] == [225, 180] and record["depth"] == "16-bit"
    assert "stand for black and white" in record["notes"][0]
    with rasterio.open(output) as dataset:
        assert dataset.count == 2 and dataset.nodata == 0 and dataset.crs.to_epsg() == 32633
        assert dataset.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"


def test_the_form_of_a_raster_s_output_is_refused_before_that_it_exists(thera, scene):
    output = scene.with_name("big.png")
    output.touch()
    printed = thera("upscale", scene, "--out", output, "-s", 1.5, "-m", "edsr-air", "--cog", "--json")
    assert "end the output 'big.png' in .tif" in json.loads(printed)["error"]


def test_a_raster_becomes_a_picture_where_that_is_asked_for(thera, make, photo):
    source = make(np.rint(photo[None] * 255).astype(np.uint8))
    thera("upscale", source, source.with_name("a.png"), "-s", 1.5, "-m", "edsr-air", "-q")
    assert source.with_name("a.png").exists()


@pytest.mark.filterwarnings("error::rasterio.errors.NotGeoreferencedWarning")
def test_a_picture_held_sideways_becomes_an_upright_cog(thera, tmp_path, photo):
    source, exif = tmp_path / "a.png", Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.fromarray(np.rint(photo * 255).astype(np.uint8)).save(source, exif=exif)
    still = ("--affine", "1 0 0 0 1 0")
    for command, options, scale in (("upscale", ("-s", 2), 2), ("warp", still, 1)):
        output = tmp_path / f"{command}.tif"
        thera(command, source, output, *options, "--cog", "-m", "edsr-air", "-q")
        picture = Image.open(output)
        assert not {33550, 34264} & set(picture.tag_v2)  # it had no place on the ground, and has none
        out = np.asarray(picture, float)
        seen = np.rot90(photo, -1).repeat(scale, axis=0).repeat(scale, axis=1) * 255
        assert out.shape == seen.shape and np.abs(out - seen).mean() < 8


def test_warp_to_a_crs(thera, scene):
    output = scene.with_name("mercator.tif")
    options = ("--to", "EPSG:3857", "--resolution", 40, "-m", "edsr-air", "--range", "100:3100")
    record = json.loads(thera("warp", scene, output, *options, "--json", "--cog"))
    with rasterio.open(output) as dataset:
        assert dataset.crs.to_epsg() == 3857 and dataset.res == (40, 40)
        assert [dataset.width, dataset.height] == record["to"]


def test_warp_of_a_picture_with_numbers_from_a_file(thera, tmp_path, photo):
    Image.fromarray(np.rint(photo * 255).astype(np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "h.txt").write_text("[[1, 0, 5],\n [0, 1, 3],\n [0, 0, 1]]\n")
    thera(
        "warp",
        tmp_path / "a.png",
        tmp_path / "b.png",
        "--homography",
        tmp_path / "h.txt",
        "-m",
        "edsr-air",
        "-q",
    )
    moved = np.asarray(Image.open(tmp_path / "b.png"), float)
    assert np.abs(moved[10:, 10:] - photo[7:-3, 5:-5] * 255).mean() < 2
    assert (moved[:3] == 0).all() and (moved[:, :5] == 0).all()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "not none of them"),
        (("--to", "EPSG:3857", "--affine", "1 0 0 0 1 0"), "--affine and --to"),
        (("--lens", "0.1 0 0 0"), "--camera"),
        (("--lens", "0.1 0", "--camera", "9 9 1 1"), "four or five finite numbers"),
        (("--affine", "1 0 0"), "6 numbers"),
        (("--affine", "nan 0 0 0 1 0"), "finite"),
        (("--affine", "1 0 0 0 1 0", "--camera", "9 9 1 1"), "--camera only applies to --lens"),
        (("--to", "EPSG:3857", "--camera", "9 9 1 1"), "--camera only applies to --lens"),
        (("--lens", "0.1 0 0 0", "--camera", "9 9 1 1", "--inverse"), "--inverse only applies to a matrix"),
        (("--to", "EPSG:3857", "--inverse"), "--inverse only applies to a matrix"),
        (("--affine", "1 0 0 0 1 0", "--outside", "edge"), "--outside only applies to pictures"),
        (("--to", "EPSG:3857", "--outside", "#ffffff"), "--outside only applies to pictures"),
        (("--affine", "1 0 0 0 1 0", "--size", "0x3"), "0×3 makes no image"),
        (("--to", "EPSG:3857", "--size", "0x5"), "0×5 makes no image"),
        (("--homography", "1 0 0 0 0 0 0 0 0"), "full rank"),
        (("--affine", "1 0 0 0 1 0", "--resolution", "3"), "--to"),
        (("--to", "nowhere"), "EPSG:3857"),
        (("--to", "EPSG:3857", "--range", "5"), "percentile"),
    ],
)
def test_what_is_asked_for_wrongly_is_said(thera, scene, options, told):
    with pytest.raises((TheraError, click.UsageError), match=told):  # by the raster, or by the options alone
        thera("warp", scene, scene.with_name("b.tif"), *options, "-m", "edsr-air")
    assert sorted(path.name for path in scene.parent.iterdir()) == ["scene.tif"]


def test_without_rasterio_one_is_told_how_to_get_it(scene):
    code = (
        "import sys; sys.modules['rasterio'] = None\n"
        "from thera.cli.main import run\n"
        "run(['upscale', sys.argv[1], '-s', '2', '-m', 'edsr-air', '--cog'])"
    )
    ended = subprocess.run([sys.executable, "-c", code, scene], capture_output=True, text=True)
    assert ended.returncode == 1 and "thera[geo]" in ended.stderr
