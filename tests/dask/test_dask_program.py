"""`thera upscale` with several processes does what it does with one, and says the same."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numcodecs
import numpy as np
import psutil
import pytest
import xarray as xr
import zarr
from distributed import LocalCluster
from PIL import Image

import thera
from thera.cli.main import run as run_program
from thera.dask import clusters

AIR = ("-m", "edsr-air")


@pytest.fixture
def program(capfd):
    """`program(*arguments)` runs it in this process and gives its exit status and what it printed."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            run_program([str(argument) for argument in arguments])
        return (int(ended.value.code or 0), *capfd.readouterr())

    return run


@pytest.fixture
def folder(tmp_path) -> Path:
    """Four images, one of which is cut short, and one in a folder of its own."""
    images = tmp_path / "in"
    (images / "deep").mkdir(parents=True)
    rows, cols = np.mgrid[:40, :50]
    for k, name in enumerate(["a.png", "b.jpg", "deep/c.png"]):
        image = np.stack([rows * 5, cols * 4, (rows * cols * (k + 1)) % 256], axis=2).astype(np.uint8)
        Image.fromarray(image).save(images / name)
    (images / "bad.png").write_bytes((images / "a.png").read_bytes()[:200])
    return images


def records_of(out: str, target: Path) -> list[dict]:
    """The records in the order of their names, less what differs from run to run."""
    records = [
        {key: str(value).replace(str(target), "OUT") for key, value in json.loads(line).items()}
        for line in out.splitlines()
    ]
    for record in records:
        for changing in ("seconds", "memory"):
            record.pop(changing, None)
    return sorted(records, key=lambda record: record["input"])


def test_workers_make_the_same_files_and_say_the_same(program, folder, tmp_path):
    said, kept = {}, {}
    onnx = (*AIR, "--engine", "onnx")  # on a busy machine, "auto" may change its mind in between
    for name, extra in (("one", ()), ("two", ("--workers", 2))):
        target = tmp_path / name
        status, out, err = program("upscale", folder, target, "-s", 1.5, "-r", "--json", *onnx, *extra)
        assert status == 1, err
        # Files end in any order, and take their time.
        lines = sorted(re.sub(r"^\d of 4| in [\d.]+ s\.?$", "", line) for line in err.splitlines())
        said[name] = lines, records_of(out, target)
        kept[name] = {path.relative_to(target): path.read_bytes() for path in target.rglob("*.*")}
    assert said["two"] == said["one"]
    assert kept["two"] == kept["one"]
    assert [path.name for path in sorted(kept["two"])] == ["a.png", "b.jpg", "c.png"]
    assert sum("bad.png is damaged" in line for line in said["two"][0]) == 1


@pytest.fixture
def larger(tmp_path) -> Path:
    (tmp_path / "in").mkdir()
    for name in "abc":
        Image.effect_noise((250, 250), 60).convert("RGB").save(tmp_path / "in" / f"{name}.png")
    return tmp_path / "in"


