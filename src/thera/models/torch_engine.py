"""PyTorch: CUDA, MPS and CPU, at an explicit precision."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from thera.errors import InvalidInput
from thera.field.head import Head
from thera.models.cuda import CudaHead, float32_products
from thera.models.cuda_graph import Function, GraphCache
from thera.models.engine import PRECISIONS, Array
from thera.networks.swinir import SwinIR

if TYPE_CHECKING:
    from thera.networks import Thera

HALF = {"bf16": torch.bfloat16, "f16": torch.float16}

# Up to so many pixels in and out the time on a GPU is the time of its launches, which a graph removes.
GRAPH_PIXELS, GRAPH_OUTPUT = 256 * 256, 1024 * 1024


class TorchEngine:
    """The network itself, on one device.

    `precision` is how convolutions and matrix products are computed: "f32"; "tf32" (CUDA); "bf16" or "f16".
    The image, the last layer and the fields are float32 whatever it is: phases reach ±25 radians. On CUDA the
    amplitudes and the table's product are in TF32 unless it is "f32" (see `CudaHead`).
    """

    name = "torch"

    def __init__(self, network: Thera, device: str = "auto", precision: str = "f32") -> None:
        if precision not in PRECISIONS:
            raise InvalidInput(f"unknown precision {precision!r}: expected one of {', '.join(PRECISIONS)}")
        self._device = resolve_device(device)
        if precision == "tf32" and self._device.type != "cuda":
            raise InvalidInput(
                f"tf32 is a precision of CUDA devices: device {self._device} has f32, bf16 and f16"
            )
        self.device, self.precision = str(self._device), precision
        weight, bias = (t.to(self._device) for t in network.folded_head())
        constants = weight, bias, network.components, network.kappa.item()
        on_cuda = self._device.type == "cuda"
        self.head = CudaHead(*constants, tf32=precision != "f32") if on_cuda else Head(*constants)
        self._network = prepared(network, self._device, HALF.get(precision))
        self._graphs = GraphCache(self.asarray) if on_cuda else None

    def asarray(self, image: Array) -> Tensor:
        if not isinstance(image, Tensor):
            image = torch.from_numpy(np.ascontiguousarray(image))
        return image.detach().to(self._device, torch.float32, copy=True).contiguous()

    def features(self, image: Tensor) -> Tensor:
        if self._graphs is None or not _is_small(image):
            return self.compute(image)
        return self._graphs(("features", image.shape), self.compute, image)

    def replay(self, key: Hashable | None, function: Function, image: Array, outputs: int = 0) -> Tensor:
        if not isinstance(image, Tensor):
            image = torch.from_numpy(np.ascontiguousarray(image))
        image = image.detach()
        if self._graphs is None or key is None or not (_is_small(image) and outputs <= GRAPH_OUTPUT):
            return function(self.asarray(image))
        return self._graphs(key, function, image)

    @torch.no_grad()
    def compute(self, image: Tensor) -> Tensor:
        half, on_cuda = HALF.get(self.precision), self._device.type == "cuda"
        autocast = torch.autocast(self._device.type, half) if half else nullcontext()
        products = float32_products(tf32=self.precision == "tf32") if on_cuda else nullcontext()
        with products, autocast:
            # H×W×3 seen as 1×3×H×W is in channels-last order already, and comes back so.
            y = self._network(image.permute(2, 0, 1)[None])
        return y[0].permute(1, 2, 0).float().contiguous()


def _is_small(image: Tensor) -> bool:
    return image.shape[0] * image.shape[1] <= GRAPH_PIXELS


def resolve_device(device: str) -> torch.device:
    """CUDA where there is one, else the CPU, for "auto"; anything else is taken at its word or refused."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise InvalidInput(f"unknown device {device!r}: expected auto, cpu, cuda, cuda:N or mps") from error
    count = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    if (found.index or 0) >= count.get(found.type, 0):
        raise InvalidInput(
            f"PyTorch finds no device {device!r}: use 'cpu', or install a PyTorch built for it"
        )
    return found


def prepared(network: Thera, device: torch.device, half: torch.dtype | None) -> nn.Module:
    """A copy of the network made ready to run: on its device, in the order of channels that images come in,
    aligned and fused for a GPU, and with the weights of a 16-bit precision cast once, not at every image."""
    network = copy.deepcopy(network).eval().requires_grad_(False)
    if device.type == "cuda" and isinstance(network.hypernetwork, SwinIR):
        network.hypernetwork.align()
    network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if half and device.type == "cuda" and find_spec("triton") is not None:
        from thera.networks.inference import use_kernels

        with torch.cuda.device(device):
            use_kernels(network, half)
    if half:
        for part in (network.backbone, network.hypernetwork):
            for layer in part.modules():
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    layer.to(half)
    return network
