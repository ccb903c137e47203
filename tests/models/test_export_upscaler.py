"""`export(scale=…)` writes one plain graph that other programs run: it gives what `Model.upscale` gives."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from thera.errors import InvalidInput, ModelError
from thera.models import export, load, save_safetensors, shipped
from thera.models.onnx_templates import complete
from thera.models.onnx_upscaler import upscaler_bytes
from thera.networks import Spec, Thera

SHIPPED = {model.name: model.safetensors for model in shipped()}


def exported(name: str, scale: object, storage: str = "f16") -> bytes:
    return upscaler_bytes(complete(SHIPPED[name]), scale, storage)


def session(data: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def batched(image: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(image.transpose(2, 0, 1)[None])


def run(data: bytes, image: np.ndarray) -> np.ndarray:
    (output,) = session(data).run(None, {"image": batched(image)})
    return output[0].transpose(1, 2, 0)


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    return np.random.default_rng(0).random((12, 18, 3), np.float32)


@pytest.mark.parametrize("scale", ["1", "2", "3", "8", "1.5", "7/3"])
def test_a_graph_gives_what_the_model_gives(scale, noise):
    top, _, bottom = scale.partition("/")
    expected = load("edsr-air", "onnx", threads=1).upscale(noise, float(top) / float(bottom or 1))
    result = run(exported("edsr-air", scale), noise)
    assert result.shape == expected.shape
    assert np.abs(result - expected).max() < 1e-5


@pytest.mark.parametrize("name", ["edsr-plus", "edsr-pro", "photo"])
def test_every_shipped_model_has_a_graph_for_pictures_of_any_size(name):
    runner, model = session(exported(name, 4)), load(name, "onnx", threads=1)
    for shape in ((1, 1), (9, 14)):
        image = np.random.default_rng(1).random((*shape, 3), np.float32)
        (output,) = runner.run(None, {"image": batched(image)})
        assert np.abs(output[0].transpose(1, 2, 0) - model.upscale(image, 4)).max() < 1e-4


def test_openvino_runs_the_graph(noise):
    openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed: pip install openvino")
    core = openvino.Core()
    network = core.read_model(exported("edsr-plus", "3/2"))
    compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    result = compiled({"image": batched(noise)})[0][0].transpose(1, 2, 0)
    assert np.abs(result - load("edsr-plus", "onnx", threads=1).upscale(noise, 1.5)).max() < 1e-4


def test_sides_that_the_scale_does_not_divide_are_rounded_as_elsewhere(photograph):
    """The spacing is then exactly 1/scale instead of fitted to the picture, moving the last most."""
    cropped = photograph[:20, :31]
    result, expected = run(exported("edsr-air", "4/3"), cropped), load("edsr-air").upscale(cropped, 4 / 3)
    assert result.shape == expected.shape == (27, 41, 3)
    assert np.abs(result - expected).mean() < 0.02
    assert np.abs(result[:6, :6] - expected[:6, :6]).max() < 0.04


def test_the_graph_is_plain():
    """Standard operators of opset 17, one image in and one out, both of any height and width."""
    model = onnx.load_from_string(exported("edsr-plus", "5/2"))
    onnx.checker.check_model(model, full_check=True)
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 17)]
    assert {node.domain for node in model.graph.node} == {""}
    names = [(len(v.type.tensor_type.shape.dim), v.name) for v in (*model.graph.input, *model.graph.output)]
    assert names == [(4, "image"), (4, "upscaled")]
    used = {name for node in model.graph.node for name in node.input}
    assert used.issuperset(tensor.name for tensor in model.graph.initializer)


def test_a_graph_for_one_size_says_so(noise):
    """QGIS's Deepness reads the size of its tiles from the file."""
    runner = session(upscaler_bytes(complete(SHIPPED["edsr-air"]), "3/2", tile=12))
    assert runner.get_inputs()[0].shape == [1, 3, 12, 12]
    assert runner.get_outputs()[0].shape == [1, 3, 18, 18]
    (output,) = runner.run(None, {"image": batched(noise[:, :12])})
    expected = load("edsr-air", "onnx", threads=1).upscale(noise[:, :12], 1.5)
    assert np.abs(output[0].transpose(1, 2, 0) - expected).max() < 1e-5


def test_a_tile_that_holds_no_whole_periods_is_refused(noise):
    """Its last pixels would be spaced otherwise than in the picture that is put together from tiles."""
    with pytest.raises(InvalidInput, match="a multiple of 2 pixels a side, not 65: give 64"):
        upscaler_bytes(complete(SHIPPED["edsr-air"]), "3/2", tile=65)


def test_storage_halves_the_file_and_keeps_the_last_layer(noise):
    half, single = exported("edsr-air", 2), exported("edsr-air", 2, "f32")
    assert len(half) < 0.52 * len(single)
    # The shipped weights are float16 already, so that nothing is lost.
    assert np.abs(run(half, noise) - run(single, noise)).max() < 1e-6


def test_a_published_model_adds_its_mean(tmp_path, noise):
    spec = Spec("edsr", "air", published=True)
    network = Thera(spec).eval()
    save_safetensors(network, tmp_path / "mine.safetensors")
    export(tmp_path / "mine.safetensors", tmp_path / "mine.onnx", "f32", scale=2)
    expected = load(tmp_path / "mine.safetensors", "torch", "cpu").upscale(noise, 2)
    assert np.abs(run((tmp_path / "mine.onnx").read_bytes(), noise) - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("scale", "words"),
    [("0.5", "from 1 to 8"), ("9", "from 1 to 8"), ("2.54", "127/50, .*try 23/9"), ("x", "no scale")],
)
def test_scales_that_one_table_cannot_hold_are_refused(tmp_path, scale, words):
    with pytest.raises(InvalidInput, match=words):
        export("edsr-air", tmp_path / "out.onnx", scale=scale)
    assert not list(tmp_path.iterdir())


def test_thera_says_that_such_a_file_is_for_other_programs(tmp_path):
    (tmp_path / "x4.onnx").write_bytes(exported("edsr-air", 4))
    with pytest.raises(ModelError, match="enlarges by 4 alone, for other programs: give Thera edsr-air"):
        load(tmp_path / "x4.onnx")
