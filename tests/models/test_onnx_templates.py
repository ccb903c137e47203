"""A stored graph and a safetensors file together are an ONNX model."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from thera.errors import ModelError
from thera.models import load, save_safetensors, shipped
from thera.models.engines import Files
from thera.models.onnx_engine import OnnxEngine, runtime
from thera.models.onnx_export import onnx_bytes
from thera.models.onnx_parts import PARTS, divide
from thera.models.onnx_templates import GRAPHS, NAMES, complete, has_graph, template
from thera.models.weights import describe, write_tensors
from thera.networks import Spec, Thera

IMAGE = np.random.default_rng(0).random((9, 13, 3), np.float32)


def test_a_stored_graph_is_that_of_its_generator():
    """One of the three: the others take seconds, and the tests below would notice a wrong one."""
    assert template(Spec("edsr", "air")) == (GRAPHS / "edsr-air.onnx").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_completed_graph_is_a_valid_model_in_which_nothing_is_left_over(name):
    (path,) = (model.safetensors for model in shipped() if model.name == name)
    model = onnx.load_from_string(complete(path))
    onnx.checker.check_model(model, full_check=True)
    used = {name for node in model.graph.node for name in node.input}
    assert {tensor.name for tensor in model.graph.initializer} <= used


def mlp() -> onnx.ModelProto:
    """x → project(gelu(expand(norm x))) of 1×H×W×4, as it is in Plus and Pro."""
    node, info, rng = onnx.helper.make_node, onnx.helper.make_tensor_value_info, np.random.default_rng(1)
    shapes = {"scale": (4,), "expand": (4, 8), "b1": (8,), "project": (8, 4), "b2": (4,)}
    stored = [
        onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        node("LayerNormalization", ["x", "scale"], ["unit"]),
        node("MatMul", ["unit", "expand"], ["m1"]),
        node("Add", ["m1", "b1"], ["hidden"]),
        node("Gelu", ["hidden"], ["active"], approximate="tanh"),
        node("MatMul", ["active", "project"], ["m2"]),
        node("Add", ["m2", "b2"], ["branch"]),
        node("Add", ["x", "branch"], ["y"]),
    ]
    ends = [info(name, onnx.TensorProto.FLOAT, [1, "h", "w", 4]) for name in ("x", "y")]
    graph = onnx.helper.make_graph(nodes, "mlp", ends[:1], ends[1:], stored)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)


def test_a_branch_in_parts_computes_the_same_to_the_last_bit():
    model = mlp()
    whole = runtime().InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    divide(model.graph)
    onnx.checker.check_model(model, full_check=True)
    parts = runtime().InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [node.op_type for node in model.graph.node].count("Gelu") == PARTS
    for height in (1, 3, 8, 13):  # fewer rows than parts, and parts of different sizes
        x = np.random.default_rng(height).random((1, height, 5, 4), np.float32)
        assert np.array_equal(whole.run(["y"], {"x": x})[0], parts.run(["y"], {"x": x})[0])


def test_pro_s_graph_goes_through_windows_and_pixels_in_parts():
    graph = onnx.load(GRAPHS / "edsr-pro.onnx").graph
    kinds = [node.op_type for node in graph.node]
    assert (kinds.count("Softmax"), kinds.count("Gelu")) == (13 * PARTS, 13 * PARTS)


def test_a_completed_graph_computes_exactly_what_an_exported_one_does(tmp_path):
    network = Thera(Spec("edsr", "air", published=True)).eval()
    path = tmp_path / "mine.safetensors"
    save_safetensors(network, path, "f32", {"name": "mine"})
    made, exported = OnnxEngine(complete(path), 1), OnnxEngine(onnx_bytes(network, "f32"), 1)
    assert np.array_equal(made.features(IMAGE), exported.features(IMAGE))
    assert made.metadata["name"] == "mine" and made.metadata["published"]


def test_a_file_of_weights_runs_on_onnx_runtime_without_pytorch(monkeypatch, tmp_path):
    path = tmp_path / "mine.safetensors"
    save_safetensors(Thera(Spec("edsr", "air")), path)
    assert Files(None, path).candidates("auto", "f32")[0].engine == "torch"
    monkeypatch.setattr("thera.models.engines.installed", lambda package: package != "torch")
    assert Files(None, path).candidates("auto", "f32")[0].engine == "onnx"
    assert load(path, engine="onnx").info.engine == "onnx"


def test_a_network_without_a_stored_graph_is_refused(tmp_path):
    path = tmp_path / "mine.safetensors"
    save_safetensors(Thera(Spec("edsr", "air", components=16)), path)
    assert not has_graph(path)
    with pytest.raises(ModelError, match="no ONNX file: make one with `thera export`"):
        load(path, engine="onnx")


def test_a_file_that_lacks_a_parameter_is_refused(tmp_path):
    network = Thera(Spec("edsr", "air"))
    state = network.state_dict()
    del state["backbone.tail.weight"]
    path = tmp_path / "damaged.safetensors"
    write_tensors(path, state, {"thera": json.dumps(describe(network))})
    with pytest.raises(ModelError, match=r"backbone\.tail\.weight"):
        load(path, engine="onnx")
