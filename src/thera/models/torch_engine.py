"""PyTorch: CUDA, MPS and CPU, at an explicit precision."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from thera.errors import InvalidInput
from thera.models.engine import PRECISIONS, Array, Head
from thera.networks.swinir import SwinIR

if TYPE_CHECKING:
    from thera.networks import Thera

HALF = {"bf16": torch.bfloat16, "f16": torch.float16}

# Up to this many pixels an encoder's time on a GPU is the time of its launches, which a graph removes.
GRAPH_PIXELS = 256 * 256
GRAPHS = 4  # shapes kept at once: each holds the memory of its activations


class TorchEngine:
    """The network itself, on one device.

    `precision` is how convolutions and matrix products are computed: "f32"; "tf32" (CUDA); "bf16" or "f16".
    The image, the last layer and the fields are float32 whatever it is: phases reach ±25 radians.
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
        components = network.components.detach().cpu().numpy()
        self.head = Head(weight, bias, components, network.kappa.item())
        self._network = prepared(network, self._device, HALF.get(precision))
        self._graphs = GraphCache(self._compute) if self._device.type == "cuda" else None

    def asarray(self, image: Array) -> Tensor:
        if not isinstance(image, Tensor):
            image = torch.from_numpy(np.ascontiguousarray(image))
        return image.detach().to(self._device, torch.float32, copy=True).contiguous()

    def features(self, image: Array) -> Tensor:
        if self._graphs is not None and image.shape[0] * image.shape[1] <= GRAPH_PIXELS:
            return self._graphs(image)
        return self._compute(image)

    @torch.no_grad()
    def _compute(self, image: Tensor) -> Tensor:
        half = HALF.get(self.precision)
        autocast = torch.autocast(self._device.type, half) if half else nullcontext()
        with float32_products(tf32=self.precision == "tf32"), autocast:
            # H×W×3 seen as 1×3×H×W is in channels-last order already, and comes back so.
            y = self._network(image.permute(2, 0, 1)[None])
        return y[0].permute(1, 2, 0).float().contiguous()


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
    aligned for a GPU, and with the weights of a 16-bit precision cast once instead of at every image."""
    network = copy.deepcopy(network).eval().requires_grad_(False)
    if device.type == "cuda" and isinstance(network.hypernetwork, SwinIR):
        network.hypernetwork.align()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if half:
        for part in (network.backbone, network.hypernetwork):
            for layer in part.modules():
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    layer.to(half)
    return network.to(device)


@contextmanager
def float32_products(*, tf32: bool) -> Iterator[None]:
    """Float32 convolutions and products in full or in TF32, whatever the process has set."""
    matmul, conv = torch.backends.cuda.matmul, getattr(torch.backends.cudnn, "conv", None)
    if conv is not None:  # PyTorch 2.9 on
        owners, name, value = (matmul, conv), "fp32_precision", "tf32" if tf32 else "ieee"
    else:
        owners, name, value = (matmul, torch.backends.cudnn), "allow_tf32", tf32  # type: ignore[assignment]
    before = [getattr(owner, name) for owner in owners]
    for owner in owners:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, old in zip(owners, before, strict=True):
            setattr(owner, name, old)


class GraphCache:
    """Replays a function of one CUDA image as a CUDA graph: one launch for all of an encoder's kernels.

    A shape is captured when it comes back, so that a single image pays nothing, and the least recently used
    shape is dropped. Where capturing fails (memory, an unsupported kernel) that shape runs as it is.
    """

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self._function = function
        self._graphs: OrderedDict[tuple[int, ...], Callable[[Tensor], Tensor] | None] = OrderedDict()
        self._lock = Lock()  # a graph's input and output are shared by all its replays

    def __call__(self, image: Tensor) -> Tensor:
        shape = tuple(image.shape)
        with self._lock:
            if shape not in self._graphs:
                self._graphs[shape] = None
                if len(self._graphs) > GRAPHS:
                    self._graphs.popitem(last=False)
                return self._function(image)
            self._graphs.move_to_end(shape)
            run = self._graphs[shape]
            if run is None:
                try:
                    run = Graph(self._function, image)
                except RuntimeError:
                    run = self._function
                self._graphs[shape] = run
            return run(image)


class Graph:
    """One function captured for one shape."""

    def __init__(self, function: Callable[[Tensor], Tensor], image: Tensor) -> None:
        self._input = image.clone()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(image.device):
            self._stream = torch.cuda.current_stream()
            # Libraries choose their kernels and workspaces in the first runs: outside the capture.
            side = torch.cuda.Stream()
            side.wait_stream(self._stream)
            with torch.cuda.stream(side):
                for _ in range(2):
                    function(self._input)
            self._stream.wait_stream(side)
            with torch.cuda.graph(self._graph):
                self._output = function(self._input)

    def __call__(self, image: Tensor) -> Tensor:
        stream = torch.cuda.current_stream(image.device)
        if stream != self._stream:  # what the last replay reads and writes must be done with first
            stream.wait_stream(self._stream)
            self._stream = stream
        with torch.cuda.device(image.device):
            self._input.copy_(image)
            self._graph.replay()
            return self._output.clone()
