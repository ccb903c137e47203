"""A model and a scale as one plain ONNX graph, image → image, for programs that know nothing of heat fields.

All output pixels at the same place in a period of cells share one table (`thera.field.head`). At scale p/q a
period is q cells and p output pixels long. So rendering is a 1×1 convolution for the coefficients, their
sines and cosines, a 1×1 convolution with the table, and a pixel shuffle.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np

from thera.errors import InvalidInput
from thera.field.grid import Axis, Patches
from thera.models.model import Model
from thera.models.onnx_engine import OnnxEngine
from thera.models.onnx_graph import Graph, store_half, store_single
from thera.networks.spec import MEAN

SCALES = 1, 8  # below, output pixels average cells; above, cells are blended: neither is one table
LARGEST_DENOMINATOR = 10
COMPONENTS = 64  # of a part. A part's coefficients take 4 KB for each pixel, those of 512 components 32


def check_scale(scale: Fraction | float | str) -> Fraction:
    """A scale as a fraction of small numbers, such as 4, 1.5 or "4/3"."""
    try:
        given = Fraction(str(scale))
    except (ValueError, ZeroDivisionError):
        raise InvalidInput(f"{str(scale)!r} is no scale of a network: write it like 4, 2.5 or 4/3.") from None
    if not SCALES[0] <= given <= SCALES[1]:
        raise InvalidInput(f"A network for the scale {scale} cannot be written: give one from 1 to 8.")
    if given.denominator > LARGEST_DENOMINATOR:
        near = given.limit_denominator(LARGEST_DENOMINATOR)
        raise InvalidInput(
            f"The scale {scale} is {given}, which makes too large a network: try {near}, or"
            f" another fraction with a denominator of at most {LARGEST_DENOMINATOR}."
        )
    return given


def upscaler_bytes(
    encoder: bytes, scale: Fraction | float | str, storage: str = "f16", tile: int | None = None
) -> bytes:
    """The graph for one scale, made from a model's ONNX file: 1×3×H×W in [0, 1] to 1×3×H'×W', not clipped.

    `tile`: write it for images of this height and width alone, instead of all.

    It has what `Model.upscale` gives if H and W are multiples of the scale's denominator q. Otherwise output
    pixels are spaced by exactly 1/scale, where `Model.upscale` fits them to the picture.
    """
    ratio = check_scale(scale)
    if tile and tile % ratio.denominator:
        near = tile // ratio.denominator * ratio.denominator or ratio.denominator
        raise InvalidInput(
            f"At the scale {ratio} a tile has a multiple of {ratio.denominator} pixels a side, not {tile}:"
            f" give {near}, say."
        )
    engine = OnnxEngine(encoder, threads=1)
    model = Model(engine, engine.metadata)
    g = Graph()
    image, features = _encoder(g, encoder, storage, tile)
    p, q = ratio.numerator, ratio.denominator
    size = _output_size(g, image, ratio) if q > 1 else ""
    if q > 1:
        width = len(engine.head.by_channel[0])
        image = _by_place(g, image, 3, q)
        features = g.add("Reshape", _by_place(g, features, width, q), g.constant([q * q, width, 0, 0]))
    patches = Patches.of(Axis.whole(q, p))
    values = _pixels(g, image, model, patches)
    for start in range(0, model.info.components, COMPONENTS):
        part = slice(start, min(start + COMPONENTS, model.info.components))
        values = g.add("Add", values, _waves(g, features, model, patches, part))
    if q > 1:
        values = g.add("Gather", values, g.constant(_order(patches, p)), axis=1)
    values = g.add("DepthToSpace", values, blocksize=p, mode="CRD")
    if q > 1:
        values = g.add("Slice", values, g.constant([0, 0]), size, g.constant([2, 3]))
    output = g.add("Identity", values, name="upscaled")
    known = {"name": model.name, "scale": str(ratio), "parameters": model.info.parameters}
    sides = [round(tile * ratio)] * 2 if tile else ["scaled height", "scaled width"]
    about = {"thera": json.dumps(known)}
    if tile:  # what QGIS's Deepness reads
        about |= {"model_type": '"Superresolution"', "tile_size": str(tile)}
    return g.model(f"{model.name} x{ratio}", output, g.onnx.TensorProto.FLOAT, 1, 3, *sides, metadata=about)


def _encoder(g: Graph, encoder: bytes, storage: str, tile: int | None) -> tuple[str, str]:
    """Adds the encoder's nodes and weights. Gives the names of the image and of the features."""
    onnx = g.onnx
    source = onnx.load_from_string(encoder).graph
    store_single(source)
    if storage == "f16":
        store_half(source)
    g.input("image", 1, 3, *((tile, tile) if tile else ("height", "width")))
    used, nodes = {"features"}, []  # without what only fields are made from
    for node in reversed(source.node):
        if used.intersection(node.output):
            used.update(node.input)
            nodes.append(node)
    for node in reversed(nodes):
        if node.op_type == "Gelu":
            _gelu(g, node)
        else:
            g.nodes.append(node)
    g.constants += [tensor for tensor in source.initializer if tensor.name in used]
    return "image", "features"


