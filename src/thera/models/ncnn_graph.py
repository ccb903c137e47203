"""EDSR with Air or Plus as an ncnn graph: layers as text, weights as bytes. Needs no other library."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thera.errors import ModelError
from thera.networks.spec import Spec

BLOCKS = 16  # residual blocks of EDSR
WIDENING = {6: (64, 96), 14: (96, 128)}  # the layers of Plus that change the width; the others are blocks


def can_build(spec: Spec) -> bool:
    """True for networks that `build` can write. Pro's windows of attention have no fast form in ncnn."""
    return spec.backbone == "edsr" and spec.variant in ("air", "plus") and spec.renderable


def build(spec: Spec, tensors: Mapping[str, np.ndarray], source: str) -> Graph:
    """The graph from the normalised image, `image`, to the features."""
    graph = Graph(tensors, source)
    first, skip = graph.split(graph.conv("image", "backbone.head", (64, 3, 3, 3)))
    x = first
    for i in range(BLOCKS):
        x, kept = graph.split(x)
        y = graph.conv(x, f"backbone.body.{i}.conv1", (64, 64, 3, 3), relu=True)
        x = graph.add(kept, graph.conv(y, f"backbone.body.{i}.conv2", (64, 64, 3, 3)))
        graph.steps.append(x)
    x = graph.add(skip, graph.conv(x, "backbone.tail", (64, 64, 3, 3)))
    graph.steps.append(x)
    if spec.variant == "plus":
        graph.freeing.add(x)
        x = plus(graph, x)
    return graph


def plus(graph: Graph, x: str) -> str:
    """The ConvNeXt hypernetwork of `thera.networks.convnext`."""
    width = 64
    for i in range(18):
        layer = f"hypernetwork.layers.{i}"
        if i in WIDENING:
            graph.freeing.add(x)
            width, wide = WIDENING[i]
            x = graph.conv(graph.norm(x, f"{layer}.norm", width), f"{layer}.project", (wide, width))
            width = wide
            continue
        x, kept = graph.split(x)
        y = graph.norm(graph.depthwise(x, f"{layer}.depthwise", width), f"{layer}.norm", width)
        y = graph.layer("GELU", [graph.conv(y, f"{layer}.expand", (4 * width, width))], "0=1")  # 1: tanh
        x = graph.add(kept, graph.conv(y, f"{layer}.project", (width, 4 * width)))
        graph.steps.append(x)
    return x


class Graph:
    """Layers in the order of computation.

    Work can end after each of `steps`. After those in `freeing`, blobs have other sizes than before.
    """

    def __init__(self, tensors: Mapping[str, np.ndarray], source: str) -> None:
        self._tensors, self._source = tensors, source
        self._lines = ["Input image 0 1 image"]
        self._weights: list[bytes] = []
        self._outputs = 1
        self.steps: list[str] = []
        self.freeing: set[str] = set()

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
        """A convolution with bias, zero-padded. A shape of two numbers is that of a 1×1 convolution."""
        side = shape[2] if len(shape) == 4 else 1
        self._store(f"{name}.weight", shape, b"\0\0\0\0")  # stored as float32
        self._store(f"{name}.bias", shape[:1])
        size, act = int(np.prod(shape)), int(relu)
        return self.layer("Convolution", [x], f"0={shape[0]} 1={side} 4={side // 2} 5=1 6={size} 9={act}")

    def depthwise(self, x: str, name: str, width: int) -> str:
        self._store(f"{name}.weight", (width, 1, 3, 3), b"\0\0\0\0")
        return self.layer("ConvolutionDepthWise", [x], f"0={width} 1=3 4=1 5=0 6={9 * width} 7={width}")

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
