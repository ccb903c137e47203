"""The PyTorch engine: CUDA, MPS and CPU, at an explicit precision."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from importlib.util import find_spec
from threading import Event, get_ident, local
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from thera.errors import InvalidInput
from thera.field.head import Head
from thera.models.cuda import CudaHead, float32_products
from thera.models.cuda_graph import Function, GraphCache, Result
from thera.models.engine import Array, check_precision, interruptible
from thera.networks.swinir import SwinIR

if TYPE_CHECKING:
    from thera.networks import Thera

HALF = {"bf16": torch.bfloat16, "f16": torch.float16}
TENSOR_CORES = (7, 0)  # the first compute capability that multiplies float16 faster than float32

# For up to this many pixels in and out, a GPU spends its time on launches, which a CUDA graph removes.
GRAPH_PIXELS, GRAPH_OUTPUT = 256 * 256, 1024 * 1024


class TorchEngine:
    """Runs the PyTorch network on one device.

    `precision` is that of convolutions and matrix products: "f32", "tf32" (CUDA only), "bf16" or "f16".
    "auto" is f16 on CUDA GPUs and f32 elsewhere. The image, the last layer and the fields are always float32,
    because phases reach ±25 radians. On CUDA, the amplitudes and the product with the table are in TF32
    unless the precision is "f32" (see `CudaHead`).

    float16 ends at 65504. Every layer passes on what is infinite or NaN, so whatever goes beyond shows in the
    features. On CUDA each call in f16 also sums up its features; if the sum is not finite, the call is
    repeated in TF32, which has the range of float32.
    """

    name = "torch"

    def __init__(self, network: Thera, device: str = "auto", precision: str = "f32") -> None:
        self._device = resolve_device(device, precision)
        precision = usual_precision(self._device) if precision == "auto" else precision
        self.device, self.precision = str(self._device), precision
        weight, bias = (t.to(self._device) for t in network.folded_head())
        constants = weight, bias, network.components, network.kappa.item()
        on_cuda = self._device.type == "cuda"
        self.head = CudaHead(*constants, tf32=precision != "f32") if on_cuda else Head(*constants)
        self._network = prepared(network, self._device, HALF.get(precision))
        self._wide = prepared(network, self._device, None) if on_cuda and precision == "f16" else None
        self._call = Call()
        self._graphs = GraphCache(self.asarray) if on_cuda else None
        self._cancelled: dict[int, Event] = {}  # by the thread that computes
        if self._device.type == "cpu":
            for layer in self._network.modules():
                if not list(layer.children()):
                    layer.register_forward_pre_hook(self._check)

    def asarray(self, image: Array) -> Tensor:
        return as_tensor(image).to(self._device, torch.float32, copy=True).contiguous()

    def features(self, image: Tensor) -> Tensor:
        if self._device.type == "cpu":
            cancelled = Event()
            return interruptible(lambda: self._cancellable(image, cancelled), cancelled.set)
        return self.replay(("features", image.shape), self.compute, image)

    def replay(self, key: Hashable | None, function: Function, image: Array, outputs: int = 0) -> Tensor:
        image = as_tensor(image)
        small = _is_small(image) and outputs <= GRAPH_OUTPUT
        if self._wide is None:
            return self._run(key if small else None, function, image)
        result, total = self._run(key if small else None, lambda image: self._summed(function, image), image)
        # This waits for the GPU. Whoever takes the result to the host would have to wait now, too.
        if math.isfinite(total.item()):
            return result
        self._call.wide = True
        try:
            return function(self.asarray(image))
        finally:
            self._call.wide = False

    def _run(self, key: Hashable | None, function: Callable[[Tensor], Result], image: Tensor) -> Result:
        """function(asarray(image)), replayed if there is a key."""
        if self._graphs is None or key is None:
            return function(self.asarray(image))
        return self._graphs(key, function, image)

    def _summed(self, function: Function, image: Tensor) -> tuple[Tensor, Tensor]:
        """function(image), and the sum of all features that were computed on the way."""
        sums: list[Tensor] = []
        self._call.sums = sums
        try:
            return function(image), reduce(torch.add, sums)
        finally:
            self._call.sums = None

    def _cancellable(self, image: Tensor, cancelled: Event) -> Tensor:
        """`compute`, which ends before the next layer once it is cancelled."""
        self._cancelled[get_ident()] = cancelled
        try:
            return self.compute(image)
        finally:
            del self._cancelled[get_ident()]

    def _check(self, *_: object) -> None:
        cancelled = self._cancelled.get(get_ident())
        if cancelled is not None and cancelled.is_set():
            raise RuntimeError("The encoding was cancelled.")

    @torch.no_grad()
    def compute(self, image: Tensor) -> Tensor:
        wide = self._wide if self._call.wide else None
        products, autocast = precision_of(self._device, self.precision if wide is None else "tf32")
        with products, autocast:
            # H×W×3 viewed as 1×3×H×W already has the channels-last layout, and so has the result.
            y = (wide or self._network)(image.permute(2, 0, 1)[None])
        if self._call.sums is not None:
            # No sum of finite float16 numbers is beyond float32, and none of others is finite.
            self._call.sums.append(y.sum(dtype=torch.float32))
        return y[0].permute(1, 2, 0).float().contiguous()


class Call(local):
    """What the present call of a thread does in `TorchEngine.compute`."""

    sums: list[Tensor] | None = None  # where to put the sum of the features
    wide = False  # whether to compute with the range of float32


def as_tensor(image: Array) -> Tensor:
    return image.detach() if isinstance(image, Tensor) else torch.from_numpy(np.ascontiguousarray(image))


def _is_small(image: Tensor) -> bool:
    return image.shape[0] * image.shape[1] <= GRAPH_PIXELS


def precision_of(device: torch.device, precision: str) -> tuple[AbstractContextManager, ...]:
    """Contexts in which matrix products are computed in a precision: of float32, and of what is cast."""
    half = HALF.get(precision)
    autocast = torch.autocast(device.type, half) if half else nullcontext()
    on_cuda = device.type == "cuda"
    return float32_products(tf32=precision == "tf32") if on_cuda else nullcontext(), autocast


def resolve_device(device: str, precision: str = "f32") -> torch.device:
    """The device of this name, which must know the precision. "auto" is CUDA if available, else the CPU."""
    check_precision(precision)
    found = _device(device)
    if precision == "tf32" and found.type != "cuda":
        raise InvalidInput(f"Only CUDA devices compute in tf32: choose f32, bf16 or f16 on {found}.")
    return found


def usual_precision(device: torch.device) -> str:
    """The precision that "auto" stands for on a device."""
    fast = device.type == "cuda" and torch.cuda.get_device_capability(device) >= TENSOR_CORES
    return "f16" if fast else "f32"


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise InvalidInput(f"PyTorch has no device {device!r}: use cpu, cuda, cuda:N or mps.") from error
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (found.index or 0) >= count.get(found.type, 0):
        raise InvalidInput(
            f"PyTorch finds no device {device!r}: use 'cpu', or install a PyTorch built for it."
        )
    return found


def prepared(network: Thera, device: torch.device, half: torch.dtype | None) -> nn.Module:
    """A copy of the network that is ready to run on `device`: channels last, with the GPU's fast kernels, and
    with weights that are cast to a 16-bit precision once instead of for every image."""
    network = copy.deepcopy(network).eval().requires_grad_(False)
    if device.type == "cuda" and isinstance(network.hypernetwork, SwinIR):
        network.hypernetwork.align()
    network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if device.type == "cuda" and find_spec("triton") is not None:
        from thera.networks.inference import use_kernels

        with torch.cuda.device(device):
            use_kernels(network, half or torch.float32)
    if half:
        for part in (network.backbone, network.hypernetwork):
            for layer in part.modules():
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    layer.to(half)
    return network
