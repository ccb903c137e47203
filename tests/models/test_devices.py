"""`thera bench --devices` measures what this machine has, and refreshes what is remembered."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner

from thera.cli.bench import command
from thera.models import devices, load
from thera.models.choosing import Candidate


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("thera.models.choosing.ROUNDS", 1)
    return tmp_path / "thera" / "engines.json"


def test_every_engine_is_measured_and_the_choice_is_remembered(cache, monkeypatch):
    monkeypatch.setattr(devices, "found", lambda: [Candidate("onnx", "cpu"), Candidate("ncnn", "cpu")])
    monkeypatch.setattr(devices, "PRECISIONS", ("f32",))
    result = CliRunner().invoke(command, ["--devices", "edsr-air"])
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines() if line.startswith("  ")]
    assert sorted(line[-3] for line in lines) == ["ncnn", "onnx"]
    chosen = next(line[2] for line in lines if line[1] == "*")
    (kept,) = json.loads(cache.read_text()).values()
    assert kept["agreed"] and set(kept["seconds"]) == {"onnx on cpu", "ncnn on cpu"}
    monkeypatch.setattr("thera.models.choosing.measure", None)  # nothing is measured again
    assert load("edsr-air").info.engine == chosen


def test_what_is_installed_is_found():
    found = devices.found()
    assert found[0] == Candidate("onnx", "cpu") and Candidate("ncnn", "cpu") in found
    assert Candidate("torch", "cpu") in found


def test_what_is_not_installed_is_left_out(monkeypatch):
    for package in ("ncnn", "openvino", "torch"):
        monkeypatch.setitem(sys.modules, package, None)
    assert devices.found() == [Candidate("onnx", "cpu")]


def test_an_engine_that_cannot_run_a_model_has_no_time(cache):
    files = devices.Files(*devices.locate("edsr-pro"))
    assert devices._time(files, Candidate("ncnn", "vulkan"), "f32", 1) == {}
