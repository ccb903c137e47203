"""EDSR with Air or Plus as an ncnn graph: layers as text, weights as bytes. Needs no other library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from thera.errors import ModelError
from thera.networks.spec import Spec

BLOCKS = 16  # residual blocks of EDSR
WIDENING = {6: (64, 96), 14: (96, 128)}  # the layers of Plus that change the width; the others are blocks


def can_build(spec: Spec) -> bool:
    """True for networks that `build` can write. Pro's windows of attention have no fast form in ncnn."""
    return spec.backbone == "edsr" and spec.variant in ("air", "plus") and spec.renderable


def build(spec: Spec, tensors: Mapping[str, np.ndarray], source: str, bands: bool = False) -> Graph:
    """The graph from the normalised image, `image`, to the features."""
    graph = Graph(tensors, source, bands)
    x, first = graph.split(graph.conv("image", "backbone.head", (64, 3, 3, 3)))
    graph.stages.append(Stage("image", x, 64))
    for i in range(BLOCKS):
        before, kept = graph.split(x)
        y = graph.conv(before, f"backbone.body.{i}.conv1", (64, 64, 3, 3), relu=True)
        x = graph.add(kept, graph.conv(y, f"backbone.body.{i}.conv2", (64, 64, 3, 3)))
        graph.stages.append(Stage(before, x, 64, middle=y, kept=kept))
    y = graph.add(first, graph.conv(x, "backbone.tail", (64, 64, 3, 3)))
    graph.stages.append(Stage(x, y, 64, kept=first, keeps_first=True))
    if spec.variant == "plus":
        plus(graph, y)
    return graph


def plus(graph: Graph, x: str) -> None:
    """The ConvNeXt hypernetwork of `thera.networks.convnext`."""
    width = 64
    for i in range(18):
        layer = f"hypernetwork.layers.{i}"
        if i in WIDENING:
            width, wide = WIDENING[i]
            y = graph.conv(graph.norm(x, f"{layer}.norm", width), f"{layer}.project", (wide, width))
            graph.stages.append(Stage(x, y, wide, halo=0))
            x, width = y, wide
        else:
            before, kept = graph.split(x)
            y = graph.norm(graph.depthwise(before, f"{layer}.depthwise", width), f"{layer}.norm", width)
            y = graph.layer("GELU", [graph.conv(y, f"{layer}.expand", (4 * width, width))], "0=1")  # 1: tanh
            x = graph.add(kept, graph.conv(y, f"{layer}.project", (width, 4 * width)))
            graph.stages.append(Stage(before, x, width, kept=kept, expands=True))


class Stage(NamedTuple):
    """A part of the graph that makes a map of the whole image from the one before.

    `middle` is the result of the first of two convolutions. `kept` is added in the end: the map before, or
    the first of all. `expands`: it has four times as many channels inside. `halo`: the rows above and below
    that it reads.
    """

    source: str
    output: str
    channels: int
    middle: str = ""
    kept: str = ""
    keeps_first: bool = False
    expands: bool = False
    halo: int = 1


class Graph:
    """Layers in the order of computation, in stages.

    `bands`: convolutions have no padding. Then each stage can be computed from a part of its map, which must
    have the rows and columns around it.
    """

    def __init__(self, tensors: Mapping[str, np.ndarray], source: str, bands: bool) -> None:
        self._tensors, self._source, self._padded = tensors, source, not bands
        self._lines = ["Input image 0 1 image"]
        self._weights: list[bytes] = []
        self._outputs = 1
        self.stages: list[Stage] = []

    @property
    def text(self) -> str:
        header = f"7767517\n{len(self._lines)} {self._outputs}\n"  # the format's number, layers, outputs
        return header + "\n".join(self._lines) + "\n"

    @property
    def weights(self) -> bytes:
        return b"".join(self._weights)

    def layer(self, kind: str, inputs: list[str], settings: str = "") -> str:
        return self._layer(kind, inputs, 1, settings)[0]

    def split(self, x: str) -> list[str]:
        return self._layer("Split", [x], 2, "")

    def _layer(self, kind: str, inputs: list[str], count: int, settings: str) -> list[str]:
        outputs = [f"x{self._outputs + i}" for i in range(count)]
        names = " ".join(inputs + outputs)
        self._lines.append(f"{kind} {outputs[0]} {len(inputs)} {count} {names} {settings}")
        self._outputs += count
        return outputs

    def add(self, a: str, b: str) -> str:
        return self.layer("BinaryOp", [a, b], "0=0")

    def conv(self, x: str, name: str, shape: tuple[int, ...], relu: bool = False) -> str:
        """A convolution with bias. A shape of two numbers is that of a 1×1 convolution."""
        side = shape[2] if len(shape) == 4 else 1
        pad = side // 2 * self._padded
        self._store(f"{name}.weight", shape, b"\0\0\0\0")  # stored as float32
        self._store(f"{name}.bias", shape[:1])
        size, act = int(np.prod(shape)), int(relu)
        return self.layer("Convolution", [x], f"0={shape[0]} 1={side} 4={pad} 5=1 6={size} 9={act}")

    def depthwise(self, x: str, name: str, width: int) -> str:
        self._store(f"{name}.weight", (width, 1, 3, 3), b"\0\0\0\0")
        pad, size = int(self._padded), 9 * width
        return self.layer("ConvolutionDepthWise", [x], f"0={width} 1=3 4={pad} 5=0 6={size} 7={width}")

    def norm(self, x: str, name: str, width: int) -> str:
        """LayerNorm over channels. ncnn's works on the last axis, so channels go there and back."""
        self._store(f"{name}.weight", (width,))
        self._store(f"{name}.bias", (width,))
        last = self.layer("Permute", [x], "0=3")
        return self.layer("Permute", [self.layer("LayerNorm", [last], f"0={width} 1=1e-6 2=1")], "0=4")

    def _store(self, name: str, shape: tuple[int, ...], tag: bytes = b"") -> None:
        if name not in self._tensors:
            raise ModelError(f"{self._source} lacks the parameter {name}: download it again.")
        tensor = self._tensors[name]
        if tensor.shape != shape:
            raise ModelError(f"{self._source} has {name} of shape {tensor.shape}: it must be {shape}.")
        self._weights += [tag, np.ascontiguousarray(tensor, np.float32).tobytes()]
