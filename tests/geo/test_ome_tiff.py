"""OME-TIFFs keep their planes, their description and the size of their pixels."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import tifffile
from click.testing import CliRunner

import thera
from thera.cli.main import cli
from thera.errors import ImageFileError, InvalidInput
from thera.geo.files import Item
from thera.geo.ome_tiff import is_ome_tiff, prepare_ome_tiff
from thera.imaging.sizing import TargetSize
from thera.imaging.tiff import read_tiff
from thera.tiled import Options

SPACE = "{http://www.openmicroscopy.org/Schemas/OME/2016-06}"
FACTS = {
    "axes": "CZYX",
    "PhysicalSizeX": 0.25,
    "PhysicalSizeXUnit": "µm",
    "PhysicalSizeY": 0.5,
    "PhysicalSizeYUnit": "µm",
    "PhysicalSizeZ": 2.0,
    "Channel": {"Name": ["DAPI", "GFP"]},
}


@pytest.fixture
def planes(photo):
    """Two channels of three depths, 24×32 pixels of 16 bits each."""
    parts = [photo[k : k + 24, 9 * k : 9 * k + 32] * 900 + 100 * k for k in range(6)]
    return np.rint(np.stack(parts)).astype(np.uint16).reshape(2, 3, 24, 32)


def scaled(source, model, scale=2, **options):
    output = source.with_name("out.ome.tif")
    prepare_ome_tiff(source, output, model, TargetSize(scale=scale), overwrite=True, **options).run()
    return tifffile.TiffFile(output)


def run(*words):
    return CliRunner().invoke(cli, [str(word) for word in words], standalone_mode=False)


@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_planes_are_scaled_one_by_one_and_pixels_have_their_size(model, planes, tmp_path, byteorder):
    source = tmp_path / "cells.ome.tif"
    tifffile.imwrite(source, planes, metadata=FACTS, byteorder=byteorder)
    with scaled(source, model, 1.5) as tiff:
        (series,) = tiff.series
        assert (series.axes, series.shape, series.dtype) == ("CZYX", (2, 3, 36, 48), np.uint16)
        result = series.asarray()
        pixels = ET.fromstring(tiff.ome_metadata).find(f"{SPACE}Image/{SPACE}Pixels")
    for c, z in np.ndindex(2, 3):
        alone = thera.upscale(planes[c, z], 1.5, model=model, value_range="extent")
        np.testing.assert_array_equal(result[c, z], alone)
    assert [float(pixels.get(f"PhysicalSize{axis}")) for axis in "XYZ"] == pytest.approx([1 / 6, 1 / 3, 2])
    assert pixels.get("PhysicalSizeXUnit") == "µm"
    assert [channel.get("Name") for channel in pixels.iter(f"{SPACE}Channel")] == ["DAPI", "GFP"]


def test_all_else_of_the_description_is_kept_and_regions_move_with_the_pixels(model, planes, tmp_path):
    source = tmp_path / "cells.ome.tif"
    tifffile.imwrite(source, planes[0, 0], metadata={"axes": "YX"}, ome=True)
    with tifffile.TiffFile(source) as tiff:
        text = tiff.ome_metadata
    more = (
        '<!-- by hand --><ROI ID="ROI:0"><Union><Rectangle ID="Shape:0" X="2" Y="3" Width="4" Height="5"/>'
        '<Polygon ID="Shape:1" Points="1,2 3,4.5"/></Union></ROI><StructuredAnnotations>'
        '<XMLAnnotation ID="Annotation:0"><Value><own:note xmlns:own="urn:own">kept — all of it</own:note>'
        "</Value></XMLAnnotation></StructuredAnnotations></OME>"
    )
    text = text.replace("</OME>", more)
    tifffile.imwrite(source, planes[0, 0], description=text.encode(), metadata=None)
    with scaled(source, model) as tiff:
        root = ET.fromstring(tiff.ome_metadata)
        assert tiff.series[0].shape == (48, 64)
        assert "<!-- by hand -->" in tiff.ome_metadata
    assert root.find(".//{urn:own}note").text == "kept — all of it"
    box = root.find(f".//{SPACE}Rectangle")
    assert [float(box.get(name)) for name in ("X", "Y", "Width", "Height")] == [4, 6, 8, 10]
    assert root.find(f".//{SPACE}Polygon").get("Points") == "2,4 6,9"


def test_masks_and_unreadable_regions_stay_and_are_counted(model, planes, tmp_path):
    source, output = tmp_path / "cells.ome.tif", tmp_path / "out.ome.tif"
    tifffile.imwrite(source, planes[:, 0], metadata={"axes": "CYX"})
    with tifffile.TiffFile(source) as tiff:
        text = tiff.ome_metadata
    last = text.rindex("<Channel")
    text = text[:last] + text[text.index("<TiffData", last) :]  # SizeC stays 2
    shapes = (
        '<Mask ID="Shape:0" X="1" Y="1" Width="8" Height="1"><BinData Length="1">/w==</BinData></Mask>'
        '<Polygon ID="Shape:1" Points="points[1,2 3,4]"/><Point ID="Shape:2" X="2" Y="3"/>'
    )
    text = text.replace("</OME>", f'<ROI ID="ROI:0"><Union>{shapes}</Union></ROI></OME>')
    tifffile.imwrite(source, planes[:, 0], description=text.encode(), metadata=None, photometric="minisblack")
    job = prepare_ome_tiff(source, output, model, TargetSize(scale=2))
    assert job.notes[-1].endswith("stay as they were: 2")
    job.run()
    with tifffile.TiffFile(output) as tiff:
        mask, polygon, point = ET.fromstring(tiff.ome_metadata).find(f".//{SPACE}Union")
        assert tiff.series[0].shape == (2, 48, 64)
    assert [mask.get(name) for name in ("X", "Y", "Width", "Height")] == ["1", "1", "8", "1"]
    assert polygon.get("Points") == "points[1,2 3,4]"
    assert (point.get("X"), point.get("Y")) == ("4", "6")


def test_colours_pyramids_and_several_images_of_a_file(model, photo, tmp_path):
    source = tmp_path / "slide.ome.tif"
    colour = np.rint(np.stack([photo, photo[::-1], photo.T[:1, :1] + 0 * photo], axis=-1) * 255)[:64, :80]
    colour = colour.astype(np.uint8)
    label = np.rint(photo[:20, :30] * 90).astype(np.int16)
    with tifffile.TiffWriter(source, ome=True) as writer:
        writer.write(colour, subifds=1, photometric="rgb", tile=(32, 32), metadata={"Name": "tissue"})
        writer.write(colour[::2, ::2], subfiletype=1, photometric="rgb", tile=(32, 32))
        writer.write(label, metadata={"Name": "label"})
    with scaled(source, model) as tiff:
        tissue, small = tiff.series
        assert [level.shape for level in tissue.levels] == [(128, 160, 3), (64, 80, 3)]
        assert [image.get("Name") for image in ET.fromstring(tiff.ome_metadata).iter(f"{SPACE}Image")] == [
            "tissue",
            "label",
        ]
        fine = tissue.asarray()
        means = fine.reshape(64, 2, 80, 2, 3).mean(axis=(1, 3))
        np.testing.assert_allclose(tissue.levels[1].asarray(), means, atol=0.51)
        np.testing.assert_array_equal(fine, thera.upscale(colour, 2, model=model))
        assert small.asarray().shape == (40, 60)


def test_the_program_names_ome_tiffs_and_agrees_if_asked(planes, tmp_path):
    source = tmp_path / "cells.ome.tif"
    tifffile.imwrite(source, planes, metadata=FACTS)
    result = run("upscale", source, "-s", 2, "-m", "edsr-air", "--consistent", "--json", "-q")
    assert result.return_value == 0, result.output
    assert json.loads(result.stdout)["output"] == str(tmp_path / "cells_x2.ome.tif")
    fine = tifffile.imread(tmp_path / "cells_x2.ome.tif").astype(float)
    np.testing.assert_array_equal(fine.reshape(2, 3, 24, 2, 32, 2).mean(axis=(3, 5)), planes)
    again = run("upscale", source, "-s", 2, "-m", "edsr-air")
    assert again.return_value == 1 and "exists" in again.output
    refused = run("upscale", source, "-s", 2, "--resume", "--overwrite")
    assert refused.return_value == 1 and "--resume are for rasters" in refused.output
    for words in (["--strip"], ["--alpha", "data"]):
        refused = run("upscale", source, "-s", 2, *words, "--overwrite")
        assert refused.return_value == 1 and "is an OME-TIFF" in refused.output


def test_profile_resolution_and_the_meaning_of_zero_are_kept(model, planes, tmp_path):
    source = tmp_path / "cells.ome.tif"
    tifffile.imwrite(
        source,
        planes[0],
        metadata={"axes": "ZYX"},
        photometric="miniswhite",
        iccprofile=b"a profile",
        resolution=(4000, 2000.5),
        resolutionunit="centimeter",
    )
    with scaled(source, model, 1.5) as tiff:
        for page in tiff.pages:
            assert page.aspage().photometric == tifffile.PHOTOMETRIC.MINISWHITE
            assert page.aspage().tags.valueof(34675) == b"a profile"
            assert page.aspage().resolutionunit == tifffile.RESUNIT.CENTIMETER
            assert page.aspage().resolution == pytest.approx((6000, 3000.75))


def test_planes_of_colours_with_alpha_stay_so(model, photo, tmp_path):
    source = tmp_path / "cells.ome.tif"
    planes = np.rint(photo[:48, :64].reshape(2, 6, 64, 4) * 255).astype(np.uint8)
    how = {"photometric": "rgb", "extrasamples": ["unassalpha"]}
    tifffile.imwrite(source, planes, metadata={"axes": "ZYXS"}, **how)
    with scaled(source, model) as tiff:
        assert tiff.series[0].shape == (2, 12, 128, 4)
        assert [page.aspage().extrasamples for page in tiff.pages] == [(tifffile.EXTRASAMPLE.UNASSALPHA,)] * 2


def test_progress_is_shown_while_planes_are_scaled(model, planes, tmp_path, capfd):
    source = tmp_path / "cells.ome.tif"
    tifffile.imwrite(source, planes[0, :2], metadata={"axes": "ZYX"})
    job = prepare_ome_tiff(source, tmp_path / "out.ome.tif", model, TargetSize(scale=1))
    job.run(lambda pixels: os.write(2, b"*"))
    assert capfd.readouterr().err == "**"


@pytest.mark.parametrize(
    ("source", "stem", "output"),
    [
        ("x.ome.tif", "x.ome_x2", "x_x2.ome.tif"),
        ("a.ome_b.OME.tif", "a.ome_b.OME_x2", "a.ome_b_x2.OME.tif"),
        ("x.ome_stack.tif", "x.ome_stack_x2", "x.ome_stack_x2.tif"),
    ],
)
def test_only_the_ending_of_ome_tiffs_stays_last(source, stem, output):
    assert Item(Path(source), Path("out"), stem).named(".tif") == Path("out", output)


def test_what_does_not_fit_is_refused_with_a_sentence(model, planes, tmp_path):
    source = tmp_path / "cells.ome.tif"
    tifffile.imwrite(source, planes[0], metadata={"axes": "ZYX"})
    with tifffile.TiffFile(source) as tiff:
        text = tiff.ome_metadata

    def refused(described, error, **options):
        how = {"photometric": "minisblack", "metadata": None}
        tifffile.imwrite(source, planes[0], description=described.encode(), **how)
        assert is_ome_tiff(source)
        with pytest.raises((ImageFileError, InvalidInput), match=error):
            scaled(source, model, **options)
        assert [file.name for file in tmp_path.iterdir()] == [source.name]

    refused(text.replace('SizeZ="3"', 'SizeZ="4"').replace('Count="3"', 'Count="4"'), "does not fit|no plane")
    refused(text.replace("<Image", "<Imag", 1), "damaged OME-XML")
    companion = (
        text.partition("<Image")[0] + '<BinaryOnly MetadataFile="a.companion.ome" UUID="urn:uuid:1"/></OME>'
    )
    refused(companion, "another file describes them")
    comma = text.replace("<Pixels ", '<Pixels PhysicalSizeX="0,5" ')
    refused(comma, 'PhysicalSizeX="0,5" is not a number')
    refused(text, "no whole-number scale", scale=1.5, options=Options(consistent=True))


@pytest.mark.parametrize("truncate", [False, True], ids=["pages", "one_page"])
def test_a_stack_of_imagejs_is_refused_with_a_recipe_that_works(model, tmp_path, truncate):
    """Of large stacks, ImageJ writes a page for the first plane only."""
    stack = np.random.default_rng(0).integers(0, 60_000, (2, 3, 24, 20), np.uint16)
    source = tmp_path / "stack.tif"
    tifffile.imwrite(source, stack, imagej=True, metadata={"axes": "ZCYX"}, truncate=truncate)
    with pytest.raises(ImageFileError, match="an ImageJ stack of 6 planes") as refused:
        read_tiff(source, lambda width, height: None)
    exec(str(refused.value).partition("In Python: ")[2], {})
    with scaled(source.with_suffix(".ome.tif"), model, 1) as file:
        np.testing.assert_array_equal(file.asarray(), stack)


def test_a_damaged_plane_leaves_no_output(model, planes, tmp_path):
    source = tmp_path / "cells.ome.tif"
    tifffile.imwrite(source, planes, metadata=FACTS, compression="zlib")
    with tifffile.TiffFile(source) as tiff:
        place = tiff.pages[4].dataoffsets[0]
    with source.open("r+b") as file:
        file.seek(place)
        file.write(bytes(40))
    with pytest.raises(ImageFileError, match="damaged or cut short"):
        scaled(source, model)
    assert [file.name for file in tmp_path.iterdir()] == [source.name]


@pytest.mark.parametrize("name", ["cells.ome.tif", "pages.tif"])
@pytest.mark.parametrize("big", [False, True])
def test_a_file_that_is_cut_short_is_refused(planes, tmp_path, name, big):
    """The library finds its first plane and no description in it: it must not pass for a single image."""
    source = tmp_path / name
    tifffile.imwrite(source, planes, metadata=FACTS if ".ome" in name else None, bigtiff=big)
    whole = source.read_bytes()
    for kept in (0.4, 0.9):
        source.write_bytes(whole[: int(kept * len(whole))])
        for options in ((), ("--consistent",)):
            result = run("upscale", source, tmp_path / "out.tif", "-s", 2, "-m", "edsr-air", *options)
            assert result.return_value == 1 and "is damaged or cut short" in result.output, result.output
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_info_describes_all_planes_and_a_picture_of_them_is_refused(planes, tmp_path):
    source = tmp_path / "cells.ome.tif"
    tifffile.imwrite(source, planes, metadata=FACTS)
    assert json.loads(run("info", source, "--json").stdout) == {
        "name": "cells.ome.tif",
        "kind": "OME-TIFF",
        "size": [32, 24],
        "planes": {"all": 6, "channels": 2, "depths": 3, "times": 1},
        "depth": "16-bit",
        "pixel size": [[0.25, "µm"], [0.5, "µm"], [2.0, "µm"]],
    }
    shown = run("info", source).stdout
    for text in ("32×24", "6 (2 channels, 3 depths)", "0.25 µm × 0.5 µm × 2 µm"):
        assert f"  {text}\n" in shown
    result = run("upscale", source, tmp_path / "cells.png", "-s", 2, "-m", "edsr-air")
    assert result.return_value == 1 and "an OME-TIFF of 6 planes" in result.output
    with tifffile.TiffWriter(source, ome=True) as writer:
        writer.write(planes[0, 0], metadata={"axes": "YX"})
        writer.write(planes[0, :, :20], metadata={"axes": "ZYX"})
    several = json.loads(run("info", source, "--json").stdout)
    assert several["size"] == [[32, 24], [32, 20]]
    assert [planes["all"] for planes in several["planes"]] == [1, 3]
    assert "  1, 3 (3 depths)\n" in run("info", source).stdout
