"""The program around the commands: help, versions, models, start-up."""

import getpass
import io
import json
import os
import platform
import re
import subprocess
import sys
import time

import imagecodecs
import numpy as np
import pytest

import thera as package
from thera.cli import feedback
from thera.cli.main import COMMANDS
from thera.field import threads
from thera.models.engines import Files


def test_the_program_alone_shows_its_help(thera):
    result = thera()
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("Usage: thera") and "upscale" in result.err


def test_version_and_help_teach(thera):
    assert thera("--version").out == f"thera {package.__version__}\n"
    assert "thera upscale photo.jpg --scale 4" in thera("--help").out
    text = thera("upscale", "--help").out
    for option in ("--scale", "--size", "--fit", "--memory", "--ensemble", "--strip", "--json"):
        assert option in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(thera, command):
    result = thera(command, "--help")
    assert result.status == 0
    assert result.out.startswith(f"Usage: thera {command}")


def test_models_lists_what_ships(thera):
    records = json.loads(thera("models", "--json").out)
    assert sum(record["default"] for record in records) == 1
    shown = thera("models").out
    for record in records:
        assert record["name"] in shown
        info = json.loads(thera("info", record["name"], "--json").out)
        assert info["parameters"] == record["parameters"]
        assert record["restores"] == (record["name"] != f"{record['backbone']}-{record['variant']}")


def test_info_tells_of_images(thera, tmp_path, png):
    (tmp_path / "a.png").write_bytes(png)
    facts = json.loads(thera("info", tmp_path / "a.png", "--json").out)
    assert (facts["size"], facts["colour"], facts["depth"]) == ([64, 48], "RGB", "8-bit")
    assert facts["alpha"] is False
    assert "64×48" in thera("info", tmp_path / "a.png").out


def test_info_tells_of_colour_spaces_and_depths(thera, tmp_path):
    levels = np.zeros((8, 8, 3), np.uint16)
    code = imagecodecs.avif_encode(levels, bitspersample=10, primaries=9, transfer=16, matrix=9)
    (tmp_path / "a.avif").write_bytes(code)
    facts = json.loads(thera("info", tmp_path / "a.avif", "--json").out)
    assert (facts["depth"], facts["colour space"]) == ("10-bit", "BT.2020, PQ")


def test_info_tells_of_zarr_stores(thera, tmp_path):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(tmp_path / "a.zarr", shape=(32, 48), chunks=(16, 16), dtype="u2")
    array.attrs["long_name"] = "heights"
    group = zarr.create_group(tmp_path / "b.zarr", attributes={"ome": {"multiscales": []}})
    group.create_array("0", shape=(2, 8, 8), chunks=(1, 8, 8), dtype="f4")
    assert "32×48 uint16 in chunks of 16×16" in thera("info", tmp_path / "a.zarr").out
    facts = json.loads(thera("info", tmp_path / "b.zarr", "--json").out)
    assert facts["kind"].startswith("OME-Zarr image")
    assert facts["0"] == {"shape": [2, 8, 8], "dtype": "float32", "chunks": [1, 8, 8]}
    (tmp_path / "c.zarr").mkdir()
    result = thera("info", tmp_path / "c.zarr")
    assert result.status == 1 and "cannot be read as a Zarr store" in result.err


def test_info_tells_of_rasters(thera, tmp_path):
    rasterio = pytest.importorskip("rasterio")
    path = tmp_path / "dem.tif"
    options = {"driver": "GTiff", "height": 40, "width": 48, "dtype": "float32", "crs": "EPSG:32633"}
    place = rasterio.Affine(10, 0, 400_000, 0, -10, 6_600_000)
    with rasterio.open(path, "w", count=5, nodata=-9999, transform=place, **options):
        pass
    facts = json.loads(thera("info", path, "--json").out)
    assert (facts["kind"], facts["size"], facts["depth"]) == ("raster", [48, 40], "32-bit float")
    assert (facts["bands"], facts["coordinates"], facts["nodata"]) == (5, "EPSG:32633", [-9999])
    shown = thera("info", path).out
    assert "thera[geo]" not in shown and "  48×40\n" in shown and "  -9999\n" in shown


def test_a_converted_model_gives_the_same_picture_and_is_not_replaced_unasked(thera, tmp_path, png):
    pytest.importorskip("torch")
    (tmp_path / "a.png").write_bytes(png)
    name = json.loads(thera("models", "--json").out)[0]["name"]
    copy = tmp_path / "copy.safetensors"
    result = thera("convert", name, copy)
    assert result.status == 0 and f"{copy} is written" in result.err
    assert copy.stat().st_mode == (tmp_path / "a.png").stat().st_mode
    assert "--overwrite" in thera("convert", name, copy).err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "copy.safetensors"]
    for model, output in ((name, "onnx.tif"), (copy, "torch.tif")):
        result = thera("upscale", tmp_path / "a.png", tmp_path / output, "-s", 2, "-m", model)
        assert result.status == 0, result.err
    from thera.imaging.reading import read

    ours, theirs = (read(tmp_path / name).samples.astype(int) for name in ("onnx.tif", "torch.tif"))
    assert abs(ours - theirs).max() <= 1


