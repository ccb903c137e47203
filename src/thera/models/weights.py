"""Weights in safetensors files, whose header says what network they are."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thera.errors import InvalidInput, ModelError
from thera.files import replacing
from thera.networks.spec import Spec
from thera.optional import require

if TYPE_CHECKING:
    from torch import Tensor

    from thera.networks import Thera

STORAGE = ("f16", "f32")


def is_half(name: str, shape: Sequence[int]) -> bool:
    """Whether an array is stored as float16 in a small file: the weights of convolutions and linear layers.

    The bank, κ, biases and norms are few and felt directly, so they stay float32. So does the last layer once
    it is folded: halved, the smallest numbers of float16 would lose their last bit.
    """
    return len(shape) >= 2 and math.prod(shape) > 100 and not name.startswith(("components", "head_weight"))


def check_storage(storage: str) -> None:
    if storage not in STORAGE:
        raise InvalidInput(f"unknown storage {storage!r}: expected one of {', '.join(STORAGE)}")


def describe(network: Thera, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a file says of itself: the network, its size, and whatever else is known of it."""
    extra = metadata or {}
    parameters = sum(p.numel() for p in network.parameters())
    name = extra.get("name", network.spec.name)
    return {**extra, **network.spec.to_dict(), "name": name, "parameters": parameters}


def save_safetensors(
    network: Thera, path: str | Path, storage: str = "f32", metadata: dict[str, Any] | None = None
) -> None:
    """Write a network and what is known of it.

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


def load_safetensors(path: str | Path) -> tuple[Thera, dict[str, Any]]:
    """The network of a file, in float32, and what the file says of itself."""
    library = require("safetensors.torch", "torch", "a safetensors file")
    metadata = read_header(path)
    try:
        state = library.load_file(str(path))
    except require("safetensors", "torch", "a safetensors file").SafetensorError as error:
        raise ModelError(f"{path} is damaged ({error}): fetch it again") from error
    return build(Spec.from_dict(metadata), state, str(path)), metadata


def read_header(path: str | Path) -> dict[str, Any]:
    """What a safetensors file says of itself, read from its header alone and without any library."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        return json.loads(header["__metadata__"]["thera"])
    except (KeyError, TypeError):
        raise ModelError(f"{path} is a safetensors file, but its header names no Thera model") from None
    except ValueError as error:
        raise ModelError(f"{path} is damaged ({error}): fetch it again") from error


def build(spec: Spec, state: dict[str, Tensor], source: str) -> Thera:
    """A network with the given parameters, all of them, in the right shapes."""
    from thera.networks import Thera

    network = Thera(spec).eval()
    expected = network.state_dict()
    for name, tensor in expected.items():
        if name not in state:
            raise ModelError(f"{source} lacks the parameter {name} of {spec.name}: fetch it again")
        if state[name].shape != tensor.shape:
            given, wanted = tuple(state[name].shape), tuple(tensor.shape)
            raise ModelError(f"{source} has {name} of shape {given} where {spec.name} needs {wanted}")
    if unknown := sorted(state.keys() - expected.keys()):
        raise ModelError(f"{source} has parameters that {spec.name} does not know: {', '.join(unknown[:3])}")
    network.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    return network
