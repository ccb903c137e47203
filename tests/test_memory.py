"""How much memory is left: on the machine, and below the limit of a container."""

import sys

import pytest

from thera import memory

MIB = 1 << 20


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{text}\n")


@pytest.mark.parametrize(("used", "left"), [(700 * MIB, 424 * MIB), (1200 * MIB, 0)])
def test_caches_of_files_count_as_left_below_a_container_s_limit(tmp_path, used, left):
    stat = f"anon 5\ninactive_file {100 * MIB}\nactive_file 7"
    write(tmp_path, memory_max=1024 * MIB, memory_current=used, memory_stat=stat)
    assert memory._left_in_container(str(tmp_path)) == left


def test_limits_of_cgroups_1_are_read_too(tmp_path):
    stat = f"inactive_file 0\ntotal_inactive_file {10 * MIB}"
    numbers = {"memory_limit_in_bytes": 300 * MIB, "memory_usage_in_bytes": 100 * MIB}
    write(tmp_path / "memory", **numbers, memory_stat=stat)
    assert memory._left_in_container(str(tmp_path)) == 210 * MIB


def test_without_a_limit_the_machine_s_memory_counts(tmp_path):
    assert memory._left_in_container(str(tmp_path / "none")) == sys.maxsize
    write(tmp_path, memory_max="max", memory_current=5, memory_stat="inactive_file 0")
    assert memory._left_in_container(str(tmp_path)) == sys.maxsize


def test_the_smaller_of_both_is_available(monkeypatch):
    monkeypatch.setattr(memory, "_left_on_machine", lambda: 2 * MIB)
    for container, available in ((MIB, MIB), (sys.maxsize, 2 * MIB)):
        monkeypatch.setattr(memory, "_left_in_container", lambda found=container: found)
        assert memory.available_memory() == available
