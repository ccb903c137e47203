"""The ncnn engine: Winograd convolutions take half the time of direct ones on a CPU. Also Vulkan on GPUs."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from thera.errors import InvalidInput, MissingDependency, ModelError
from thera.models.engine import Array, Head, as_numpy, default_threads, interruptible
from thera.models.ncnn_graph import Graph, build, can_build, pro
from thera.models.weights import read_header, read_tensors
from thera.networks.spec import MEAN, STD, Spec


class NcnnEngine:
    """Runs EDSR-Air, EDSR-Plus or, on a CPU, EDSR-Pro from a safetensors file.

    `device`: "cpu", or "vulkan" and "vulkan:N" for a GPU. `precision`: "f32", "bf16" (CPUs), "f16" (GPUs).
    `threads`: 0 for all cores.
    """

    name = "ncnn"

    def __init__(self, weights: Path, device: str = "cpu", precision: str = "f32", threads: int = 0) -> None:
        try:
            import ncnn
        except ImportError as error:
            raise MissingDependency("The engine 'ncnn' needs ncnn: pip install ncnn.") from error
        from thera.models.ncnn_bands import Bands  # which needs ncnn
        from thera.models.ncnn_windows import Windows

        self._ncnn = ncnn
        self.metadata = read_header(weights)
        spec = Spec.from_dict(self.metadata)
        if not can_build(spec):
            raise ModelError(
                f"The engine 'ncnn' cannot run this {spec.name}: it runs EDSR with Air, Plus or Pro."
            )
        if spec.variant == "pro" and device != "cpu":
            raise ModelError(f"The engine 'ncnn' runs {spec.name} on the CPU alone: use device 'cpu'.")
        self.device, self.precision = device, precision
        threads = threads or default_threads()
        tensors = read_tensors(weights)
        graph = build(spec, tensors, str(weights), bands=device == "cpu")
        tail = None
        if spec.variant == "pro":
            tokens = Graph(tensors, str(weights), bands=True)
            steps = pro(graph, tokens)
            tail = Windows(self._open(tokens, threads, packing=False), steps)
        self._stages = graph.stages
        self._net = self._open(graph, threads)
        self._bands = Bands(self._net, self._stages, threads, tail) if device == "cpu" else None
        self.head = head(tensors)

    def _open(self, graph: Graph, threads: int, packing: bool = True) -> Any:
        net = self._ncnn.Net()
        self._set_options(net, threads)
        net.opt.use_packing_layout = packing
        if net.load_param_mem(graph.text) != 0:
            raise ModelError(f"ncnn {self._ncnn.__version__} cannot read this network: update ncnn.")
        net.load_model_mem(graph.weights)
        return net

    def _set_options(self, net: Any, threads: int) -> None:
        options = net.opt
        vulkan = re.fullmatch(r"vulkan(?::(\d+))?", self.device)
        if not vulkan and self.device != "cpu":
            raise InvalidInput(f"The engine 'ncnn' has no device {self.device!r}: use cpu or vulkan:N.")
        allowed = ("f32", "f16") if vulkan else ("f32", "bf16")
        if self.precision not in allowed:
            precisions = " or ".join(allowed)
            raise InvalidInput(f"On {self.device} ncnn computes in {precisions}, not in {self.precision}.")
        half = self.precision == "f16"
        options.use_fp16_packed = options.use_fp16_storage = options.use_fp16_arithmetic = half
        options.use_bf16_storage = self.precision == "bf16"
        # On CPUs, each thread computes bands of its own.
        options.num_threads = threads if vulkan else 1
        options.use_vulkan_compute = bool(vulkan)
        if vulkan:
            index, count = int(vulkan[1] or 0), vulkan_count()
            if index >= count:
                raise InvalidInput(
                    f"ncnn finds {count} Vulkan devices, so no {self.device!r}: use 'cpu', or install"
                    " Vulkan's loader (libvulkan1 in Debian) and the driver of your GPU."
                )
            net.set_vulkan_device(index)

    def asarray(self, image: Array) -> Array:
        return as_numpy(image)

    def features(self, image: Array) -> Array:
        cancelled = Event()
        return interruptible(lambda: self._compute(image, cancelled), cancelled.set)

    def _compute(self, image: Array, cancelled: Event) -> Array:
        x = np.ascontiguousarray(((image - np.array(MEAN, np.float32)) / np.float32(STD)).transpose(2, 0, 1))
        if self._bands is not None:
            return self._bands.features(x, cancelled)
        extractor = self._net.create_extractor()
        # ncnn's own pools would keep all memory that was ever used.
        pools = self._ncnn.PoolAllocator(), self._ncnn.PoolAllocator()
        extractor.set_blob_allocator(pools[0])
        extractor.set_workspace_allocator(pools[1])
        result: Any = None
        try:
            # A copy, because Vulkan takes channels to be aligned, which those of an array need not be.
            extractor.input("image", self._ncnn.Mat(x).clone())
            for stage in self._stages:
                result = None
                # 1: in ncnn's own layout. Only the last result is converted, which takes time and memory.
                failed, result = extractor.extract(stage.output, int(stage is not self._stages[-1]))
                if failed:
                    raise ModelError(f"ncnn failed on {x.shape[2]}×{x.shape[1]} pixels: allow less memory.")
                if cancelled.is_set():
                    raise RuntimeError("The encoding was cancelled.")
            return np.array(np.asarray(result).transpose(1, 2, 0), order="C")
        finally:
            result = extractor = None  # before the pools, whose memory they use


def head(tensors: dict[str, Array]) -> Head:
    """The last layer, with the output's factor of ½ in the amplitudes."""
    weight, bias, components = tensors["head.weight"].T.copy(), tensors["head.bias"], tensors["components"]
    amplitudes = 3 * components.shape[1]
    weight[:, :amplitudes] *= STD
    bias[:amplitudes] *= STD
    return Head(weight, bias, components, float(tensors["kappa"]))


def vulkan_count() -> int:
    """How many Vulkan devices there are."""
    import ncnn

    if sys.platform == "linux":
        try:
            ctypes.CDLL("libvulkan.so.1")
        except OSError:  # ncnn would print eight lines about it
            return 0
    return ncnn.get_gpu_count()
