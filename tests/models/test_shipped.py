"""The models that come with Thera."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest

from thera.models import load, shipped
from thera.models.onnx_engine import OnnxEngine
from thera.models.onnx_templates import complete

SHIPPED = shipped()


def test_the_default_model_ships():
    assert "edsr-air" in [model.name for model in SHIPPED]


def test_a_plain_installation_upscales_without_pytorch():
    code = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "safetensors", "onnx", "onnxscript", "huggingface_hub"):
            raise ImportError(name)

sys.meta_path.insert(0, Without())
import numpy as np
import thera
from thera.errors import MissingDependency

model = thera.load("edsr-air")
print(model.upscale(np.full((4, 5, 3), 0.5), scale=3, ensemble=True).shape)
for asked in ({"engine": "torch"}, {"device": "mps"}, {"precision": "tf32"}):
    try:
        thera.load("edsr-air", **asked)
    except MissingDependency as error:
        print("thera[torch]" in str(error))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n") == ["(12, 15, 3)", "True", "True", "True", ""]


@pytest.mark.parametrize("model", SHIPPED, ids=lambda model: model.name)
def test_both_engines_run_one_model(model):
    onnx = OnnxEngine(complete(model.safetensors), threads=1)
    torch = load(model.name, engine="torch", device="cpu")
    assert onnx.metadata == model.metadata == torch.info.metadata
    assert not model.spec.published
    assert model.name == model.spec.name or model.metadata["restores"]
    for array in ("weight", "bias", "components"):
        assert np.array_equal(getattr(onnx.head, array), getattr(torch._engine.head, array)), array
    assert onnx.head.kappa == torch.info.kappa


@pytest.mark.parametrize("model", SHIPPED, ids=lambda model: model.name)
def test_engines_agree_on_a_photograph(model, photograph):
    onnx, torch = (load(model.name, engine, "cpu", threads=1) for engine in ("onnx", "torch"))
    for scale in (2, 3.3):
        assert np.abs(onnx.upscale(photograph, scale) - torch.upscale(photograph, scale)).max() < 1e-4


@pytest.mark.parametrize("model", SHIPPED, ids=lambda model: model.name)
def test_a_shipped_model_sharpens_a_photograph_and_keeps_its_colours(model, photograph):
    small = photograph.reshape(32, 2, 48, 2, 3).mean((1, 3))
    ours = load(model.name, threads=1).upscale(small, scale=2)
    nearest = small.repeat(2, 0).repeat(2, 1)
    assert np.abs(ours - photograph).mean() < 0.8 * np.abs(nearest - photograph).mean()
    assert np.abs(ours.mean((0, 1)) - photograph.mean((0, 1))).max() < 5e-3


@pytest.mark.parametrize("model", SHIPPED, ids=lambda model: model.name)
def test_files_are_small_and_say_nothing_of_where_they_were_made(model):
    assert model.safetensors.stat().st_size < 2.1 * model.parameters + 100_000  # two bytes a weight
    graph = onnx.load_from_string(complete(model.safetensors))
    for tensor in graph.graph.initializer:
        tensor.ClearField("raw_data")  # among millions of weights any three bytes are found
    header = model.safetensors.read_bytes()
    header = header[8 : 8 + int.from_bytes(header[:8], "little")]
    for trace in (b"site-packages", b".py", b"/home", b"/usr/", b"/tmp", b"stack_trace"):
        assert trace not in graph.SerializeToString() + header


@pytest.mark.parametrize("times", [1.4, 2, 3, 4, 5.5, 8])
def test_a_photograph_made_smaller_is_read_finely_enough(times, photograph, monkeypatch):
    """A field has detail finer than its pixels, which a third of the size, read once a pixel, aliases."""
    made, exact = (
        load("edsr-air", threads=1).encode(photograph) for _ in range(2)
    )  # each with its own tables
    rendered = made.render(scale=1 / times)
    monkeypatch.setattr("thera.field.grid.SAMPLES_PER_FOOTPRINT", 40)
    error = np.abs(rendered - exact.render(scale=1 / times)).max()
    assert 0 < error < 1.2 / 255
