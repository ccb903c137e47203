"""Whatever is wrong gets one sentence, a status that says so, and no file."""

import io
import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from thera.errors import ImageFileError
from thera.imaging import files, writing
from thera.imaging.formats import format_named
from thera.imaging.picture import Layout


@pytest.fixture
def folder(tmp_path, png) -> Path:
    """A folder with one of every kind of trouble."""
    (tmp_path / "good.png").write_bytes(png)
    (tmp_path / "text.png").write_text("hello")
    (tmp_path / "cut.png").write_bytes(png[: len(png) // 2])
    (tmp_path / "empty.png").touch()
    (tmp_path / "sub").mkdir()
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "green", "blue")]
    frames[0].save(tmp_path / "film.gif", save_all=True, append_images=frames[1:])
    for name, size in (("bomb.png", (50_000, 50_000)), ("flat.png", (0, 9))):
        data = bytearray(png)
        data[16:24] = b"".join(side.to_bytes(4, "big") for side in size)
        data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
        (tmp_path / name).write_bytes(data)
    samples = np.zeros((9, 9, 3), np.float32)
    samples[3, 3] = np.nan
    tifffile.imwrite(tmp_path / "nan.tif", samples, photometric="rgb")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("missing.png -s 2", "does not exist"),
        ("sub -s 2", "no images"),
        ("text.png -s 2", "not an image"),
        ("cut.png -s 2", "damaged or cut short"),
        ("empty.png -s 2", "empty"),
        ("flat.png -s 2", "flat.png"),
        ("bomb.png -s 2", "--max-pixels"),
        ("film.gif -s 2", "animation of 3 frames"),
        ("nan.tif -s 2", "NaN"),
        ("good.png -s 2 -m nonsense", "no file or model 'nonsense'"),
        ("good.png -s 2 -m good.png", "no model"),
        ("good.png", "none of them"),
        ("good.png -s 2 --size 9x9", "scale and size"),
        ("good.png -s 0", "above 0"),
        ("good.png -s -3", "above 0"),
        ("good.png -s nan", "above 0"),
        ("good.png -s inf", "above 0"),
        ("good.png -s many", "is no scale"),
        ("good.png -s 0.001", "leaves no pixel"),
        ("good.png -s 1e5", "100,000,000,000 pixels"),
        ("good.png --size 9999999x9999999", "100,000,000,000 pixels"),
        ("good.png --size 0x5", "from 1 up"),
        ("good.png --size 5", "like 1920x1080"),
        ("good.png --width 0", "from 1 up"),
        ("good.png out.jpg --size 70000x5", "JPEG holds 65,535 pixels"),
        ("good.png out.webp --size 5x16384", "WEBP holds 16,383 pixels"),
        ("good.png out.avif --size 32768x32768", "AVIF cannot hold"),
        ("good.png out.bmp --size 33000x33000", "BMP cannot hold"),
        ("good.png nowhere/out.png -s 2", "does not exist"),
        ("good.png good.png -s 2", "the input itself"),
        ("good.png good.png -s 2 --overwrite", "the input itself"),
        ("good.png cut.png -s 2", "it may be a second input, or an output"),
        ("good.png cut.png -s 2 --overwrite", "it may be a second input, or an output"),
        ("good.png -o cut.png -s 2", "pass --overwrite"),
        ("good.png text.png empty.png -o cut.png -s 2", "several inputs need a folder"),
        ("good.png text.png empty.png -o new.png -s 2", "several inputs need a folder"),
        (". new.TIF -s 2", "named like one picture"),
        ("good.png text.png empty.png -o new -s 2 -m nonsense", "no file or model 'nonsense'"),
        ("good.png text.png store.zarr -o new -s 2", "is a Zarr store"),
        ("good.png -s 2 -r", "--recursive is for folders"),
        ("good.png out.gif -s 2", "'.gif'"),
        ("good.png out -s 2", "no ending"),
        ("good.png -s 2 --format psd", "'psd'"),
        ("good.png -s 2 --quality 0", "--quality"),
        ("good.png -s 2 --memory lots", "like 2GiB"),
        ("good.png -s 2 --memory 1MiB", "allow more with --memory (memory=)."),
        ("good.png out.webp -s 2 --memory 1MiB", "or write PNG or TIFF"),
        ("good.png -s 2 --sharpness 0", "sharpness of 0"),
        ("good.png -s 2 --filter sinc", "--filter"),
        ("good.png -s 2 --engine onnx --device cuda", "torch"),
        ("good.png -s 2 --nonsense", "--nonsense"),
        (". . -s 2", "folder of its own"),
        (". -o good.png -s 2", "folder of its own"),
        (". nowhere/deep -s 2", "does not exist"),
    ],
)
def test_one_sentence_a_status_and_no_file(thera, folder, monkeypatch, arguments, sentence):
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    result = thera("upscale", *arguments.split())
    assert result.status in (1, 2)
    assert result.out == ""
    (line,) = result.err.splitlines()
    assert line.startswith("thera: ")
    assert sentence in line
    assert sorted(folder.rglob("*")) == before


def test_an_unwritable_folder_is_found_before_any_work(thera, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("os.access", lambda path, mode: False)  # permissions do not bind the superuser
    result = thera("upscale", "good.png", "-s", 2)
    assert result.status == 1
    assert "may not be written to" in result.err


def test_a_disk_too_small_is_found_before_any_work(thera, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6, 1000))
    result = thera("upscale", "good.png", "-s", 2)
    assert result.status == 1
    assert "make room" in result.err