def started(folder: Path) -> subprocess.Popen:
    """The program at work on a folder with two processes, both of which have begun to write."""
    command = [sys.executable, "-m", "thera", "upscale", str(folder), "-s", "2", "--workers", "2", *AIR]
    program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(list(partial(folder))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return program


def partial(folder: Path) -> list[Path]:
    return list(folder.with_name("in_x2").glob(".*.part"))


def test_a_killed_worker_costs_time_and_nothing_else(larger):
    program = started(larger)
    writing = partial(larger)[0]
    (worker,) = (
        process
        for process in psutil.Process(program.pid).children(recursive=True)
        if str(writing) in [file.path for file in process.open_files()]
    )
    worker.send_signal(signal.SIGKILL)
    _, err = program.communicate(timeout=120)
    assert program.returncode == 0, err
    assert sorted(os.listdir(larger.with_name("in_x2"))) == ["a.png", "b.png", "c.png"]
    for path in larger.with_name("in_x2").iterdir():
        assert Image.open(path).size == (500, 500)
    assert "3 done" in err


def test_an_interrupted_run_leaves_nothing_behind(larger):
    program = started(larger)
    program.send_signal(signal.SIGINT)
    _, err = program.communicate(timeout=60)
    assert program.returncode == 130
    assert err.strip().splitlines()[-1] == "thera: Interrupted: no partial output was left."
    assert "Traceback" not in err
    folder = larger.with_name("in_x2")  # it goes, too, unless a picture in it is done
    left = os.listdir(folder) if folder.exists() else ["done.png"]
    assert left and all(name.endswith(".png") for name in left)


@pytest.mark.parametrize("target", ["in", "mosaic.zarr"])
def test_a_terminal_is_told_that_workers_start(program, folder, tmp_path, monkeypatch, target):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def reconfigure(self, **options: object) -> None:
            """The program says what becomes of letters that a stream has not."""

    monkeypatch.chdir(tmp_path)
    zarr.create_array("mosaic.zarr", shape=(14, 14, 3), dtype="u1", chunks=(14, 14, 3))
    monkeypatch.setattr(sys, "stderr", Terminal())

    def told(*options: object) -> bool:
        program("upscale", target, "-s", 1.5, "--overwrite", *AIR, *options)
        return "Starting 1 worker …" in sys.stderr.getvalue()

    assert not told()
    assert told("--workers", 1)


def test_a_cluster_elsewhere_does_a_folder_and_a_store(program, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = zarr.create_array("mosaic.zarr", shape=(280, 140, 3), dtype="u1", chunks=(140, 140, 3))
    store[:] = np.random.default_rng(0).integers(0, 256, store.shape)
    with LocalCluster(n_workers=1, threads_per_worker=2, memory_limit=0, dashboard_address=":0") as cluster:
        at = ("--scheduler", cluster.scheduler_address)
        status, out, err = program("upscale", "in", "out", "-s", 1.5, "--json", *AIR, *at)
        statuses = sorted(json.loads(line)["status"] for line in out.splitlines())
        assert (status, statuses) == (1, ["done", "done", "failed"]), err
        status, out, err = program("upscale", "mosaic.zarr", "-s", 1.5, *AIR, *at)
        assert status == 0, err
        assert "2 chunks, 2 at a time" in err
        assert "mosaic_x1.5.zarr is done in" in err
    assert sorted(os.listdir("out")) == ["a.png", "b.jpg"]
    scaled = zarr.open("mosaic_x1.5.zarr", mode="r")[:]
    whole = thera.upscale(store[:], 1.5, model="edsr-air")
    assert np.abs(scaled.astype(int) - whole).max() <= 1  # where 0.5 of a step is rounded


@pytest.mark.parametrize("form", [2, 3])
def test_a_zarr_array_becomes_another_of_its_kind(program, tmp_path, form):
    names = {"dimension_names": ("band", "y", "x")} if form == 3 else {}
    array = zarr.create_array(
        tmp_path / "a.zarr",
        shape=(2, 60, 50),
        dtype="u2",
        chunks=(1, 32, 32),
        zarr_format=form,
        attributes={"sensor": "X"},
        fill_value=7,
        **names,
    )
    array[:] = np.random.default_rng(0).integers(0, 65536, array.shape)
    status, out, err = program("upscale", tmp_path / "a.zarr", "--width", 75, "--json", *AIR)
    assert status == 0, err
    record = json.loads(out)
    assert (record["from"], record["to"], record["depth"]) == ([50, 60], [75, 90], "uint16")
    scaled = zarr.open(tmp_path / "a_w75.zarr", mode="r")
    assert (scaled.shape, scaled.chunks, scaled.dtype) == ((2, 90, 75), (1, 32, 32), np.uint16)
    assert (dict(scaled.attrs), scaled.fill_value) == ({"sensor": "X"}, 7)
    assert scaled.metadata.zarr_format == form
    if form == 3:
        assert scaled.metadata.dimension_names == ("band", "y", "x")
    image = np.moveaxis(array[:], 0, 2)  # grey and alpha
    whole = np.moveaxis(thera.upscale(image, 1.5, model="edsr-air"), 2, 0)
    assert np.abs(scaled[:].astype(int) - whole).max() <= 1
    for option in (("--linear",), ("--bounds", "0,0,1,1"), ("--bands", "1")):
        status, _, err = program("upscale", tmp_path / "a.zarr", "--width", 70, *AIR, *option)
        assert status == 1 and f"{option[0]} is for image files" in err
    options = ("--alpha", "data", "--range", "2%:98%", "--overwrite")
    status, _, err = program("upscale", tmp_path / "a.zarr", "--width", 75, *AIR, *options)
    assert status == 0, err
    scaled = zarr.open(tmp_path / "a_w75.zarr", mode="r")
    band = thera.upscale(array[1], 1.5, model="edsr-air", value_range="2%:98%")
    assert np.abs(scaled[1].astype(int) - band).max() <= 1


def test_shards_filters_and_order_are_kept(program, tmp_path):
    values = np.random.default_rng(0).integers(0, 65536, (64, 64)).astype("u2")
    shards = {"chunks": (16, 16), "shards": (32, 32)}
    old = {"chunks": (16, 16), "zarr_format": 2, "order": "F", "filters": [numcodecs.Delta("u2")]}
    keys = {form: {"name": form, "separator": "/" if form == "v2" else "."} for form in ("v2", "default")}
    zarr.create_array(tmp_path / "shards.zarr", data=values, chunk_key_encoding=keys["default"], **shards)
    zarr.create_array(tmp_path / "old.zarr", data=values, chunk_key_encoding=keys["v2"], **old)
    dataset = xr.Dataset({"height": (("y", "x"), values)})
    dataset.height.encoding = shards
    dataset.to_zarr(tmp_path / "set.zarr", zarr_format=3, consolidated=False)
    for name, array, value_range in (
        ("shards", "", None),
        ("old", "", None),
        ("set", "height", "extent"),
    ):
        whole = thera.upscale(values, 1.5, model="edsr-air", value_range=value_range)
        for scale, size in ((1.5, 96), (0.2, 13)):  # smaller than a chunk
            status, _, err = program("upscale", tmp_path / f"{name}.zarr", "-s", scale, *AIR)
            assert status == 0, err
            given = zarr.open(tmp_path / f"{name}.zarr" / array, mode="r")
            scaled = zarr.open(tmp_path / f"{name}_x{scale}.zarr" / array, mode="r")
            assert scaled.shape == (size, size)
            for what in ("chunks", "shards", "filters", "order", "compressors"):
                assert getattr(scaled, what) == getattr(given, what), what
            if not array:  # names of files, like c.0.1 or 0/1
                first = scaled.metadata.encode_chunk_key((0, 0))
                assert (
                    first == given.metadata.encode_chunk_key((0, 0)) != ("0.0" if name == "old" else "c/0/0")
                )
            if size == 96:
                assert np.abs(scaled[:].astype(int) - whole).max() <= 1


def test_a_dataset_of_xarrays_keeps_its_place_and_its_kind(program, tmp_path):
    dataset = xr.Dataset(
        {"height": (("y", "x"), np.linspace(-300, 800, 3000).reshape(60, 50).astype("i2"), {"units": "m"})},
        coords={
            "x": 100.0 + np.arange(50),
            "y": 200.0 - np.arange(60),
            "spatial_ref": ((), 0, {"GeoTransform": "99.5 1 0 200.5 0 -1"}),
        },
    )
    dataset.height.encoding = {"grid_mapping": "spatial_ref", "_FillValue": -9999, "chunks": (32, 32)}
    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=2)
    status, _, err = program("upscale", tmp_path / "a.zarr", tmp_path / "b.zarr", "-s", 2, *AIR)
    assert status == 0, err
    with xr.open_zarr(tmp_path / "b.zarr", mask_and_scale=False, decode_coords="all") as scaled:
        assert scaled.height.encoding["chunks"] == (32, 32)
        assert scaled.height.attrs == {"units": "m", "_FillValue": -9999}
        assert scaled.spatial_ref.attrs["GeoTransform"] == "99.5 0.5 0.0 200.5 0.0 -0.5"
        np.testing.assert_allclose(scaled.x, 99.75 + 0.5 * np.arange(100))
        meaning = {"value_range": "extent", "nodata": -9999}
        whole = thera.upscale(dataset.height.values, 2, model="edsr-air", **meaning)
        assert np.abs(scaled.height.values.astype(int) - whole).max() <= 1


def test_a_store_that_fails_leaves_nothing_and_one_that_is_there_stays(program, tmp_path):
    values = np.zeros((20, 20), "f4")
    values[3, 3] = np.nan
    zarr.save_array(tmp_path / "a.zarr", values)
    status, _, err = program("upscale", tmp_path / "a.zarr", "-s", 2, *AIR)
    assert (status, os.listdir(tmp_path)) == (1, ["a.zarr"])
    assert "NaN or infinite" in err
    zarr.save_array(tmp_path / "b.zarr", values + 1)
    for arguments, sentence in (
        ([tmp_path / "b.zarr"], "pass --overwrite"),
        ([tmp_path / "a.zarr"], "the input itself"),
        ([tmp_path / "b.png"], "end the output 'b.png' in .zarr"),
        ([tmp_path / "no" / "b.zarr"], "make it first"),
        ([tmp_path / "c.zarr", "--cog"], "--cog is for image files"),
    ):
        status, _, err = program("upscale", tmp_path / "a.zarr", *arguments, "-s", 2, *AIR)
        assert status == 1
        assert sentence in err
    zarr.open(tmp_path / "a.zarr", mode="a")[3, 3] = 0
    assert program("upscale", tmp_path / "a.zarr", tmp_path / "b.zarr", "-s", 2, *AIR, "--overwrite")[0] == 0
    assert zarr.open(tmp_path / "b.zarr", mode="r").shape == (40, 40)
    (tmp_path / "empty.zarr").mkdir()
    status, _, err = program("upscale", tmp_path / "empty.zarr", "-s", 2, *AIR)
    assert status == 1
    assert "Zarr store" in err


def test_a_value_that_stands_for_no_data_is_not_blended(program, tmp_path):
    heights = np.tile(np.arange(1000, 1080, dtype="i2"), (60, 1))
    heights[:, 20:30] = -999
    dataset = xr.Dataset({"height": (("y", "x"), heights)})
    dataset.height.encoding = {"_FillValue": -999}
    for form in (2, 3):
        dataset.to_zarr(tmp_path / f"{form}.zarr", zarr_format=form, consolidated=False)
        output = tmp_path / f"{form}_out.zarr"
        status, _, err = program("upscale", tmp_path / f"{form}.zarr", output, "-s", 2, *AIR)
        assert status == 0, err
        with xr.open_zarr(output, mask_and_scale=False, consolidated=False) as scaled:
            values = scaled.height.values
            assert scaled.height.attrs["_FillValue"] == -999
        assert (values[:, 40:60] == -999).all()
        assert values[:, :40].min() > 980 and values[:, 60:].min() > 980


def test_the_zero_that_fills_every_array_of_format_2_marks_nothing(program, tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    array = group.create_array("photo", shape=(40, 50), chunks=(40, 50), dtype="u1")
    array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
    array[:20] = 200
    status, _, err = program("upscale", tmp_path / "a.zarr", tmp_path / "b.zarr", "-s", 2, *AIR)
    assert status == 0, err
    scaled = zarr.open_group(tmp_path / "b.zarr", mode="r")["photo"]
    assert scaled.shape == (80, 100) and scaled.fill_value == 0


@pytest.mark.parametrize(
    ("codec", "extra"),
    [
        (zarr.codecs.ZstdCodec(), ()),
        (zarr.codecs.GzipCodec(), ()),
        (zarr.codecs.GzipCodec(), ("--workers", 2)),
    ],
)
def test_a_damaged_chunk_is_one_sentence(program, tmp_path, codec, extra):
    values = np.full((60, 80), 7, "u2")
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(30, 30), compressors=codec)
    (tmp_path / "a.zarr" / "c" / "0" / "0").write_bytes(b"nothing that was compressed")
    status, _, err = program("upscale", tmp_path / "a.zarr", "-s", 2, *AIR, *extra)
    assert (status, os.listdir(tmp_path)) == (1, ["a.zarr"])
    assert "Traceback" not in err
    (said,) = (line for line in err.splitlines() if line.startswith("thera: "))
    assert "A chunk of" in said and said.endswith("it may be damaged.")


def test_a_damaged_coordinate_is_one_sentence(program, tmp_path):
    dataset = xr.Dataset({"height": (("y", "x"), np.ones((20, 20), "u1"))}, {"x": np.arange(20.0)})
    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=3, consolidated=False)
    (tmp_path / "a.zarr" / "x" / "c" / "0").write_bytes(b"nothing that was compressed")
    status, _, err = program("upscale", tmp_path / "a.zarr", "-s", 2, *AIR)
    assert (status, err.count("\n")) == (1, 1)
    assert "cannot be read as a dataset" in err


