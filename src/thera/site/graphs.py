"""Makes the two small ONNX graphs with which a browser turns features into a packed field or into pixels.

They need no model: the last layer is an input. They are stored beside this file and made again by
`python -m thera.site.graphs`, which needs `thera[export]`.

Shapes: features C×h×w, P = p·q patches (rows × columns of cells), S = s·t samples of a patch, c components.
"""

from __future__ import annotations

import math
from pathlib import Path

from thera.models.onnx_graph import Graph

FOLDER = Path(__file__).parent / "compute"


def packing() -> bytes:
    """From features to a packed field: c×P×4 half floats, the amplitudes and the phase in [-π, π].

    `weight` and `bias` are the last layer's, transposed: 4c×C, amplitudes (c, 3) in row-major order.
    """
    g = Graph()
    features, weight = g.input("features", "C", "P"), g.input("weight", "O", "C")
    bias, count = g.input("bias", "O", 1), g.input("count", 1, integers=True)
    outputs = g.add("Add", g.add("MatMul", weight, features), bias)
    three = g.add("Mul", count, g.constant([3]))
    end = g.add("Mul", count, g.constant([4]))
    axis, start = g.constant([0]), g.constant([0])
    shape = g.add("Concat", count, g.constant([3, -1]), axis=0)
    amplitude = g.add("Reshape", g.add("Slice", outputs, start, three, axis), shape)
    phase = g.add("Slice", outputs, three, end, axis)
    turns = g.add("Round", g.add("Mul", phase, g.constant(1 / (2 * math.pi))))
    phase = g.add("Sub", phase, g.add("Mul", turns, g.constant(2 * math.pi)))
    phase = g.add("Unsqueeze", phase, g.constant([1]))
    waves = g.add("Transpose", g.add("Concat", amplitude, phase, axis=1), perm=[0, 2, 1])
    half = g.onnx.TensorProto.FLOAT16
    return g.model("packing", g.add("Cast", waves, to=half, name="waves"), half, "c", "P", 4)


def rendering() -> bytes:
    """From features to values of p·s × q·t samples, of 3 channels each, in the unit of the pixels.

    `weight` and `bias` are the last layer's, transposed, the amplitudes channel by channel. `rows` and `cols`
    are the cells of the patches; `down` (c×p×1) and `along` (c×1×q) are added to their phases; `table` (S×2c)
    holds sin(w·x) and cos(w·x) times the filter's gain; `size` is (p, q, s, t).
    """
    g = Graph()
    features, pixels = g.input("features", "C", "h", "w"), g.input("pixels", 3, "h", "w")
    weight, bias = g.input("weight", "O", "C"), g.input("bias", "O", 1)
    rows, cols = g.input("rows", "p", integers=True), g.input("cols", "q", integers=True)
    down, along = g.input("down", "c", "p", 1), g.input("along", "c", 1, "q")
    table, size = g.input("table", "S", "K"), g.input("size", 4, integers=True)

    def taken(array: str) -> str:
        return g.add("Gather", g.add("Gather", array, rows, axis=1), cols, axis=2)

    flat = g.add("Reshape", taken(features), g.constant([0, -1]))
    outputs = g.add("Add", g.add("MatMul", weight, flat), bias)
    p, q, s, t = (g.slice(size, i, i + 1, 0) for i in range(4))
    # Φ - I = Σ a cos(φ) · sin(w·x) + Σ a sin(φ) · cos(w·x)
    count = g.slice(g.add("Shape", down), 0, 1, 0)
    three, end = g.add("Mul", count, g.constant([3])), g.add("Mul", count, g.constant([4]))
    axis, start = g.constant([0]), g.constant([0])
    shape = g.add("Concat", g.constant([3]), count, g.constant([-1]), axis=0)
    amplitude = g.add("Reshape", g.add("Slice", outputs, start, three, axis), shape)
    flat = g.add("Concat", count, g.constant([-1]), axis=0)
    phase = g.add("Slice", outputs, three, end, axis)
    phase = g.add("Add", phase, g.add("Reshape", g.add("Add", down, along), flat))
    parts = [g.add("Mul", amplitude, g.add(kind, phase)) for kind in ("Cos", "Sin")]
    values = g.add("MatMul", table, g.add("Concat", *parts, axis=1))  # 3×S×P
    shape = g.add("Concat", g.constant([3]), s, t, p, q, axis=0)
    values = g.add("Reshape", values, shape)
    shape = g.add("Concat", g.constant([3, 1, 1]), p, q, axis=0)
    values = g.add("Add", values, g.add("Reshape", taken(pixels), shape))
    values = g.add("Transpose", values, perm=[3, 1, 4, 2, 0])
    shape = g.add("Concat", g.add("Mul", p, s), g.add("Mul", q, t), g.constant([3]), axis=0)
    output = g.add("Reshape", values, shape, name="values")
    return g.model("rendering", output, g.onnx.TensorProto.FLOAT, "y", "x", 3)


GRAPHS = {"packing.onnx": packing, "rendering.onnx": rendering}


if __name__ == "__main__":
    for name, make in GRAPHS.items():
        (FOLDER / name).write_bytes(make())
