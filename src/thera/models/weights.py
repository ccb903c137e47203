"""Networks in safetensors files, whose header describes the network."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from thera.errors import InvalidInput, ModelError
from thera.files import replacing
from thera.networks.spec import Spec
from thera.optional import require

if TYPE_CHECKING:
    from torch import Tensor

    from thera.networks import Network

WEIGHTS = Path(str(files("thera"))) / "weights"  # of the models that come with Thera
STORAGE = ("f16", "f32")
DTYPES = {"F16": "<f2", "F32": "<f4"}


def is_half(name: str, shape: Sequence[int]) -> bool:
    """True for arrays that "f16" stores as float16: the weights of convolutions and linear layers.

    The bank, κ, biases and norms stay float32, because they are small and errors in them show directly. So
    does the last layer once its factor of ½ is folded in: halved, its smallest values would lose a bit.
    """
    return len(shape) >= 2 and math.prod(shape) > 100 and not name.startswith(("components", "head_weight"))


def check_storage(storage: str) -> None:
    if storage not in STORAGE:
        raise InvalidInput(f"There is no storage {storage!r}: choose one of {', '.join(STORAGE)}.")


def describe(network: Network, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    """The description stored in a file: the network, its number of parameters, and `metadata`."""
    stored = {"name": network.spec.name, **(metadata or {})}
    parameters = sum(p.numel() for p in network.parameters())
    return {**stored, **network.spec.to_dict(), "name": stored["name"], "parameters": parameters}


def save_safetensors(
    network: Network, path: str | Path, storage: str = "f32", metadata: dict[str, Any] | None = None
) -> None:
    """Write a network and its description.

    >>> from tempfile import TemporaryDirectory
    >>> from thera.networks import Spec, Thera
    >>> with TemporaryDirectory() as folder:
    ...     save_safetensors(Thera(Spec("edsr", "air")), f"{folder}/mine.safetensors", storage="f16")
    ...     read_header(f"{folder}/mine.safetensors")["parameters"]
    1228801
    """
    check_storage(storage)
    tensors = {}
    for name, tensor in network.state_dict().items():
        half = storage == "f16" and is_half(name, tensor.shape)
        tensors[name] = (tensor.half() if half else tensor.float()).cpu().contiguous()
    write_tensors(path, tensors, {"thera": json.dumps(describe(network, metadata))})


def write_tensors(path: str | Path, tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """Write a safetensors file. A crash leaves the previous file whole."""
    library = require("safetensors.torch", "torch", "A safetensors file")
    # Not `save_file`: nobody but their owner could read its files.
    with replacing(Path(path), ModelError) as file:
        file.write(library.save(tensors, header))


def load_safetensors(path: str | Path) -> tuple[Network, dict[str, Any]]:
    """The network in a file, as float32, and its description."""
    library = require("safetensors.torch", "torch", "A safetensors file")
    metadata = read_header(path)
    try:
        state = library.load_file(str(path))
    except require("safetensors", "torch", "A safetensors file").SafetensorError as error:
        raise ModelError(f"{path} is damaged ({error}): download it again.") from error
    return build(Spec.from_dict(metadata), state, str(path)), metadata


def read_header(path: str | Path) -> dict[str, Any]:
    """The description in a safetensors file. Only the header is read, and no library is needed."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        return json.loads(header["__metadata__"]["thera"])
    except (KeyError, TypeError):
        raise ModelError(f"{path} names no Thera model in its header: give another file.") from None
    except ValueError as error:
        raise ModelError(f"{path} is damaged ({error}): download it again.") from error


def is_safetensors(path: Path) -> bool:
    """True by the file's first bytes: the length of a header, then a JSON object."""
    with open(path, "rb") as file:
        start = file.read(9)
    return start[8:] == b"{" and int.from_bytes(start[:8], "little") < path.stat().st_size


def read_tensors(path: str | Path) -> dict[str, np.ndarray]:
    """The parameters in a safetensors file as float32 arrays. No library is needed."""
    return {name: array.astype(np.float32) for name, array in read_stored(path).items()}


def read_stored(path: str | Path) -> dict[str, np.ndarray]:
    """The parameters in a safetensors file, as they are stored. No library is needed."""
    try:
        data = Path(path).read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        header.pop("__metadata__", None)
        tensors = {}
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            stored = np.frombuffer(data[start + first : start + last], DTYPES[entry["dtype"]])
            tensors[name] = stored.reshape(entry["shape"])
        return tensors
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path} is damaged ({error}): download it again.") from error


def build(spec: Spec, state: dict[str, Tensor], source: str) -> Network:
    """A network with the given parameters, which must be complete and of the right shapes."""
    from thera.networks import make_network

    network = make_network(spec).eval()
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    for name, shape in expected.items():
        if name not in state:
            raise ModelError(f"{source} lacks the parameter {name} of {spec.name}: download it again.")
        if (given := tuple(state[name].shape)) != shape:
            raise ModelError(f"{source} has {name} of shape {given}: {spec.name} needs {shape}.")
    if unknown := sorted(state.keys() - expected.keys()):
        raise ModelError(f"{source} has parameters that {spec.name} does not know: {', '.join(unknown[:3])}.")
    broken = [name for name, tensor in state.items() if not tensor.isfinite().all()]
    if broken:
        raise ModelError(f"{source} has numbers in {broken[0]} that are not finite: its training diverged.")
    network.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    return network