@pytest.mark.parametrize("extra", [(), ("--workers", 2)])
def test_an_input_that_is_no_store_is_what_is_complained_of(program, tmp_path, extra):
    (tmp_path / "file.zarr").touch()
    xr.Dataset({"a": (("north", "east"), np.ones((9, 9)))}).to_zarr(tmp_path / "map.zarr", zarr_format=2)
    for name, sentence in (
        ("none.zarr", "none.zarr does not exist."),
        ("file.zarr", "file.zarr is no folder, as Zarr stores are."),
        ("map.zarr", "('north', 'east') are known to be rows and columns: rename those that are to y and x"),
    ):
        status, _, err = program("upscale", tmp_path / name, tmp_path / "out.zarr", "-s", 2, *AIR, *extra)
        assert (status, err.count("\n")) == (1, 1)
        assert sentence in err


def test_what_cannot_be_is_said(program, folder, monkeypatch):
    monkeypatch.setattr(clusters, "PATIENCE", 1)
    status, _, err = program("upscale", folder, "-s", 2, *AIR, "--scheduler", "tcp://127.0.0.1:9")
    assert status == 1
    assert err.count("\n") == 1
    assert "No Dask scheduler answers at tcp://127.0.0.1:9" in err
    for arguments, sentence in (
        ([folder / "a.png", "--workers", 2], "for folders, several inputs and Zarr stores"),
        ([folder, "--workers", 2, "--scheduler", "tcp://127.0.0.1:9"], "give one of them"),
        ([folder, "--workers", 0], "--workers"),
    ):
        status, _, err = program("upscale", *arguments, "-s", 2, *AIR)
        assert status == 2
        assert sentence in err
