"""A raster whose making was interrupted goes on where it was, and comes out as if nothing had happened."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from thera.cli.feedback import Feedback
from thera.cli.run import Scaler
from thera.errors import ImageFileError, InvalidInput
from thera.geo import upscaling
from thera.geo.files import Item, Request, prepare
from thera.geo.resuming import sidecar
from thera.geo.upscaling import RasterOptions, prepare_raster
from thera.imaging.sizing import TargetSize
from thera.tiled import Options

RESUME = RasterOptions(resume=True)


@pytest.fixture
def job(make, photo, tmp_path, far_sighted):
    """`job(**options)`: a scaling in 12 frames."""
    source = make(np.rint(100 + 3000 * photo[None]).astype(np.uint16), nodata=100)

    def prepared(file=RESUME, model="air", scale=2, options=None, name="out.tif"):
        network = far_sighted(model)
        made = prepare_raster(source, tmp_path / name, network, TargetSize(scale=scale), options, file)
        return replace(made, frame=80)

    return prepared


def after(frames: int):
    """A `progress` that ends the run once so many frames of 80×80 are done."""
    left = [frames * 80 * 80]

    def progress(pixels):
        left[0] -= pixels
        if left[0] < 0:
            raise KeyboardInterrupt

    return progress


def test_a_run_goes_on_from_its_finished_frames(job, monkeypatch, tmp_path):
    job(RasterOptions(), name="whole.tif").run()
    with pytest.raises(KeyboardInterrupt):
        job().run(after(5))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".out.tif.resume", "scene.tif", "whole.tif"]
    kept = list(sidecar(tmp_path / "out.tif").glob("*.npz"))
    assert len(kept) == 5 and job().notes[-1] == "5 of 12 parts are there already"
    kept[0].write_bytes(kept[0].read_bytes()[:500])  # half of it is lost: it is made again
    made = []
    rendered = upscaling.RasterScaling._rendered
    count = lambda self, reader, box, progress: (made.append(box), rendered(self, reader, box, progress))[1]  # noqa: E731
    monkeypatch.setattr(upscaling.RasterScaling, "_rendered", count)
    done = []
    job().run(done.append)
    assert len(made) == 8 and sum(done) == 240 * 300
    assert (tmp_path / "out.tif").read_bytes() == (tmp_path / "whole.tif").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.tif", "scene.tif", "whole.tif"]


def test_an_interrupted_run_says_what_it_kept_and_how_to_go_on(job, monkeypatch, capsys, tmp_path):
    scaler = object.__new__(Scaler)
    scaler.feedback = Feedback(quiet=False)
    for frames, said in (
        (0, "No part was finished yet: one is up to 80×80 pixels"),
        (1, "1 of 12 parts is kept"),
        (5, "5 of 12 parts are kept"),
    ):
        with pytest.raises(KeyboardInterrupt):
            scaler._run(job(), after(frames))
        assert said in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        scaler._run(job(RasterOptions()), after(5))
    assert not capsys.readouterr().err


def test_what_changed_is_named_and_nothing_is_mixed(job, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        job().run(after(2))
    source = tmp_path / "scene.tif"
    for changed, name in (
        (lambda: job(model="plus"), "model"),
        (lambda: job(scale=3), "option"),
        (lambda: job(options=Options(ensemble=True)), "option"),
        (lambda: job(RasterOptions(resume=True, cog=True)), "option"),
        (lambda: (os.utime(source, (1, 1)), job())[1], "input"),
    ):
        with pytest.raises(InvalidInput, match=f"begun with another {name}: give the same again.*delete"):
            changed().run()
    assert not (tmp_path / "out.tif").exists() and len(list(sidecar(tmp_path / "out.tif").iterdir())) == 3


def test_a_run_without_a_finished_frame_keeps_nothing(job, tmp_path):
    folder = sidecar(tmp_path / "out.tif")
    with pytest.raises(KeyboardInterrupt):
        job().run(after(0))
    assert not folder.exists()
    folder.mkdir()  # as of a run that was killed
    (folder / "facts.json").write_text('{"option": "another"}')
    with pytest.raises(KeyboardInterrupt):
        job().run(after(1))
    assert job().notes[-1] == "1 of 12 parts is there already"


def test_two_runs_do_not_make_the_same_output(job):
    first = job()

    def meanwhile(pixels):
        with pytest.raises(InvalidInput, match="Another run is making"):
            job().run()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.run(meanwhile)


KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
import thera
from thera.geo.upscaling import RasterOptions, prepare_raster
from thera.imaging.sizing import TargetSize
source, output, frames = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
model = thera.load("edsr-air", threads=1)
job = prepare_raster(source, output, model, TargetSize(scale=2), file=RasterOptions(resume=True))
def progress(pixels):
    global frames
    frames -= 1
    if not frames:
        os.kill(os.getpid(), signal.SIGKILL)
replace(job, frame=64).run(progress)
"""


def test_a_killed_run_gives_the_same_bytes_when_it_goes_on(make, photo, tmp_path):
    source = make(np.rint(255 * photo[None, :60, :60]).astype(np.uint8))

    def run(name, frames):
        command = [sys.executable, "-c", KILLED, source, tmp_path / name, str(frames)]
        return subprocess.run(command, capture_output=True).returncode

    assert run("whole.tif", 0) == 0
    assert run("out.tif", 3) == -signal.SIGKILL
    assert not (tmp_path / "out.tif").exists() and sidecar(tmp_path / "out.tif").is_dir()
    assert run("out.tif", 0) == 0
    assert (tmp_path / "out.tif").read_bytes() == (tmp_path / "whole.tif").read_bytes()


def test_only_rasters_are_resumed(tmp_path, far_sighted):
    from PIL import Image

    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    item = Item(tmp_path / "a.png", tmp_path, "b", tmp_path / "b.png")
    with pytest.raises(InvalidInput, match="--resume is for rasters"):
        prepare(item, lambda: far_sighted("air"), Request(TargetSize(scale=2), resume=True))


def test_a_frame_that_cannot_be_written_ends_the_run(job, monkeypatch):
    from thera.geo.writing import Writer

    def full(self, samples, box, mask):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Writer, "_write", full)
    with pytest.raises(ImageFileError, match="the disk is full"):
        job(RasterOptions()).run()


def test_frames_are_read_and_written_while_others_are_computed(job, monkeypatch):
    """Nothing but the ranges is read in the thread that computes, and nothing is written in it."""
    import threading

    from thera.geo.reading import Reader
    from thera.geo.writing import Writer

    here, reads, writes = threading.current_thread(), [], []
    prepared = job(RasterOptions())
    read, write = Reader.read, Writer._write

    def reading(self, *window):
        reads.append(threading.current_thread())
        return read(self, *window)

    def writing(self, *samples):
        writes.append(threading.current_thread())
        return write(self, *samples)

    monkeypatch.setattr(Reader, "read", reading)
    monkeypatch.setattr(Writer, "_write", writing)
    prepared.run()
    assert len(reads) == len(writes) == 12
    assert here not in reads and here not in writes and len({*reads, *writes}) == 2
