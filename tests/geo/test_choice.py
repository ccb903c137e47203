"""A part of a raster: some of its bands, an area, a resolution."""

import numpy as np
import pytest
import rasterio
from click.testing import CliRunner

from thera.cli.main import cli
from thera.errors import InvalidInput
from thera.geo.raster import describe
from thera.geo.upscaling import Choice, RasterOptions, prepare_raster
from thera.imaging.sizing import TargetSize


class Refused(Exception):
    """What the program said."""


def upscaled(source, *options):
    output = source.with_name("out.tif")
    words = ["upscale", source, "--out", output, "--overwrite", "-m", "edsr-air", "-q", *options]
    result = CliRunner().invoke(cli, [str(word) for word in words], standalone_mode=False)
    if result.return_value != 0:
        raise Refused(str(result.exception or result.output))
    with rasterio.open(output) as dataset:
        return dataset.read(), dataset.profile, dataset.descriptions


@pytest.fixture
def scene(make, photo):
    def name(dataset):
        dataset.descriptions = ("B02", "B03", "B04", "B08")

    values = [np.roll(photo[:60, :80], 9 * k, axis=1) for k in range(4)]
    return make(np.rint(np.stack(values) * 5000).astype(np.uint16), describe=name)


def test_bands_are_chosen_and_a_colour_is_seen_together(scene):
    given = ("-s", 1.5, "--range", "0:5000")
    every, _, _ = upscaled(scene, *given)
    out, profile, names = upscaled(scene, *given, "--bands", "3,2,1+4")
    assert profile["count"] == 4 and names == ("B04", "B03", "B02", "B08")
    np.testing.assert_array_equal(out[3], every[3])  # by itself as before
    assert np.abs(out[0].astype(int) - every[2]).max() > 50  # in colour, no longer by itself
    for number, name in ((2, "B03"), (4, "B08")):  # what other bands there are does not matter
        alone, _, names = upscaled(scene, *given, "--bands", number)
        assert names == (name,)
        np.testing.assert_array_equal(alone[0], every[number - 1])
    assert [group.bands for group in describe(scene, ((2, 1, 0), (3,))).bands.groups] == [(0, 1, 2), (3,)]


def test_notes_name_bands_as_the_input_counts_them(scene, model, tmp_path):
    choice = RasterOptions(choice=Choice(Choice.parse_bands("4+3,2,1")))
    job = prepare_raster(scene, tmp_path / "out.tif", model, TargetSize(scale=2), file=choice)
    assert [note.partition(":")[0] for note in job.notes] == ["band 4", "bands 3, 2, 1"]


def test_bounds_cut_out_what_the_whole_would_have_there(scene):
    # The last bits of what ncnn's Winograd transforms give depend on where a tile of them begins.
    given = ("-s", 1.5, "--range", "0:5000", "--engine", "onnx")
    every, whole, _ = upscaled(scene, *given)
    west, south, east, north = 400_103, 6_599_701, 400_401, 6_599_899
    out, profile, _ = upscaled(scene, *given, "--bounds", f"{west},{south},{east},{north}")
    side = whole["transform"].a
    left, top = int((west - 400_000) // side), int((6_600_000 - north) // side)
    height, width = out.shape[1:]
    np.testing.assert_array_equal(out, every[:, top : top + height, left : left + width])
    x, y = profile["transform"].c, profile["transform"].f
    assert x <= west < x + side and y >= north > y - side
    assert x + width * side >= east and y - height * side <= south
    with pytest.raises(Refused, match="Nothing of the raster lies within the bounds 0,0,10,10"):
        upscaled(scene, *given, "--bounds", "0,0,10,10")


def test_a_resolution_is_in_units_of_the_ground(scene, make, photo):
    _, profile, _ = upscaled(scene, "--resolution", "5")
    assert (profile["width"], profile["height"]) == (160, 120) and profile["transform"].a == 5
    with pytest.raises(Refused, match="a resolution or another size, not both"):
        upscaled(scene, "--resolution", "5", "-s", 2)
    plain = make(photo[None, :20, :20], "plain.tif", crs=None, transform=None, nodata=7)
    with pytest.raises(Refused, match="--resolution needs a geotransform, and"):
        upscaled(plain, "--resolution", "5")


@pytest.mark.parametrize("text", ["4,3", "4;3", "0", "1,2,3,4", "", "2+2"])
def test_what_are_no_bands_is_said(text):
    with pytest.raises(InvalidInput, match=r"are no bands|has a band twice"):
        Choice.parse_bands(text)


def test_a_band_that_is_not_there_is_said(scene):
    with pytest.raises(Refused, match="has 4 bands: there is no band 9"):
        upscaled(scene, "-s", 2, "--bands", "9")
