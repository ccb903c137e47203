"""The engines that can run a model file, and how each is made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from thera.errors import InvalidInput, ModelError
from thera.models.choosing import Candidate, installed
from thera.models.engine import FileEngine
from thera.models.ncnn_graph import can_build
from thera.models.onnx_templates import complete, has_graph
from thera.models.weights import WEIGHTS, is_safetensors, read_header
from thera.networks.spec import Spec

ENGINES = ("onnx", "ncnn", "openvino", "torch")
#: Devices that only one engine has. CUDA has two: PyTorch, and a build of ONNX Runtime.
OWNERS = {"mps": "torch", "coreml": "onnx", "directml": "onnx", "openvino": "onnx"}
OWNERS |= {"vulkan": "ncnn", "gpu": "openvino", "npu": "openvino"}
NUMBERED = ("cuda", "mps", "vulkan", "gpu", "npu")  # there may be several: "cuda:1" is the second


def check_device(device: str) -> str:
    """A device as the engines know it: in small letters."""
    kinds = dict.fromkeys(("auto", "cpu", "cuda", *OWNERS))
    kind, colon, number = device.lower().partition(":")
    if kind not in kinds or (colon and not (kind in NUMBERED and re.fullmatch("[0-9]{1,4}", number))):
        raise InvalidInput(
            f"There is no device {device!r}: use {', '.join(kinds)}; the second of several is cuda:1, say."
        )
    return device.lower()


class Files(NamedTuple):
    """A model as an ONNX file or as a file of weights (safetensors or published)."""

    onnx: Path | None
    weights: Path | None

    @property
    def for_onnx(self) -> bool:
        """True if it is an ONNX model, or can be made one without a library."""
        return self.onnx is not None or (self.weights is not None and has_graph(self.weights))

    def as_onnx(self) -> bytes | None:
        """The ONNX model; None if PyTorch would have to make it."""
        if self.onnx is not None:
            return self.onnx.read_bytes()
        return complete(self.weights) if self.weights is not None and has_graph(self.weights) else None

    @property
    def for_ncnn(self) -> bool:
        path = self.weights
        return path is not None and is_safetensors(path) and can_build(Spec.from_dict(read_header(path)))

    def candidates(self, device: str, precision: str) -> list[Candidate]:
        """What could run the model, the reference first. It is found without importing an engine."""
        kind = device.partition(":")[0]
        if kind in OWNERS:
            return [Candidate(OWNERS[kind], device)]
        if kind not in ("auto", "cpu"):
            no_torch = self.weights is None or not installed("torch")
            without = kind == "cuda" and no_torch and self.for_onnx
            return [Candidate("onnx" if without else "torch", device)]
        shipped = self.weights is not None and self.weights.parent == WEIGHTS
        if self.onnx is None and not shipped and installed("torch"):
            return [Candidate("torch", device)]
        found = []
        if self.for_onnx and precision == "f32":
            found.append(Candidate("onnx", "cpu"))
        if self.for_ncnn and installed("ncnn") and precision in ("f32", "bf16"):
            found.append(Candidate("ncnn", "cpu"))
        if self.for_onnx and installed("openvino") and precision == "bf16":
            found.append(Candidate("openvino", "cpu"))
        return found or [Candidate("torch", device)]

    def engine(self, engine: str, device: str, precision: str, threads: int, calls: int = 1) -> FileEngine:
        """One engine, other than PyTorch, ready to run on a device.

        `calls`: how many may compute at once, with so many `threads` each.
        """
        place = "cpu" if device == "auto" else device
        if engine == "ncnn":
            if self.weights is None:
                raise ModelError(f"The engine 'ncnn' reads safetensors files, but {self.onnx} is ONNX.")
            from thera.models.ncnn_engine import NcnnEngine

            return NcnnEngine(self.weights, place, precision, threads)
        model = self.as_onnx()
        if model is None:
            raise ModelError(
                f"{self.weights} is no ONNX file: make one with `thera export`, or use engine 'torch'."
            )
        if engine == "openvino":
            from thera.models.openvino_engine import OpenVinoEngine

            return OpenVinoEngine(model, place, precision, threads, calls)
        if precision != "f32":
            raise InvalidInput(f"The engine 'onnx' computes in f32: use another engine for {precision}.")
        from thera.models.onnx_engine import OnnxEngine

        # All calls share one pool, and each brings a thread of its own.
        return OnnxEngine(model, calls * (threads - 1) + 1, place)