def test_a_disk_that_fills_up_leaves_the_old_output(thera, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))

    def full(file: io.BufferedIOBase, *rest: object) -> None:
        file.write(b"some")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "encode", full)
    result = thera("upscale", "good.png", "-o", "cut.png", "-s", 2, "--overwrite")
    assert result.status == 1
    assert result.err.splitlines()[-1] == "thera: cut.png could not be written: the disk is full."
    assert sorted(folder.rglob("*")) == before


def test_a_bad_file_in_json_is_a_record_with_its_error(thera, folder):
    import json

    result = thera("upscale", folder / "cut.png", "-s", 2, "--json")
    assert result.status == 1
    record = json.loads(result.out)
    assert record["status"] == "failed"
    assert "cut short" in record["error"]


def test_limits_are_those_of_the_formats():
    layout = Layout(65_536, 10, "rgb", False, np.dtype("u1"))
    with pytest.raises(ImageFileError, match="write PNG or TIFF"):
        files.check_limits(layout, format_named("jpeg"))
    files.check_limits(layout, format_named("png"))
    assert set(writing.QUALITY) == {"jpeg", "jxl", "webp", "avif"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("info missing.png", "neither a file nor a shipped model"),
        (f"info {'n' * 300}.png", "neither a file nor a shipped model"),
        ("info text.png", "not an image"),
        ("convert text.png x.onnx", "no model"),
        ("convert edsr-air folder.onnx --overwrite", "is a folder"),
        (f"convert edsr-air {'n' * 300}.onnx", "could not be written"),
        ("frobnicate", "frobnicate"),
        ("figures", "Choose from: derivatives, zoom, crops"),
        ("upscale -dash.png -s 2", "No such option '-d': write ./-dash.png for the file of this name (see"),
        ("warp text.png folder.onnx/ --affine=1,0,0,0,1,0", "The output folder.onnx is a folder"),
        (f"warp text.png {'n' * 300} --affine=1,0,0,0,1,0", "has no ending, which names no format"),
    ],
)
def test_other_commands_fail_in_one_sentence_too(thera, folder, monkeypatch, arguments, sentence):
    monkeypatch.chdir(folder)
    (folder / "folder.onnx").mkdir()
    (folder / "-dash.png").touch()
    result = thera(*arguments.split())
    assert result.status in (1, 2)
    (line,) = result.err.splitlines()
    assert sentence in line


def test_too_little_memory_is_said_in_a_sentence_and_other_errors_are_not_hidden(thera, monkeypatch):
    from thera.cli import train

    given = {"error": RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")}

    def fail(*_):
        raise given["error"]

    monkeypatch.setattr(train, "require", fail)
    result = thera("train", "any.toml", "--data", "photos")
    assert result.status == 1
    assert result.err.splitlines() == [
        "thera: This needs more memory than there is: use smaller pictures, or a smaller data.batch."
    ]
    given["error"] = RuntimeError("oops")
    with pytest.raises(RuntimeError, match="oops"):
        thera("train", "any.toml", "--data", "photos")


def test_a_model_that_cannot_be_written_is_said_in_a_sentence(thera, folder, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    result = thera("convert", "edsr-air", folder / "x.safetensors")
    assert result.status == 1
    assert result.err.endswith("x.safetensors could not be written: permission denied.\n")


@pytest.mark.parametrize("command", ["upscale", "warp"])
def test_an_empty_name_is_not_the_current_folder(thera, tmp_path, monkeypatch, png, command):
    (tmp_path / "a.png").write_bytes(png)
    monkeypatch.chdir(tmp_path)
    options = ["-s", 2] if command == "upscale" else ["--affine", "1,0,0,0,1,0"]
    result = thera(command, "", "out.png", *options)
    assert result.status == 2
    assert "the name is empty" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_a_folder_that_may_not_be_read_is_named(thera, tmp_path, monkeypatch, png):
    (tmp_path / "in" / "closed").mkdir(parents=True)
    (tmp_path / "in" / "a.png").write_bytes(png)
    real = os.scandir

    def scandir(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    result = thera("upscale", tmp_path / "in", "-s", 2, "-r")
    assert result.status == 1
    assert "closed cannot be read: permission denied." in result.err


def test_a_limit_of_few_pixels_is_said_as_it_was_given(thera, tmp_path, png):
    (tmp_path / "a.png").write_bytes(png)
    assert (
        "more than the limit of 10:" in thera("upscale", tmp_path / "a.png", "-s", 2, "--max-pixels", 10).err
    )


def test_json_holds_names_that_are_no_utf_8(tmp_path, png):
    name = os.fsencode(tmp_path) + b"/caf\xe9.png"
    with open(name, "wb") as file:
        file.write(png)
    command = [sys.executable, "-m", "thera", "upscale", name, "-s", "1.5", "-m", "edsr-air", "--json", "-q"]
    run = subprocess.run(command, capture_output=True)
    assert run.returncode == 0, run.stderr
    record = json.loads(run.stdout)
    assert os.fsencode(record["output"]).endswith(b"/caf\xe9_x1.5.png")


def test_an_output_folder_that_links_to_itself_is_refused(thera, tmp_path, png):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(png)
    (tmp_path / "loop").symlink_to("loop")
    result = thera("upscale", tmp_path / "in", tmp_path / "loop", "-s", 2)
    assert result.status == 1 and "it is a link that leads nowhere" in result.err


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--affine", "1,0,0,0,1,0", "--lens", "0,0,0,0"),
        ("--affine", "1,0,0,0,1,0", "--resolution", 3),
        ("--affine", "1,0,0,0,1,0", "--quality", 90),
    ],
)
def test_wrong_options_of_a_warp_are_wrong_usage(thera, tmp_path, png, options):
    (tmp_path / "a.png").write_bytes(png)
    result = thera("warp", tmp_path / "a.png", tmp_path / "b.png", *options)
    assert result.status == 2 and "(see thera warp --help)" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