def test_starting_imports_nothing_heavy():
    heavy = ("numpy", "PIL", "onnxruntime", "torch")
    code = f"import sys, thera.cli.main, thera.cli.upscale; print(*(set({heavy}) & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == ""


def test_scaling_imports_no_torch(tmp_path, png):
    (tmp_path / "a.png").write_bytes(png)
    code = (
        "import sys; from thera.cli.main import run\n"
        "try: run(['upscale', sys.argv[1], '-s', '2', '-q'])\n"
        "finally: assert not {'torch', 'tifffile', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.png")], check=True)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, False), (1.2, True)])
def test_a_bar_appears_when_it_takes_long(monkeypatch, seconds, shown):
    monkeypatch.setattr(feedback, "BAR_DELAY", 0.1)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with feedback.Feedback(quiet=False).progress(1000, "photo.png") as progress:
        progress(400)
        time.sleep(seconds)  # within one tile
    text = sys.stderr.getvalue()
    assert ("photo.png  40%" in text and "left" in text) == shown
    monkeypatch.setattr(sys, "stderr", Terminal())
    with feedback.Feedback(quiet=True).progress(1000, "photo.png") as progress:
        time.sleep(seconds / 4)
    assert sys.stderr.getvalue() == ""


def test_every_public_name_is_there():
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError):
        package.nonsense  # noqa: B018


def test_nothing_is_stored_or_sent_about_the_user(tmp_path, png):
    """ONNX Runtime would keep a device ID in the home folder, and send events with it.

    What is kept is which engine is fastest, without a name of the user, the machine or a file.
    """
    (tmp_path / "home").mkdir()
    (tmp_path / "a.png").write_bytes(png)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_"))}
    options = ["-s", "1.5", "-m", "edsr-air", "-q"]
    command = [sys.executable, "-m", "thera", "upscale", tmp_path / "a.png", *options]
    subprocess.run(command, env=environment | {"HOME": str(tmp_path / "home")}, check=True)
    assert (tmp_path / "a_x1.5.png").is_file()
    (kept,) = (path for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert kept.name == "engines.json"
    for name in (str(tmp_path), platform.node(), getpass.getuser()):
        assert name not in re.sub("[0-9a-f]{64}", "", kept.read_text())


def test_info_alone_tells_of_the_installation(thera):
    facts = json.loads(thera("info", "--json").out)
    assert facts["thera"] == package.__version__
    assert facts["devices"][0] == "cpu"
    assert facts["onnxruntime"][0].isdigit()
    assert set(facts["extras"]).isdisjoint(facts["not installed"])
    assert f"thera          {package.__version__}\n" in thera("info").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_a_script_that_completes(thera, shell):
    result = thera("completion", shell)
    assert result.status == 0
    assert f"_THERA_COMPLETE={shell}_complete" in result.out


def test_commands_options_and_values_are_completed():
    for words, expected in (("thera ups", "upscale"), ("thera upscale --long", "--long-edge")):
        variables = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        environment = os.environ | variables | {"_THERA_COMPLETE": "bash_complete"}
        found = subprocess.check_output([sys.executable, "-m", "thera"], env=environment, text=True)
        assert found == f"plain,{expected}\n"


def test_the_manual_page_names_every_command_and_option(thera):
    page = thera("man").out
    assert page.startswith('.TH THERA 1 "" "thera ') and page.isascii()
    for command in COMMANDS:
        assert f"\n.SS thera {command}" in page
        for option in re.findall(r"(?m)^  (?:-\w, )?(--[\w-]+)", thera(command, "--help").out):
            assert option.replace("-", r"\-") in page
    # No line is taken for a request by accident.
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".PP", ".TP", ".nf", ".fi", ".B"}


def test_threads_limit_the_network_and_the_rest(thera, tmp_path, png, monkeypatch):
    (tmp_path / "a.png").write_bytes(png)
    given = []
    real = Files.engine
    monkeypatch.setattr(Files, "engine", lambda *a: given.append(a[-1]) or real(*a))
    for options, cores in ((("--threads", 1), 1), ((), os.cpu_count())):
        assert (
            thera("upscale", tmp_path / "a.png", "-s", 2, "-m", "edsr-air", "--overwrite", *options).status
            == 0
        )
        assert threads.usable_cores() == min(cores, threads.MOST_THREADS)
    assert set(given) == {1, 0} and given[-1] == 0
    assert thera("upscale", tmp_path / "a.png", "-s", 2, "--threads", 0).status == 2
