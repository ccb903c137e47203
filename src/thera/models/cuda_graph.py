"""CUDA graphs: a whole computation in one launch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
Function = Callable[[Tensor], Tensor]

GRAPHS = 8  # that a `GraphCache` keeps


class Captured(Generic[Result]):
    """A function that reads and writes fixed tensors, replayed as a CUDA graph after a few plain calls.

    In the plain calls libraries choose their kernels and allocate what a graph cannot. On other devices, or
    if `whole` is False, every call is plain.
    """

    def __init__(
        self,
        function: Callable[[], Result],
        device: torch.device,
        whole: bool = True,
        plain_calls: int = 3,
        stream: torch.cuda.Stream | None = None,
        pool: Any = None,
    ) -> None:
        self.function, self.plain_calls = function, plain_calls
        self.on_cuda = device.type == "cuda" and whole
        self.stream = stream  # to warm up and capture on
        self.pool = pool  # of memory, shared with graphs that never run at the same time
        self.graph: torch.cuda.CUDAGraph | None = None
        self._result: Result

    def __call__(self) -> Result:
        if not self.on_cuda:
            return self.function()
        if self.graph is None and self.plain_calls:
            self.plain_calls -= 1
            return self._run_plain()
        if self.graph is None:
            self.capture()
        self.graph.replay()  # type: ignore[union-attr]
        return self._result

    def _run_plain(self) -> Result:
        self.stream = self.stream or torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = self.function()
        torch.cuda.current_stream().wait_stream(self.stream)
        return result

    def capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        # "thread_local" lets other threads go on with what is forbidden during a capture.
        with torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode="thread_local"):
            self._result = self.function()
        self.graph = graph


class GraphCache:
    """Replays functions of one CUDA image as CUDA graphs, one for each key.

    A graph is captured when its key comes for the second time, so a single image costs nothing extra. The
    least recently used graph is dropped. If a capture fails (no memory, an unsupported kernel), that function
    runs as it is. A key stands for one function and one image shape; whatever else the function reads must
    not change.
    """

    def __init__(self, asarray: Function) -> None:
        self._asarray = asarray  # copies an image of any dtype and device to what functions take
        self._graphs: OrderedDict[Hashable, Graph | Literal["new", "plain"]] = OrderedDict()
        # All graphs are captured on one stream, share its workspaces and the memory of their activations,
        # and each has one input and one output: replays must not overlap.
        self._lock = Lock()
        self._side: torch.cuda.Stream | None = None
        self._pool: Any = None
        self._last: torch.cuda.Stream | None = None  # of the last replay

    def __call__(self, key: Hashable, function: Callable[[Tensor], Result], image: Tensor) -> Result:
        """function(image), a tensor or a tuple of tensors. The result belongs to the caller."""
        with self._lock:
            graph = self._find(key, function, image)
            if isinstance(graph, Graph):
                return self._replay(graph, image)
        return function(self._asarray(image))

    def _find(
        self, key: Hashable, function: Callable[[Tensor], Any], image: Tensor
    ) -> Graph | Literal["new", "plain"]:
        """The graph of this key; "new" if the key has not been used before, "plain" if capturing failed."""
        if key not in self._graphs:
            self._graphs[key] = "new"
            if len(self._graphs) > GRAPHS:
                dropped = self._graphs.popitem(last=False)[1]
                if isinstance(dropped, Graph) and self._last is not None:
                    self._last.synchronize()  # before its memory is freed
            return "new"
        self._graphs.move_to_end(key)
        if self._graphs[key] == "new":
            try:
                self._graphs[key] = self._capture(function, self._asarray(image))
            except RuntimeError:
                self._graphs[key] = "plain"
        return self._graphs[key]

    def _capture(self, function: Callable[[Tensor], Any], image: Tensor) -> Graph:
        with torch.cuda.device(image.device):
            self._side = self._side or torch.cuda.Stream()
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            return Graph(function, image, self._side, self._pool)

    def _replay(self, graph: Graph, image: Tensor) -> Any:
        with torch.cuda.device(graph.input.device):
            stream = torch.cuda.current_stream()
            if self._last is not None and stream != self._last:
                stream.wait_stream(self._last)
            self._last = stream
            return graph(image)


class Graph:
    """One function captured for one image shape."""

    def __init__(
        self, function: Callable[[Tensor], Any], image: Tensor, stream: torch.cuda.Stream, pool: Any
    ) -> None:
        # Tensors that are made in inference mode could not be written to outside of it.
        with torch.inference_mode(False), torch.no_grad():
            self.input = image.clone()
            self._run = Captured(
                lambda: function(self.input), image.device, plain_calls=2, stream=stream, pool=pool
            )
            for _ in range(2):
                self._run()
            self._run.capture()

    @torch.no_grad()
    def __call__(self, image: Tensor) -> Any:
        self.input.copy_(image)
        result = self._run()
        return result.clone() if isinstance(result, Tensor) else tuple(part.clone() for part in result)
