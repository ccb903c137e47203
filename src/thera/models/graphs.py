"""CUDA graphs: a whole computation in one launch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Literal

import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]

GRAPHS = 8  # kept at once: each holds the memory of its activations


class GraphCache:
    """Replays functions of one CUDA image as CUDA graphs, one for each key.

    What comes back is captured, so that a single image pays nothing, and the least recently used graph is
    dropped. Where capturing fails (memory, an unsupported kernel) that function runs as it is. A key stands
    for one function and one shape of image; all else that the function reads must stay as it is.
    """

    def __init__(self, asarray: Function) -> None:
        self._asarray = asarray  # an image of any type and place → a copy that functions take
        self._graphs: OrderedDict[Hashable, Graph | Literal["new", "plain"]] = OrderedDict()
        # Graphs are captured on one stream, whose workspaces they share, and have one input and one output
        # each: no two replays may overlap.
        self._lock = Lock()
        self._side: torch.cuda.Stream | None = None
        self._last: torch.cuda.Stream | None = None  # where the last replay was launched

    def __call__(self, key: Hashable, function: Function, image: Tensor) -> Tensor:
        """function(image), of which the result is the caller's own."""
        with self._lock:
            graph = self._find(key, function, image)
            if isinstance(graph, Graph):
                return self._replay(graph, image)
        return function(self._asarray(image))

    def _find(self, key: Hashable, function: Function, image: Tensor) -> Graph | Literal["new", "plain"]:
        """The graph of this key, or why there is none: it has never been asked for, or cannot be captured."""
        if key not in self._graphs:
            self._graphs[key] = "new"
            if len(self._graphs) > GRAPHS:
                dropped = self._graphs.popitem(last=False)[1]
                if isinstance(dropped, Graph) and self._last is not None:
                    self._last.synchronize()  # its memory is about to be given away
            return "new"
        self._graphs.move_to_end(key)
        if self._graphs[key] == "new":
            try:
                self._graphs[key] = self._capture(function, self._asarray(image))
            except RuntimeError:
                self._graphs[key] = "plain"
        return self._graphs[key]

    def _capture(self, function: Function, image: Tensor) -> Graph:
        with torch.cuda.device(image.device):
            if self._side is None:
                self._side = torch.cuda.Stream()
            return Graph(function, image, self._side)

    def _replay(self, graph: Graph, image: Tensor) -> Tensor:
        with torch.cuda.device(graph.input.device):
            stream = torch.cuda.current_stream()
            if self._last is not None and stream != self._last:
                stream.wait_stream(self._last)
            self._last = stream
            return graph(image)


class Graph:
    """One function captured for one shape, on a stream of its own."""

    def __init__(self, function: Function, image: Tensor, side: torch.cuda.Stream) -> None:
        self._function = function  # what it holds is read at every replay
        self._graph = torch.cuda.CUDAGraph()
        # Tensors made in inference mode could not be written to outside of it.
        with torch.inference_mode(False), torch.no_grad():
            self.input = image.clone()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                # In the first runs libraries choose their kernels and workspaces and tables are made, which a
                # graph cannot hold.
                for _ in range(2):
                    function(self.input)
            torch.cuda.current_stream().wait_stream(side)
            # Other threads may go on with what a capture must not do.
            with torch.cuda.graph(self._graph, stream=side, capture_error_mode="thread_local"):
                self._output = function(self.input)

    @torch.no_grad()
    def __call__(self, image: Tensor) -> Tensor:
        self.input.copy_(image)
        self._graph.replay()
        return self._output.clone()
