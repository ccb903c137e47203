"""Caches hold what they may and no more, and survive what happens to files."""

import os
import time

import numpy as np
import pytest

from thera.iiif.cache import Disk
from thera.lru import LRU


def block(value: float) -> np.ndarray:
    return np.full((10, 10, 5), value, np.float16)


def test_memory_forgets_what_was_used_longest_ago():
    memory = LRU(300)
    for key in "abc":
        memory.put(key, key, 100)
    memory.get("a")
    memory.put("d", "d", 100)
    assert [memory.get(key) for key in "abcd"] == ["a", None, "c", "d"]
    memory.put("a", "larger", 200)
    assert memory.nbytes <= 300 and memory.get("a") == "larger"
    memory.put("e", "too large", 301)
    assert memory.get("e") is None and memory.get("a") == "larger"
    memory.resize(150)
    assert memory.nbytes <= 150 and memory.get("a") is None
    memory.put("f", "fits", 150)
    assert memory.get("f") == "fits"


def test_disk_gives_back_what_was_put_also_after_a_restart(tmp_path):
    Disk(tmp_path, 10**6).put(("a", 1), block(0.5))
    again = Disk(tmp_path, 10**6).get(("a", 1))
    assert again is not None and again.dtype == np.float16
    np.testing.assert_array_equal(again, block(0.5))
    assert Disk(tmp_path, 10**6).get(("a", 2)) is None


def test_disk_stays_within_its_bytes_and_drops_what_was_read_longest_ago(tmp_path):
    one = Disk(tmp_path / "one", 10**6)
    one.put("x", block(0))
    size = one.nbytes
    disk = Disk(tmp_path / "disk", 3 * size)
    for key in "abc":
        disk.put(key, block(1))
    disk.get("a")
    disk.put("d", block(2))
    on_disk = sum(path.stat().st_size for path in (tmp_path / "disk").iterdir())
    assert disk.nbytes == on_disk <= 3 * size
    assert [disk.get(key) is not None for key in "abcd"] == [True, False, True, True]
    assert Disk(tmp_path / "disk", size).nbytes <= size  # a smaller limit at the next start


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "other"])
def test_damaged_file_is_dropped(tmp_path, damage):
    disk = Disk(tmp_path, 10**6)
    disk.put("a", block(0.5))
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle] ^= 0xFF
    changed = {"cut": content[:middle], "empty": b"", "flipped": content, "other": b"hello"}[damage]
    path.write_bytes(changed)
    assert disk.get("a") is None
    assert not path.exists() and disk.nbytes == 0
    disk.put("a", block(0.5))
    assert disk.get("a") is not None


def test_what_a_killed_server_left_is_removed_at_the_next_start(tmp_path):
    for name, age in ((".old-0123abcd.part", 7200), (".new-0123abcd.part", 0)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    Disk(tmp_path, 10**6)
    assert [path.name for path in tmp_path.iterdir()] == [".new-0123abcd.part"]


def test_disk_without_room_is_no_error(tmp_path, monkeypatch):
    disk = Disk(tmp_path, 10**6)
    monkeypatch.setattr(np, "savez", _full)
    disk.put("a", block(1))
    assert disk.get("a") is None and list(tmp_path.iterdir()) == []


def _full(*arguments: object, **options: object) -> None:
    raise OSError(28, "No space left on device")
