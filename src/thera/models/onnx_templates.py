"""ONNX models made of a safetensors file and a stored graph, so that each weight ships once.

A graph in `graphs/` is an ONNX model without parameters. Each parameter enters it as NAME.stored, through a
cast to float32, so that a file may store it as float16 or float32. `complete` appends the parameters to the
graph's bytes: parsers of protocol buffers join the parts of a message. No library is needed for that.

`python -m thera.models.onnx_templates` makes the graphs again, which needs `thera[export]`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from thera.models.weights import is_safetensors, read_header, read_stored
from thera.networks.spec import STD, Spec

GRAPHS = Path(str(files("thera"))) / "models" / "graphs"
NAMES = ("edsr-air", "edsr-plus", "edsr-pro")
STORED = ".stored"
#: Numbers of types and fields in onnx.proto.
TYPES = {"<f4": 1, "<f2": 10}
GRAPH, METADATA = 7, 14  # in ModelProto
INITIALIZER = 5  # in GraphProto
DIMS, TYPE, NAME, RAW = 1, 2, 8, 9  # in TensorProto


def has_graph(path: Path) -> bool:
    """True for a safetensors file of a network whose graph is stored."""
    if not is_safetensors(path):
        return False
    spec = Spec.from_dict(read_header(path))
    return spec.name in NAMES and replace(spec, published=False) == Spec(spec.backbone, spec.variant)


def complete(path: Path) -> bytes:
    """The ONNX model of a safetensors file that has a graph: the file that `thera export` would write."""
    metadata = read_header(path)
    graph = (GRAPHS / f"{Spec.from_dict(metadata).name}.onnx").read_bytes()
    tensors = b"".join(_part(INITIALIZER, _tensor(name, array)) for name, array in read_stored(path).items())
    about = _part(1, b"thera") + _part(2, json.dumps(metadata).encode())
    return graph + _part(GRAPH, tensors) + _part(METADATA, about)


def _tensor(name: str, array: np.ndarray) -> bytes:
    dims = b"".join(_number(DIMS << 3) + _number(n) for n in array.shape)
    kind = _number(TYPE << 3) + _number(TYPES[array.dtype.str])
    return dims + kind + _part(NAME, (name + STORED).encode()) + _part(RAW, array.tobytes())


def _part(field: int, data: bytes) -> bytes:
    """A field of bytes, a text or a message: 2 is the code for all three."""
    return _number(field << 3 | 2) + _number(len(data)) + data


def _number(n: int) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow."""
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def template(spec: Spec) -> bytes:
    """The graph of a network without its parameters."""
    import onnx
    import torch
    from onnx import TensorProto, helper, numpy_helper

    from thera.models.onnx_export import OUTPUTS, onnx_bytes
    from thera.networks import Thera

    network = Thera(spec).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():  # no two are alike: they are found by their values
            parameter.uniform_(0.1, 1, generator=generator)
    parameters = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
    model = onnx.load_from_string(onnx_bytes(network, "f32"))
    amplitudes, count = 3 * spec.components, 4 * spec.components
    constants = {"factors": np.where(np.arange(count) < amplitudes, STD, 1).astype(np.float32)}
    nodes = [
        *([_node("Cast", [name + STORED], name, to=TensorProto.FLOAT) for name in parameters]),
        _node("Transpose", ["head.weight"], "head.weight.T", perm=[1, 0]),
        _node("Mul", ["head.weight.T", "factors"], "head_weight"),
        _node("Mul", ["head.bias", "factors"], "head_bias"),
    ]
    for tensor in model.graph.initializer:
        name, array = tensor.name, numpy_helper.to_array(tensor)
        if name in parameters or name.removesuffix(".value") in OUTPUTS:
            continue
        made = _remake(name, array, parameters, constants)
        if made is None:
            constants[name] = array
        nodes += made or []
    nodes += [node for node in model.graph.node if node.output[0] not in OUTPUTS[1:]]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "thera", model.graph.input, model.graph.output, stored)
    del model.metadata_props[:]
    model.graph.CopyFrom(graph)
    return model.SerializeToString(deterministic=True)


def _remake(
    name: str, array: np.ndarray, parameters: dict[str, np.ndarray], constants: dict[str, np.ndarray]
) -> list[Any] | None:
    """The nodes that make an array of the exporter from a parameter; None if it is a constant."""
    from thera.networks.swinir import relative_position_index

    for source, parameter in parameters.items():
        if np.array_equal(array, parameter):
            return [_node("Identity", [source], name)]
        if parameter.ndim == 2 and np.array_equal(array, parameter.T):
            return [_node("Transpose", [source], name, perm=[1, 0])]
        if source.endswith("bias_table"):
            index = relative_position_index().numpy().astype(np.int32)
            if np.array_equal(array, parameter[index].transpose(2, 0, 1)):
                constants["positions"] = index
                return [
                    _node("Gather", [source, "positions"], f"{source}.at", axis=0),
                    _node("Transpose", [f"{source}.at"], name, perm=[2, 0, 1]),
                ]
    return None


def _node(kind: str, inputs: list[str], output: str, **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(kind, inputs, [output], **attributes)


def main() -> None:
    GRAPHS.mkdir(exist_ok=True)
    for name in NAMES:
        (GRAPHS / f"{name}.onnx").write_bytes(template(Spec(name[:4], name[5:])))


if __name__ == "__main__":
    main()