def _gelu(g: Graph, node: Any) -> None:
    """GELU in operators of this opset: x · σ(2√(2/π) · (x + 0.044715 x³)), or with erf where it is exact."""
    x, (output,) = node.input[0], node.output
    if not any(attribute.s == b"tanh" for attribute in node.attribute):
        share = g.add("Erf", g.add("Mul", x, g.constant(math.sqrt(0.5))))
        share = g.add("Mul", g.add("Add", share, g.constant(1.0)), g.constant(0.5))
    else:
        factor = 2 * math.sqrt(2 / math.pi)
        inner = g.add("Mul", g.add("Mul", x, x), g.constant(0.044715 * factor))
        share = g.add("Sigmoid", g.add("Mul", x, g.add("Add", inner, g.constant(factor))))
    g.add("Mul", x, share, name=output)


def _output_size(g: Graph, image: str, ratio: Fraction) -> str:
    """Height and width of the output: those of the image times the scale, rounded as Python does."""
    sides = g.slice(g.add("Shape", image), 2, 4, 0)
    floats, integers = g.onnx.TensorProto.FLOAT, g.onnx.TensorProto.INT64
    size = g.add("Mul", g.add("Cast", sides, to=floats), g.constant(float(ratio.numerator)))
    size = g.add("Round", g.add("Div", size, g.constant(float(ratio.denominator))))
    return g.add("Cast", g.add("Max", size, g.constant(1.0)), to=integers)


def _by_place(g: Graph, x: str, channels: int, q: int) -> str:
    """The channels of all cells at each of the q×q places of a period, 1×(q·q·channels)×⌈H/q⌉×⌈W/q⌉.

    A convolution does it, because OpenVINO cannot plan memory for SpaceToDepth of any size. Cells that the
    last period lacks continue the image.
    """
    x = g.add("Pad", x, g.constant([0, 0, 0, 0, 0, 0, q - 1, q - 1]), mode="edge")
    copies = np.tile(np.eye(q * q), (channels, 1)).reshape(-1, 1, q, q)
    x = g.add("Conv", x, g.constant(copies), strides=[q, q], group=channels)
    order = np.arange(channels * q * q).reshape(channels, q * q).T
    return g.add("Gather", x, g.constant(order.ravel()), axis=1)


def _pixels(g: Graph, image: str, model: Model, patches: Patches) -> str:
    """I, repeated for each sample of its cell."""
    q, samples = len(patches.cell), patches.length**2
    bias = np.array(MEAN if model.info.spec.published else (0, 0, 0), np.float32)
    repeated = np.ones((3 * q * q * samples, 1, 1, 1), np.float32)
    biases = np.tile(np.repeat(bias, samples), q * q)
    return g.add("Conv", image, g.constant(repeated), g.constant(biases), group=3 * q * q)


def _waves(g: Graph, features: str, model: Model, patches: Patches, part: slice) -> str:
    """Σₖ aₖ cos φₖ · table[k] + Σₖ aₖ sin φₖ · table[c + k] over a part of the components."""
    head, q = model._engine.head, len(patches.cell)
    components = np.arange(model.info.components)
    chosen = [channel * len(components) + components[part] for channel in range(4)]  # red, green, blue, φ
    weight, bias = (array[..., np.concatenate(chosen)] for array in head.by_channel)
    outputs = g.add("Conv", features, g.constant(weight.T[:, :, None, None]), g.constant(bias))
    count = len(chosen[0])
    amplitude, phase = g.slice(outputs, 0, 3 * count, 1), g.slice(outputs, 3 * count, 4 * count, 1)
    table = _table(model, patches, part)
    sums = []
    for kind, factors in (("Cos", table.imag), ("Sin", table.real)):
        wave = g.add("Mul", amplitude, g.add("Concat", *[g.add(kind, phase)] * 3, axis=1))
        if q > 1:
            wave = g.add("Reshape", wave, g.constant([1, 3 * q * q * count, 0, 0]))
        sums.append(g.add("Conv", wave, g.constant(factors[:, :, None, None]), group=3 * q * q))
    return g.add("Add", *sums)


def _table(model: Model, patches: Patches, part: slice) -> np.ndarray:
    """exp(iw·x) times the filter's gain: the samples of each cell of a period and channel, by components."""
    head = model._engine.head
    w1, w2 = head.components[:, part]
    steps = patches.step, patches.step
    gain = model.psf(steps).transfer(head.components[:, part], np.diag(steps), head.kappa)
    at = patches.shift[:, None] + patches.offsets  # (cells, samples)
    down, along = (np.exp(1j * np.multiply.outer(at, w)) for w in (w1, w2))
    waves = gain * down[:, None, :, None] * along[None, :, None]  # cells, cells, samples, samples, components
    q, m, c = len(patches.cell), patches.length, len(w1)
    return np.repeat(waves.reshape(q * q, 1, m * m, c), 3, axis=1).reshape(-1, c)


def _order(patches: Patches, p: int) -> np.ndarray:
    """Which of the samples is each output pixel of a period, in the order of a pixel shuffle."""
    q, m = len(patches.cell), patches.length
    cell, sample = np.divmod(np.arange(p) if patches.index is None else patches.index, m)
    cells = cell[:, None] * q + cell
    samples = sample[:, None] * m + sample
    return ((cells * 3 + np.arange(3)[:, None, None]) * m * m + samples).ravel()
