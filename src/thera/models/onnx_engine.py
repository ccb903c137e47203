"""The ONNX Runtime engine: it runs every model on a CPU, and is the reference for the other engines."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from thera.errors import InvalidInput, ModelError
from thera.models.engine import Array, Head, as_numpy, interruptible

#: Device → its execution provider, and the package of ONNX Runtime that has it.
PROVIDERS = {
    "cpu": ("CPUExecutionProvider", "onnxruntime"),
    "cuda": ("CUDAExecutionProvider", "onnxruntime-gpu, or thera[torch]"),
    "coreml": ("CoreMLExecutionProvider", "onnxruntime on macOS"),
    "directml": ("DmlExecutionProvider", "onnxruntime-directml on Windows"),
    "openvino": ("OpenVINOExecutionProvider", "onnxruntime-openvino, or use the engine 'openvino'"),
}
OUTPUTS = ("features", "head_weight", "head_bias", "components", "kappa")


def runtime() -> Any:
    """ONNX Runtime, with its telemetry off: it would store a device ID and send events to its makers."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when the library is loaded
    import onnxruntime

    return onnxruntime


def provider_of(device: str) -> str:
    """The execution provider of a device, which this build of ONNX Runtime must have."""
    if device not in PROVIDERS:
        names = ", ".join(PROVIDERS)
        raise InvalidInput(f"The engine 'onnx' has no device {device!r}: use {names}.")
    provider, package = PROVIDERS[device]
    if provider not in runtime().get_available_providers():
        raise InvalidInput(f"This build of ONNX Runtime has no {device}: install {package}, or use 'cpu'.")
    return provider


class OnnxEngine:
    """Runs the ONNX model in one session. `threads`: 0 for all cores."""

    name = "onnx"
    precision = "f32"

    def __init__(self, model: bytes, threads: int = 0, device: str = "cpu") -> None:
        ort = runtime()
        self.device, provider = device, provider_of(device)
        options = ort.SessionOptions()
        options.enable_mem_pattern = device != "directml"  # which has none
        # The arena reuses freed memory anyway. To plan it takes time that grows with the square of the nodes.
        options.enable_mem_reuse = False
        options.intra_op_num_threads = threads
        # Otherwise idle threads keep spinning while the field is rendered.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        options.log_severity_level = 3  # errors only, not warnings about optimisations
        try:
            self._session = ort.InferenceSession(
                model,
                options,
                providers=list(dict.fromkeys([provider, "CPUExecutionProvider"])),
            )
        except Exception as error:  # ONNX Runtime's exceptions share no narrower base
            reason = str(error).splitlines()[0]
            raise ModelError(
                f"ONNX Runtime cannot read this model ({reason}): download or export it again."
            ) from error
        if self._session.get_providers()[0] != provider:
            raise InvalidInput(f"ONNX Runtime cannot use {device} here: check its driver, or use 'cpu'.")
        self.metadata = self._read_metadata()
        # The constants are outputs of the graph: running it on one pixel is the cheapest way to read them.
        pixel = np.zeros((1, 3, 1, 1), np.float32)
        weight, bias, components, kappa = self._session.run(list(OUTPUTS[1:]), {"image": pixel})
        self.head = Head(weight, bias, components, float(kappa))

    def _read_metadata(self) -> dict[str, Any]:
        inputs = [i.name for i in self._session.get_inputs()]
        outputs = {o.name for o in self._session.get_outputs()}
        text = self._session.get_modelmeta().custom_metadata_map.get("thera")
        if text is not None and "scale" in (known := json.loads(text)):
            raise ModelError(
                f"This ONNX file enlarges by {known['scale']} alone, for other programs: give Thera"
                f" {known['name']} itself, or a file of `thera export` without --scale."
            )
        if text is None or inputs != ["image"] or not outputs.issuperset(OUTPUTS):
            raise ModelError("The ONNX file is not a Thera model: make one with `thera export`.")
        return json.loads(text)

    def asarray(self, image: Array) -> Array:
        return as_numpy(image)

    def features(self, image: Array) -> Array:
        x = np.ascontiguousarray(image.transpose(2, 0, 1)[None])
        options = runtime().RunOptions()
        # Free memory after each image: otherwise the arena keeps what the largest image needed.
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

        (y,) = interruptible(
            lambda: self._session.run(["features"], {"image": x}, options),
            lambda: setattr(options, "terminate", True),  # ends it within an operator
        )
        return np.ascontiguousarray(y[0].transpose(1, 2, 0))
