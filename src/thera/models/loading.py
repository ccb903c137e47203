"""`load` makes a model from a name, a file or a Hugging Face repository. A file's content says what it is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thera.errors import InvalidInput, ModelError
from thera.files import reason_of
from thera.models.choosing import Candidate, choose
from thera.models.engine import check_precision, default_threads
from thera.models.engines import ENGINES, Files, check_device
from thera.models.hub import download
from thera.models.model import Model, Shared
from thera.models.published import load_published
from thera.models.weights import WEIGHTS, describe, is_safetensors, load_safetensors, read_header
from thera.networks.spec import Spec
from thera.optional import require

if TYPE_CHECKING:
    from thera.networks import Network


@dataclass(frozen=True)
class Shipped:
    """A model that comes with Thera, as described by its file."""

    name: str
    spec: Spec
    parameters: int
    metadata: dict[str, Any]
    safetensors: Path


def shipped() -> list[Shipped]:
    """The models that come with Thera, smallest first. Only headers are read.

    >>> shipped()[0].name
    'edsr-air'
    """
    found = []
    for path in WEIGHTS.glob("*.safetensors"):
        metadata = read_header(path)
        spec, parameters = Spec.from_dict(metadata), int(metadata["parameters"])
        found.append(Shipped(path.stem, spec, parameters, metadata, path))
    return sorted(found, key=lambda model: (model.parameters, model.name))


def load(
    name_or_path: str | Path,
    engine: str = "auto",
    device: str = "auto",
    precision: str = "auto",
    threads: int = 0,
    strength: float = 1.0,
) -> Model:
    """A model, by the name of a shipped one, a file, or `hf:owner/repository`.

    `engine`: "onnx", "ncnn", "openvino" or "torch". "auto" takes the one that has the `device`; on the CPU
    the fastest that is installed, as measured once on this machine, for shipped models and ONNX files, and
    PyTorch for other files. `Model.info.why` says why.
    `device`: "cpu"; "cuda", "cuda:N" or "mps" (PyTorch); "vulkan" (ncnn); "gpu" or "npu" (OpenVINO);
    "coreml", "directml", "cuda" or "openvino" (ONNX Runtime). "auto" is the CPU; with PyTorch it is CUDA if
    available.
    `precision`: "f32"; "bf16" with ncnn, OpenVINO and PyTorch; "tf32" or "f16" with PyTorch. "auto" is f16 on
    CUDA GPUs, where it costs less than 0.001 dB, and f32 everywhere else.
    `threads`: how many a CPU engine may use; 0 for all cores.
    `strength`: of a model that restores pictures, from 0 (the clean model of its kind) to 1.

    >>> load("edsr-air", engine="onnx")
    Model(edsr-air, 1,228,801 parameters, onnx on cpu, f32)
    """
    if name_or_path == "auto":
        raise InvalidInput("'auto' chooses a model by a picture's file: name one, or use `thera upscale`.")
    if engine not in ("auto", *ENGINES):
        raise InvalidInput(f"There is no engine {engine!r}: choose one of auto, {', '.join(ENGINES)}.")
    check_precision(precision)
    device = check_device(device)
    if threads < 0:
        raise InvalidInput(f"{threads} threads were asked for: give 1 or more, or 0 for all cores.")
    if strength != 1:
        return _weakened(name_or_path, strength, (engine, device, precision, threads))
    files = Files(*locate(name_or_path))
    usual = "f32" if precision == "auto" else precision  # of all engines but PyTorch, which knows its GPU
    candidates = [Candidate(engine, device)] if engine != "auto" else files.candidates(device, usual)
    if candidates[0].engine == "torch":
        if files.weights is None:
            raise ModelError(f"{files.onnx} is ONNX: give the engine 'torch' the model's safetensors file.")
        return make_model(*load_network(files.weights), device, precision)
    makers = {c: partial(files.engine, *c, usual, threads) for c in candidates}
    made, why = choose(str(name_or_path), usual, threads, makers)
    shared = None
    if made.device == "cpu":
        make = partial(files.engine, made.name, "cpu", usual)
        shared = Shared(threads or default_threads(), make)
    return Model(made, made.metadata, why, shared)


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
    """A model's ONNX file, or its file of weights (safetensors or published). The other one is None."""
    given = str(name_or_path)
    if given.startswith("hf:"):
        path = download(given.removeprefix("hf:"))
    else:
        for model in shipped():
            if model.name == given:
                return None, model.safetensors
        path = Path(name_or_path)
        if not os.path.isfile(path):  # also False for a name that is too long
            names = ", ".join(model.name for model in shipped()) or "none"
            raise ModelError(f"There is no file or model {given!r}: the shipped models are {names}.")
    return (path, None) if kind_of(path) == "onnx" else (None, path)


def kind_of(path: Path) -> str:
    """ "onnx", "safetensors" or "pickle", by the first bytes."""
    try:
        with open(path, "rb") as file:
            start = file.read(4)
        if is_safetensors(path):
            return "safetensors"
    except OSError as error:
        raise ModelError(f"{path} could not be read: {reason_of(error)}.") from error
    if (start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05") or start == b"PK\x03\x04":
        return "pickle"
    if start[:1] == b"\x08":  # a protocol buffer that begins with the version of ONNX
        return "onnx"
    raise ModelError(f"{path} is no model: give an ONNX or safetensors file or a published checkpoint.")
