"""Pipes in and out, streams that are closed or full, and Ctrl-C before anything has begun."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from thera.cli import pipes
from thera.cli.feedback import Feedback

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")

OPTIONS = "-s 1.5 -m edsr-air"
#: Seconds that a line may take.
LIMIT = 300


def shell(line: str, folder: Path) -> subprocess.CompletedProcess:
    """Runs a line of bash in a folder; $thera is the program.

    After five minutes all that it has started is killed: a pipe that nobody opens would wait for ever.
    """
    environment = {**os.environ, "thera": f"{sys.executable} -m thera", "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir(exist_ok=True)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    with subprocess.Popen(["bash", "-c", line], cwd=folder, env=environment, **streams) as started:
        try:
            out, err = started.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            raise
    assert list((folder / "tmp").iterdir()) == []
    return subprocess.CompletedProcess(line, started.returncode, out, err)


def size_of(data: bytes) -> tuple[str | None, tuple[int, int]]:
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        return image.format, image.size


@pytest.fixture
def folder(tmp_path, png, as_bytes) -> Path:
    (tmp_path / "a.png").write_bytes(png)  # 64×48
    Image.fromarray(as_bytes).save(tmp_path / "a.jpg")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "form"),
    [
        (f"$thera upscale - - {OPTIONS} < a.png", "PNG"),
        (f"cat a.jpg | $thera upscale - {OPTIONS}", "JPEG"),
        (f"cat a.jpg | $thera upscale - - {OPTIONS} --format png | cat", "PNG"),
        (f"$thera upscale <(cat a.jpg) - {OPTIONS}", "JPEG"),
        (f"$thera upscale a.png /dev/stdout {OPTIONS} --format tiff", "TIFF"),
    ],
)
def test_pictures_come_from_pipes_and_go_to_them(folder, line, form):
    done = shell(line, folder)
    assert done.returncode == 0, done.stderr
    assert size_of(done.stdout) == (form, (96, 72))
    assert b"96\xc3\x9772" in done.stderr  # messages do not mix with the picture
    assert sorted(path.name for path in folder.iterdir()) == ["a.jpg", "a.png", "tmp"]


@pytest.mark.parametrize("source", ["-", "/dev/stdin"])
def test_a_picture_from_stdin_gets_a_name_in_a_folder_that_may_be_new(folder, source):
    done = shell(f"$thera upscale {source} new/ {OPTIONS} < a.png", folder)
    assert done.returncode == 0, done.stderr
    assert size_of((folder / "new" / "stdin_x1.5.png").read_bytes()) == ("PNG", (96, 72))
    assert shell(f"$thera upscale {source} none/ {OPTIONS} < /dev/null", folder).returncode == 1
    assert not (folder / "none").exists()


def test_named_pipes_are_read_and_written(folder):
    pipes = "mkfifo in out; cat a.png > in & cat out > b.jpg &"
    done = shell(f"{pipes} $thera upscale in out {OPTIONS} --format jpg; wait", folder)
    assert done.returncode == 0, done.stderr
    assert size_of((folder / "b.jpg").read_bytes()) == ("JPEG", (96, 72))


def test_a_named_pipe_is_done_when_it_is_read(folder, thera, monkeypatch):
    told, before, say, send = [], [], Feedback.say, pipes._send
    monkeypatch.setattr(Feedback, "say", lambda self, text: told.append(text) or say(self, text))
    monkeypatch.setattr(pipes, "_send", lambda *given: before.extend(told) or send(*given))
    os.mkfifo(folder / "out.png")
    reader = subprocess.Popen(["cat", folder / "out.png"], stdout=subprocess.PIPE)
    try:
        assert thera("upscale", folder / "a.png", folder / "out.png", *OPTIONS.split()).status == 0
        assert size_of(reader.communicate(timeout=60)[0]) == ("PNG", (96, 72))
    finally:
        reader.kill()
    assert before and not any("is done" in text for text in before) and "is done" in told[-1]


@pytest.mark.parametrize(
    ("line", "status", "sentence"),
    [
        (f"echo hello | $thera upscale - b.png {OPTIONS}", 1, "stdin is not an image"),
        (f"$thera upscale - b.png {OPTIONS} < /dev/null", 1, "stdin is empty"),
        (f"$thera upscale - a.jpg b.png c.png {OPTIONS} < a.png", 2, "is one picture"),
        (f"$thera upscale - {OPTIONS} --json < a.png", 2, "name an output file"),
        (f"$thera upscale a.png /dev/stdout {OPTIONS} --json", 2, "name an output file"),
        (f"cat a.png | $thera upscale /dev/stdin {OPTIONS} --json", 2, "name an output file"),
        (f"$thera upscale - {OPTIONS} < a.png > /dev/full", 1, "the disk is full"),
        (f"$thera upscale a.png - {OPTIONS} >&-", 1, "could not be written to stdout"),
    ],
)
def test_what_is_wrong_with_a_pipe_gets_one_sentence(folder, line, status, sentence):
    done = shell(line, folder)
    assert done.returncode == status
    assert sentence in done.stderr.decode().splitlines()[-1]
    assert done.stdout == b"" and "Traceback" not in done.stderr.decode()


def test_a_reader_that_goes_away_is_no_traceback(folder):
    done = shell("$thera upscale a.png - -m edsr-air --size 900x900 | head -c 5", folder)
    assert done.stdout == b"\x89PNG\r"
    assert b"Traceback" not in done.stderr and b"Error" not in done.stderr


@pytest.mark.parametrize("streams", [">&- 2>&-", "<&- >&- 2>&-", ">/dev/full 2>/dev/full", "2>/dev/full"])
def test_the_picture_is_written_whatever_the_streams_are(folder, streams):
    done = shell(f"$thera upscale a.png b.png {OPTIONS} {streams}", folder)
    assert done.returncode == 0
    assert size_of((folder / "b.png").read_bytes()) == ("PNG", (96, 72))
    assert b"Traceback" not in done.stderr


def test_results_that_cannot_be_printed_are_an_error_after_the_work(folder):
    done = shell(f"$thera upscale a.png a.jpg -o out {OPTIONS} --json > /dev/full", folder)
    assert done.returncode == 1
    assert b"could not be written to stdout: the disk is full" in done.stderr
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["a_jpg_x1.5.jpg", "a_png_x1.5.png"]


@pytest.mark.parametrize("command", ["--version", "models", "upscale --help"])
def test_other_commands_say_in_a_sentence_that_stdout_is_full(tmp_path, command):
    done = shell(f"$thera {command} > /dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr == b"thera: The output could not be written: the disk is full.\n"
    assert shell(f"$thera {command} >&-", tmp_path).returncode == 0


@pytest.mark.parametrize("module", ["click", "numpy"])
def test_an_interrupt_while_the_program_starts_is_no_traceback(tmp_path, png, module):
    """A module that interrupts as it is imported: click before anything else, NumPy within the command."""
    (tmp_path / "a.png").write_bytes(png)
    code = f"""
import importlib.abc, os, signal, sys
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
import runpy
sys.argv = ["thera", "upscale", "a.png", "-s", "2"]
runpy.run_module("thera", run_name="__main__", alter_sys=True)
"""
    restore = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, preexec_fn=restore
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_camera_raw_from_a_pipe_is_known_by_its_sensor(tmp_path):
    samples = np.zeros((8, 8), np.uint16)
    for name, photometric in (("raw", "cfa"), ("scan", "minisblack")):
        tifffile.imwrite(tmp_path / name, samples, photometric=photometric)
    assert [pipes._is_raw(tmp_path / name) for name in ("raw", "scan")] == [True, False]
    (tmp_path / "in").mkdir()
    assert pipes._spooled(tmp_path / "raw", tmp_path / "in").suffix == ".dng"
