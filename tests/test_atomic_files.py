"""Files appear whole or not at all, and what a killed process left is removed by the next one."""

import os

import pytest

from thera import files
from thera.errors import ImageFileError
from thera.files import held, partial_path, replacing

pytestmark = pytest.mark.skipif(files.fcntl is None, reason="the system has no file locks")


def leave(path, seconds=3600, folder=False):
    """What a process that was killed so long ago left of an output."""
    partial = partial_path(path)
    if folder:
        partial.mkdir()
        (partial / "working.tif").touch()
    else:
        partial.write_bytes(b"half")
    old = partial.stat().st_mtime - seconds
    os.utime(partial, (old, old))
    return partial


def test_the_next_run_removes_what_a_killed_one_left_of_the_same_output_and_nothing_else(tmp_path):
    path = tmp_path / "photo [1].png"
    stale, folder = leave(path), leave(path, folder=True)
    others = leave(tmp_path / "photo.png"), leave(tmp_path / "photo [1]-2.png"), leave(path, seconds=0)
    (tmp_path / ".photo [1]-12345678.parts").touch()  # somebody's own
    with replacing(path) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole"
    assert not stale.exists() and not folder.exists()
    assert all(other.exists() for other in others)
    assert (tmp_path / ".photo [1]-12345678.parts").exists()


def test_a_partial_file_that_is_being_written_is_left_alone(tmp_path):
    path = tmp_path / "photo.png"
    being_written = leave(path)
    with held(being_written), replacing(path) as file:
        file.write(b"whole")
    assert being_written.exists()


def test_two_writers_of_one_output_do_not_disturb_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "NEW", -1.0)  # as if both had begun long ago
    path = tmp_path / "photo.png"
    with replacing(path) as first:
        first.write(b"first")
        with replacing(path) as second:
            second.write(b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "photo.png"
    path.write_bytes(b"old")

    def fail(error):
        with replacing(path) as file:
            file.write(b"new")
            raise error

    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    with pytest.raises(ImageFileError, match="the disk is full"):
        fail(OSError(28, "No space left on device"))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_system_without_locks_is_no_reason_to_fail(tmp_path, monkeypatch):
    class Lockless:
        LOCK_EX = LOCK_NB = 0

        @staticmethod
        def flock(handle, kind):
            raise OSError(95, "Operation not supported")

    monkeypatch.setattr(files, "fcntl", Lockless)
    path = tmp_path / "photo.png"
    unknown = leave(path)
    with replacing(path) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole"
    assert unknown.exists()  # whether somebody writes it cannot be known
