"""The OpenVINO engine: CPUs in bf16 where they have it, Intel's GPUs and NPUs."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Any

import numpy as np

from thera.errors import InvalidInput, ModelError
from thera.models.engine import Array, as_numpy, interruptible
from thera.models.onnx_engine import OnnxEngine
from thera.optional import require

PRECISIONS = ("f32", "bf16", "f16")


@cache
def _core() -> Any:
    """OpenVINO's one core, which lives as long as the process.

    A core gives the thread that makes it memory in which signals are handled. If another thread dropped the
    core, that memory would be gone, and the next Ctrl-C would crash the program.
    """
    return require("openvino", "openvino", "The engine 'openvino'").Core()


def _limit_of_cpu() -> str:
    """The environment variable that keeps OpenVINO's kernels from instructions for 16 bits, if one does."""
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        most = os.environ.get(name, "").upper()
        if most not in ("", "ALL", "DEFAULT") and not re.search("BF16|FP16|AMX|AVX10", most):
            return f"{name}={most}"
    return ""


def devices() -> list[str]:
    """The names by which `OpenVinoEngine` knows what OpenVINO finds."""
    return [name.lower().replace(".", ":") for name in _core().available_devices]


class OpenVinoEngine:
    """Runs the ONNX model. `device`: "cpu", "gpu", "gpu:1" or "npu". `threads`: 0 for all cores.

    `calls`: how many may compute at once, with so many threads each. Further ones wait.
    """

    name = "openvino"

    def __init__(
        self, model: bytes, device: str = "cpu", precision: str = "f32", threads: int = 0, calls: int = 1
    ) -> None:
        if precision not in PRECISIONS:
            raise InvalidInput(
                f"The engine 'openvino' computes in {', '.join(PRECISIONS)}, not in {precision}: choose one."
            )
        self.device, self.precision = device, precision
        core, wanted = _core(), device.upper().replace(":", ".")
        found = core.available_devices
        if wanted not in found and f"{wanted}.0" not in found:
            raise InvalidInput(f"OpenVINO finds no device {device!r}: it has {', '.join(devices())}.")
        if wanted == "CPU" and precision != "f32":
            known = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
            if {"bf16": "BF16", "f16": "FP16"}[precision] not in known:
                raise InvalidInput(f"This CPU does not compute in {precision}: use f32.")
            if limit := _limit_of_cpu():  # which OpenVINO does not heed here: its 16-bit kernels would crash
                raise InvalidInput(f"{limit} keeps the CPU from computing in {precision}: use f32.")
        described = OnnxEngine(model, threads=1)
        self.metadata, self.head = described.metadata, described.head
        settings = {"INFERENCE_PRECISION_HINT": precision}
        if wanted == "CPU" and threads:
            settings |= {"INFERENCE_NUM_THREADS": str(threads * calls), "NUM_STREAMS": str(calls)}
        try:
            network = core.read_model(model)
            self._model = core.compile_model(network, wanted, settings)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ModelError(f"OpenVINO cannot run this model on {device} ({reason}): use 'cpu'.") from error

    def asarray(self, image: Array) -> Array:
        return as_numpy(image)

    def features(self, image: Array) -> Array:
        x = np.ascontiguousarray(image.transpose(2, 0, 1)[None])
        request = self._model.create_infer_request()
        y = interruptible(lambda: request.infer({"image": x})["features"], request.cancel)
        return np.ascontiguousarray(y[0].transpose(1, 2, 0))
