"""The ONNX Runtime engine: the default on a CPU, and the only one of a plain installation."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import current_thread, get_ident, main_thread
from typing import Any

import numpy as np

from thera.errors import ModelError
from thera.models.engine import Array, Head

OUTPUTS = ("features", "head_weight", "head_bias", "components", "kappa")
#: The options of the runs in threads other than the main one.
_runs: dict[int, Any] = {}


def interrupt(thread: int) -> None:
    """Ends what the network computes in this thread, within an operator: the call there raises an error."""
    if (options := _runs.get(thread)) is not None:
        options.terminate = True


def runtime() -> Any:
    """ONNX Runtime, with its telemetry off: it would store a device ID and send events to its makers."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when the library is loaded
    import onnxruntime

    return onnxruntime


class OnnxEngine:
    """Runs the ONNX model in one session. `threads`: 0 for all cores."""

    name = "onnx"
    device = "cpu"
    precision = "f32"

    def __init__(self, model: Path | bytes, threads: int = 0) -> None:
        ort = runtime()
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        # Otherwise idle threads keep spinning while the field is rendered.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        options.log_severity_level = 3  # errors only, not warnings about optimisations
        try:
            self._session = ort.InferenceSession(
                model if isinstance(model, bytes) else str(model), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime's exceptions share no narrower base
            reason = str(error).splitlines()[0]
            raise ModelError(
                f"ONNX Runtime cannot read this model ({reason}): download or export it again."
            ) from error
        self.metadata = self._read_metadata()
        # The constants are outputs of the graph: running it on one pixel is the cheapest way to read them.
        pixel = np.zeros((1, 3, 1, 1), np.float32)
        weight, bias, components, kappa = self._session.run(list(OUTPUTS[1:]), {"image": pixel})
        self.head = Head(weight, bias, components, float(kappa))

    def _read_metadata(self) -> dict[str, Any]:
        inputs = [i.name for i in self._session.get_inputs()]
        outputs = {o.name for o in self._session.get_outputs()}
        text = self._session.get_modelmeta().custom_metadata_map.get("thera")
        if text is None or inputs != ["image"] or not outputs.issuperset(OUTPUTS):
            raise ModelError("The ONNX file is not a Thera model: make one with `thera export`.")
        return json.loads(text)

    def asarray(self, image: Array) -> Array:
        if hasattr(image, "detach"):  # a PyTorch tensor, on whatever device
            image = image.detach().cpu().numpy()
        return np.array(image, np.float32, order="C")

    def features(self, image: Array) -> Array:
        x = np.ascontiguousarray(image.transpose(2, 0, 1)[None])
        (y,) = self._run(x)
        return np.ascontiguousarray(y[0].transpose(1, 2, 0))

    def _run(self, x: Array) -> list[Array]:
        """Runs the graph in such a way that Ctrl-C ends it within an operator, not after the whole image.

        Python handles signals in the main thread, between two of its own instructions. So the main thread
        waits while another one computes.
        """
        options = runtime().RunOptions()
        # Free memory after each image: otherwise the arena keeps what the largest image needed.
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

        def compute() -> list[Array]:
            return self._session.run(["features"], {"image": x}, options)

        if current_thread() is not main_thread():
            _runs[get_ident()] = options
            try:
                return compute()
            finally:
                del _runs[get_ident()]
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(compute)
            try:
                return future.result()
            except BaseException:
                options.terminate = True
                raise
