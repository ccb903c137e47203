"""`Graph` builds an ONNX graph of standard operators, node by node."""

from __future__ import annotations

from typing import Any

import numpy as np

from thera.models.weights import is_half
from thera.optional import require

OPSET, IR_VERSION = 17, 8  # what runtimes of the last four years read


class Graph:
    """A graph under construction; its methods add a node and give the name of its output."""

    def __init__(self) -> None:
        self.onnx = require("onnx", "export", "Making an ONNX graph")
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.constants: list[Any] = []

    def input(self, name: str, *shape: str | int, integers: bool = False) -> str:
        kind = self.onnx.TensorProto.INT64 if integers else self.onnx.TensorProto.FLOAT
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, value: Any) -> str:
        array = np.asarray(value)
        array = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
        name = f"constant{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        output = name or f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def slice(self, array: str, start: int, stop: int, axis: int) -> str:
        return self.add("Slice", array, *(self.constant([each]) for each in (start, stop, axis)))

    def model(
        self, name: str, output: str, kind: int, *shape: str | int, metadata: dict[str, str] | None = None
    ) -> bytes:
        helper = self.onnx.helper
        given = helper.make_tensor_value_info(output, kind, shape)
        graph = helper.make_graph(self.nodes, name, self.inputs, [given], self.constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, producer_name="thera", opset_imports=opsets, ir_version=IR_VERSION)
        helper.set_model_props(model, metadata or {})
        self.onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()


def store_half(graph: Any) -> None:
    """Store the weights as float16 behind a cast to float32, which ONNX Runtime computes once, at loading."""
    from onnx import TensorProto, helper, numpy_helper

    casts = []
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and is_half(tensor.name, tensor.dims):
            name = tensor.name
            half = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(half, f"{name}.f16"))
            casts.append(helper.make_node("Cast", [tensor.name], [name], to=TensorProto.FLOAT))
    casts.extend(graph.node)
    del graph.node[:]
    graph.node.extend(casts)


def store_single(graph: Any) -> None:
    """Undo `store_half`: weights are float32 again, without casts."""
    from onnx import numpy_helper

    tensors = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        if node.op_type == "Cast" and node.input[0] in tensors:
            tensor = tensors[node.input[0]]
            values = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, node.output[0]))
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
