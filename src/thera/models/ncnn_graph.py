"""EDSR with Air, Plus or Pro as ncnn graphs: layers as text, weights as bytes. Needs no other library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from thera.errors import ModelError
from thera.kernels.swin.sizes import ALIGNED_WIDTH, AREA, GROUPS, HEAD, HEADS, WIDTH, WINDOW
from thera.networks.spec import Spec

FLOAT32 = b"\0\0\0\0"  # the tag of weights that are stored as float32
LEAST = 16  # rows of an image that are worth a thread
BLOCKS = 16  # residual blocks of EDSR
WIDENING = {6: (64, 96), 14: (96, 128)}  # the layers of Plus that change the width; the others are blocks


def can_build(spec: Spec) -> bool:
    """True for networks that ncnn can run."""
    return spec.backbone == "edsr" and spec.renderable


def build(spec: Spec, tensors: Mapping[str, np.ndarray], source: str, bands: bool = False) -> Graph:
    """The graph from the normalised image, `image`, to the features; of Pro, to those of EDSR."""
    graph = Graph(tensors, source, bands)
    x, first = graph.split(graph.conv("image", "backbone.head", (64, 3, 3, 3)))
    graph.stages.append(Stage("image", x, 64))
    for i in range(BLOCKS):
        before, kept = graph.split(x)
        y = graph.conv(before, f"backbone.body.{i}.conv1", (64, 64, 3, 3), act="9=1")
        change = graph.conv(y, f"backbone.body.{i}.conv2", (64, 64, 3, 3))
        x = graph.add(kept, change)
        graph.stages.append(Stage(before, x, 64, kept, change, middle=y))
    change = graph.conv(x, "backbone.tail", (64, 64, 3, 3))
    y = graph.add(first, change)
    graph.stages.append(Stage(x, y, 64, first, change, keeps_first=True))
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
            change = graph.conv(y, f"{layer}.project", (width, 4 * width))
            x = graph.add(kept, change)
            graph.stages.append(Stage(before, x, width, kept, change, expands=True))


def pro(graph: Graph, tokens: Graph) -> list[Convolution | Attention]:
    """The hypernetwork of `thera.networks.swinir`, after EDSR in `graph`. Its maps are `f`, `x` and `y`."""

    def conv(
        name: str, shape: tuple[int, int], reads: str, writes: str, adds: str = "", act: str = ""
    ) -> None:
        wide = tuple(ALIGNED_WIDTH if n == WIDTH else n for n in shape)
        source = graph.input()
        change = graph.conv(source, f"hypernetwork.{name}", (*shape, 3, 3), act, (*wide, 3, 3))
        kept = graph.input() if adds else ""
        output = graph.add(kept, change) if adds else change
        steps.append(Convolution(source, output, wide[0], kept, change, reads, writes, adds))

    def norm(name: str, reads: str, writes: str) -> None:
        source = tokens.input()
        output = tokens.last_norm(source, f"hypernetwork.{name}", WIDTH)
        steps.append(Attention(source, output, reads, writes))

    steps: list[Convolution | Attention] = []
    conv("conv_in", (WIDTH, 64), "trunk", "f")
    norm("norm_in", "f", "x")
    for g, layers in enumerate(GROUPS):
        for i in range(layers):
            name = f"hypernetwork.groups.{g}.layers.{i}"
            source, mask, output = swin(tokens, name)
            table = tokens.tensor(f"{name}.attention.bias_table", ((2 * WINDOW - 1) ** 2, HEADS))
            steps.append(Attention(source, output, "y" if i else "x", "y", mask, table, bool(i % 2)))
        conv(f"groups.{g}.conv", (WIDTH, WIDTH), "y", "x", adds="x")
    norm("norm_out", "x", "x")
    conv("conv_body", (WIDTH, WIDTH), "x", "f", adds="f")
    conv("conv_out", (64, WIDTH), "f", "y", act="9=2 -23310=1,0.01")  # a leaky ReLU
    return steps


def swin(tokens: Graph, name: str) -> tuple[str, str, str]:
    """A Swin layer on pixels × channels, the pixels window by window: its input, its mask, its output."""
    source, mask = tokens.input(), tokens.input()
    before, kept = tokens.split(source)
    y = tokens.last_norm(before, f"{name}.norm1", WIDTH)
    y = tokens.linear(y, f"{name}.attention.qkv", (3 * WIDTH, WIDTH))
    parts = tokens.layer("Reshape", [y], f"0={HEAD} 1={3 * HEADS} 2=-1")
    parts = tokens.layer("Permute", [parts], "0=2")  # heads × pixels × channels of a head
    three = tokens.layers("Slice", [parts], 3, f"-23300=3,{HEADS},{HEADS},{HEADS} 1=0")
    three = [tokens.layer("Reshape", [each], f"0={HEAD} 1={AREA} 2=-1") for each in three]
    y = tokens.layer("SDPA", [*three, mask], "5=1")  # with a mask
    y = tokens.layer("Reshape", [y], f"0={HEAD} 1=-1 2={HEADS}")
    y = tokens.layer("Reshape", [tokens.layer("Permute", [y], "0=2")], f"0={WIDTH} 1=-1")
    x = tokens.add(kept, tokens.linear(y, f"{name}.attention.proj", (WIDTH, WIDTH)))
    before, kept = tokens.split(x)
    y = tokens.linear(tokens.last_norm(before, f"{name}.norm2", WIDTH), f"{name}.expand", (2 * WIDTH, WIDTH))
    y = tokens.layer("GELU", [y], "0=1")
    return source, mask, tokens.add(kept, tokens.linear(y, f"{name}.project", (WIDTH, 2 * WIDTH)))


class Convolution(NamedTuple):
    """A convolution of a whole map: `reads`, `writes` and `adds` name maps. See `Stage` for the rest."""

    source: str
    output: str
    channels: int
    kept: str
    change: str
    reads: str
    writes: str
    adds: str


class Attention(NamedTuple):
    """A Swin layer, or a norm if it has no mask. Neither needs more than the windows that it computes."""

    source: str
    output: str
    reads: str
    writes: str
    mask: str = ""
    table: Any = None  # the biases of relative positions
    shifted: bool = False


class Stage(NamedTuple):
    """A part of the graph that makes a map of the whole image from the one before.

    `output` is the sum of `change` and what is `kept`: the map before, or the first of all. `middle` is the
    result of the first of two convolutions. `expands`: it has four times as many channels inside. `halo`: the
    rows above and below that it reads.
    """

    source: str
    output: str
    channels: int
    kept: str = ""
    change: str = ""
    middle: str = ""
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

    def input(self) -> str:
        """Another input than the image."""
        return self.layer("Input", [])

    def layer(self, kind: str, inputs: list[str], settings: str = "") -> str:
        return self.layers(kind, inputs, 1, settings)[0]

    def split(self, x: str) -> list[str]:
        return self.layers("Split", [x], 2)

    def layers(self, kind: str, inputs: list[str], count: int, settings: str = "") -> list[str]:
        """A layer with so many outputs."""
        outputs = [f"x{self._outputs + i}" for i in range(count)]
        names = " ".join(inputs + outputs)
        self._lines.append(f"{kind} {outputs[0]} {len(inputs)} {count} {names} {settings}")
        self._outputs += count
        return outputs

    def add(self, a: str, b: str) -> str:
        return self.layer("BinaryOp", [a, b], "0=0")

    def conv(
        self, x: str, name: str, shape: tuple[int, ...], act: str = "", wide: tuple[int, ...] = ()
    ) -> str:
        """A convolution with bias. A shape of two numbers is that of a 1×1 convolution.

        `act`: ncnn's settings of the activation after it. `wide`: a larger shape; zeros fill the rest of it.
        """
        side = shape[2] if len(shape) == 4 else 1
        pad = side // 2 * self._padded
        wide = wide or shape
        self._store(f"{name}.weight", shape, FLOAT32, wide)
        self._store(f"{name}.bias", shape[:1], b"", wide[:1])
        return self.layer("Convolution", [x], f"0={wide[0]} 1={side} 4={pad} 5=1 6={math.prod(wide)} {act}")

    def linear(self, x: str, name: str, shape: tuple[int, int]) -> str:
        """A linear layer of rows."""
        self._store(f"{name}.weight", shape, FLOAT32)
        self._store(f"{name}.bias", shape[:1], FLOAT32)
        # The weights and the bias, one for each column, are constants; the weights are transposed.
        return self.layer("Gemm", [x], f"3=1 5=1 6=1 8={shape[0]} 9={shape[1]} 10=4")

    def depthwise(self, x: str, name: str, width: int) -> str:
        self._store(f"{name}.weight", (width, 1, 3, 3), FLOAT32)
        pad, size = int(self._padded), 9 * width
        return self.layer("ConvolutionDepthWise", [x], f"0={width} 1=3 4={pad} 5=0 6={size} 7={width}")

    def norm(self, x: str, name: str, width: int) -> str:
        """LayerNorm over channels. ncnn's works on the last axis, so channels go there and back."""
        last = self.layer("Permute", [x], "0=3")
        return self.layer("Permute", [self.last_norm(last, name, width, "1e-6")], "0=4")

    def last_norm(self, x: str, name: str, width: int, eps: str = "1e-5") -> str:
        """LayerNorm over the last axis."""
        self._store(f"{name}.weight", (width,))
        self._store(f"{name}.bias", (width,))
        return self.layer("LayerNorm", [x], f"0={width} 1={eps} 2=1")

    def tensor(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name not in self._tensors:
            raise ModelError(f"{self._source} lacks the parameter {name}: download it again.")
        tensor = self._tensors[name]
        if tensor.shape != shape:
            raise ModelError(f"{self._source} has {name} of shape {tensor.shape}: it must be {shape}.")
        return np.asarray(tensor, np.float32)

    def _store(self, name: str, shape: tuple[int, ...], tag: bytes = b"", wide: tuple[int, ...] = ()) -> None:
        tensor = self.tensor(name, shape)
        if wide:
            tensor = np.pad(tensor, [(0, m - n) for n, m in zip(shape, wide, strict=True)])
        self._weights += [tag, tensor.tobytes()]
