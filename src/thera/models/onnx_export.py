"""`export` writes a network as ONNX. `convert` turns one kind of model file into another."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thera.errors import InvalidInput, ModelError
from thera.files import replacing
from thera.models.engines import Files
from thera.models.loading import load_network, locate
from thera.models.onnx_engine import OUTPUTS
from thera.models.onnx_graph import store_half
from thera.models.onnx_parts import divide
from thera.models.onnx_upscaler import check_scale, upscaler_bytes
from thera.models.weights import check_storage, describe, save_safetensors
from thera.optional import require

if TYPE_CHECKING:
    from thera.networks import Network, Thera

OPSET = 20  # the first one that has GELU
EXAMPLE = (20, 28)  # not square and no multiple of the window, so that no size is taken for a constant


def export(
    network: Network | str | Path,
    path: str | Path,
    storage: str = "f16",
    metadata: dict[str, Any] | None = None,
    scale: Fraction | float | str | None = None,
    tile: int | None = None,
) -> None:
    """Write a network, or the network of a model file, as ONNX for images of any height and width.

    `storage` "f16" halves the file: weights are stored as float16, and still computed with in float32.
    `scale`: write one graph from an image to the image at this scale, for other programs. PyTorch is then
    not needed for shipped models and ONNX files. `tile`: for square images of this side alone.

    >>> export("edsr-air", "edsr-air.onnx")  # doctest: +SKIP
    """
    check_storage(storage)
    if scale is None:
        data = onnx_bytes(network, storage, metadata)
    else:
        check_scale(scale)  # before the work
        stored = Files(*locate(network)).as_onnx() if isinstance(network, str | Path) else None
        encoder = onnx_bytes(network, "f32", metadata) if stored is None else stored
        data = upscaler_bytes(encoder, scale, storage, tile)
    with replacing(Path(path), ModelError) as file:
        file.write(data)


def convert(source: str | Path, path: str | Path, storage: str = "f32") -> None:
    """Write a shipped model, a safetensors file or a published checkpoint as `path`, .safetensors or .onnx.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     convert("edsr-air", f"{folder}/mine.safetensors", storage="f16")
    """
    suffix = Path(path).suffix
    if suffix not in (".safetensors", ".onnx"):
        raise InvalidInput(f"The output {Path(path).name!r} must end in .safetensors or .onnx.")
    network, metadata = load_network(source)
    write = save_safetensors if suffix == ".safetensors" else export
    write(network, path, storage, metadata)


def onnx_bytes(network: Network | str | Path, storage: str = "f16", metadata: Any = None) -> bytes:
    """What `export` writes."""
    check_storage(storage)
    torch = require("torch", "export", "ONNX export")
    onnx = require("onnx", "export", "ONNX export")
    require("onnxscript", "export", "ONNX export")
    from thera.networks import Thera

    if isinstance(network, str | Path):
        network, stored = load_network(network)
        metadata = {**stored, **(metadata or {})}
    if not (isinstance(network, Thera) and network.spec.renderable):
        spec = network.spec
        what = (
            f"is seen through the {spec.filter} filter"
            if spec.filter != "gaussian"
            else "makes no heat field"
        )
        raise ModelError(
            f"{spec.name} {what}, and an ONNX file holds fields of the Gaussian: export another."
        )

    sizes = {2: torch.export.Dim("height", min=1), 3: torch.export.Dim("width", min=1)}
    # The exporter warns about its own code, and says that torchvision, which nothing here needs, is missing.
    with warnings.catch_warnings(), _errors_only(logging.getLogger("torch.onnx")):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            network.eval(),
            (torch.rand(1, 3, *EXAMPLE),),
            input_names=["image"],
            output_names=["features"],
            dynamic_shapes={"image": sizes},
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    model = program.model_proto
    strip(model)
    divide(model.graph)
    add_constants(model.graph, network)
    if storage == "f16":
        store_half(model.graph)
    onnx.helper.set_model_props(model, {"thera": json.dumps(describe(network, metadata))})
    onnx.checker.check_model(model)
    return model.SerializeToString()


@contextmanager
def _errors_only(logger: logging.Logger) -> Iterator[None]:
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def strip(model: Any) -> None:
    """Remove the exporter's notes: they name the source file and line of every node."""
    graph = model.graph
    del graph.value_info[:]
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        part.doc_string = ""
        del part.metadata_props[:]


def add_constants(graph: Any, network: Thera) -> None:
    """Add the last layer, the frequency bank and κ to the graph's outputs: they turn features into fields."""
    from onnx import TensorProto, helper, numpy_helper

    constants = *network.folded_head(), network.components, network.kappa
    for name, tensor in zip(OUTPUTS[1:], constants, strict=True):
        value = tensor.detach().numpy()
        graph.initializer.append(numpy_helper.from_array(value, f"{name}.value"))
        graph.node.append(helper.make_node("Identity", [f"{name}.value"], [name]))
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape))
