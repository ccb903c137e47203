"""`load` makes a model from a name, a file or a Hugging Face repository. A file's content says what it is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thera.errors import InvalidInput, ModelError
from thera.files import reason_of
from thera.models.engine import check_precision
from thera.models.hub import download
from thera.models.model import Model
from thera.models.onnx_engine import OnnxEngine
from thera.models.published import load_published
from thera.models.weights import describe, load_safetensors, read_header
from thera.networks.spec import Spec
from thera.optional import require

if TYPE_CHECKING:
    from thera.networks import Network

ENGINES = ("auto", "onnx", "torch")


@dataclass(frozen=True)
class Shipped:
    """A model that comes with Thera, as described by its files."""

    name: str
    spec: Spec
    parameters: int
    metadata: dict[str, Any]
    onnx: Path
    safetensors: Path


def shipped() -> list[Shipped]:
    """The models that come with Thera, smallest first. Only headers are read.

    >>> shipped()[0].name
    'edsr-air'
    """
    folder = Path(str(files("thera"))) / "weights"
    found = []
    for path in folder.glob("*.safetensors"):
        metadata = read_header(path)
        spec, parameters = Spec.from_dict(metadata), int(metadata["parameters"])
        found.append(Shipped(path.stem, spec, parameters, metadata, path.with_suffix(".onnx"), path))
    return sorted(found, key=lambda model: (model.parameters, model.name))


def load(
    name_or_path: str | Path,
    engine: str = "auto",
    device: str = "auto",
    precision: str = "f32",
    threads: int = 0,
    strength: float = 1.0,
) -> Model:
    """A model, by the name of a shipped one, a file, or `hf:owner/repository`.

    `engine`: "onnx" (ONNX Runtime, on the CPU) or "torch". "auto" is ONNX Runtime for shipped models and ONNX
    files, and PyTorch for other files, another `device` than the CPU and another `precision` than "f32".
    `device`: "cpu", "cuda", "cuda:N" or "mps". "auto" is the CPU with ONNX Runtime. With PyTorch it is CUDA
    if available.
    `precision`: "f32", or with PyTorch "tf32", "bf16" or "f16".
    `threads`: how many ONNX Runtime may use; 0 for all cores.
    `strength`: of a model that restores pictures, from 0 (the clean model of its kind) to 1.

    >>> load("edsr-air")
    Model(edsr-air, 1,228,801 parameters, onnx on cpu, f32)
    """
    if name_or_path == "auto":
        raise InvalidInput("'auto' chooses a model by a picture's file: name one, or use `thera upscale`.")
    if engine not in ENGINES:
        raise InvalidInput(f"There is no engine {engine!r}: choose one of {', '.join(ENGINES)}.")
    check_precision(precision)
    if strength != 1:
        return _weakened(name_or_path, strength, (engine, device, precision, threads))
    onnx, weights = locate(name_or_path)
    needs_torch = device not in ("auto", "cpu") or precision != "f32"
    if engine == "onnx" or (engine == "auto" and onnx is not None and not needs_torch):
        if needs_torch:
            raise InvalidInput(
                f"The engine 'onnx' computes in f32 on the CPU: use engine 'torch' for device {device!r} at "
                f"precision {precision!r}."
            )
        if onnx is None:
            raise ModelError(
                f"{weights} is no ONNX file: make one with `thera export`, or use engine 'torch'."
            )
        session = OnnxEngine(onnx, threads)
        return Model(session, session.metadata)
    if weights is None:
        raise ModelError(f"{onnx} only runs in f32 on the CPU: give the engine 'torch' its safetensors file.")
    return make_model(*load_network(weights), device, precision)


def make_model(
    network: Network, metadata: dict[str, Any], device: str = "auto", precision: str = "f32"
) -> Model:
    """A network as a model: one of heat fields, or one that decodes point by point."""
    from thera.models.points import PointModel
    from thera.models.torch_engine import TorchEngine
    from thera.networks import Thera

    if isinstance(network, Thera) and network.spec.renderable:
        return Model(TorchEngine(network, device, precision), metadata)
    return PointModel(network, metadata, device, precision)


def _weakened(name_or_path: str | Path, strength: float, options: tuple[str, str, str, int]) -> Model:
    """A mixture of a model that restores and of the shipped clean model of its kind."""
    from thera.models.mixing import check_strength, mixed

    check_strength(strength)
    model = load(name_or_path, *options)
    if not model.info.restores:
        raise InvalidInput(f"{model.name} restores nothing that --strength could weaken: leave it out.")
    # A file of weights runs on PyTorch where the shipped model of the same kind would run on ONNX Runtime.
    clean = load(model.info.spec.name, model.info.engine, model.info.device, *options[2:])
    return mixed(clean, model, strength) if strength else clean


def load_network(name_or_path: str | Path) -> tuple[Network, dict[str, Any]]:
    """The network and metadata of a shipped model, a safetensors file or a published checkpoint."""
    onnx, path = locate(name_or_path)
    if path is None:
        raise ModelError(f"{onnx} is an ONNX file: give a safetensors file or a published checkpoint.")
    require("torch", "torch", f"The network in {path.name}")
    if kind_of(path) == "safetensors":
        return load_safetensors(path)
    network = load_published(path)
    return network, describe(network, {"source": "published"})


def locate(name_or_path: str | Path) -> tuple[Path | None, Path | None]:
    """The ONNX file and the file of weights (safetensors or published) of a model, None for a missing one."""
    given = str(name_or_path)
    if given.startswith("hf:"):
        path = download(given.removeprefix("hf:"))
    else:
        for model in shipped():
            if model.name == given:
                return model.onnx, model.safetensors
        path = Path(name_or_path)
        if not os.path.isfile(path):  # also False for a name that is too long
            names = ", ".join(model.name for model in shipped()) or "none"
            raise ModelError(f"There is no file or model {given!r}: the shipped models are {names}.")
    return (path, None) if kind_of(path) == "onnx" else (None, path)


def kind_of(path: Path) -> str:
    """ "onnx", "safetensors" or "pickle", by the first bytes."""
    try:
        with open(path, "rb") as file:
            start = file.read(9)
    except OSError as error:
        raise ModelError(f"{path} could not be read: {reason_of(error)}.") from error
    header = int.from_bytes(start[:8], "little")
    if start[8:] == b"{" and header < path.stat().st_size:
        return "safetensors"
    if (start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05") or start[:4] == b"PK\x03\x04":
        return "pickle"
    if start[:1] == b"\x08":  # a protocol buffer that begins with the version of ONNX
        return "onnx"
    raise ModelError(f"{path} is no model: give an ONNX or safetensors file or a published checkpoint.")
