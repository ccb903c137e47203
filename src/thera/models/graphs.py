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
        self._lock = Lock()  # a graph's input and output are shared by all its replays

    def __call__(self, key: Hashable, function: Function, image: Tensor) -> Tensor:
        """function(image), of which the result is the caller's own."""
        with self._lock:
            graph = self._find(key, function, image)
            if isinstance(graph, Graph):
                return graph(image)
        return function(self._asarray(image))

    def _find(self, key: Hashable, function: Function, image: Tensor) -> Graph | Literal["new", "plain"]:
        """The graph of this key, or why there is none: it has never been asked for, or cannot be captured."""
        if key not in self._graphs:
            self._graphs[key] = "new"
            if len(self._graphs) > GRAPHS:
                dropped = self._graphs.popitem(last=False)[1]
                if isinstance(dropped, Graph):
                    dropped.finish()
            return "new"
        self._graphs.move_to_end(key)
        if self._graphs[key] == "new":
            try:
                self._graphs[key] = Graph(function, self._asarray(image))
            except RuntimeError:
                self._graphs[key] = "plain"
        return self._graphs[key]


class Graph:
    """One function captured for one shape."""

    def __init__(self, function: Function, image: Tensor) -> None:
        self._function = function  # what it holds is read at every replay
        self._graph = torch.cuda.CUDAGraph()
        # Tensors made in inference mode could not be written to outside of it.
        with torch.cuda.device(image.device), torch.inference_mode(False), torch.no_grad():
            self._input = image.clone()
            self._stream = torch.cuda.current_stream()
            # Libraries choose their kernels and workspaces, and tables are made, in the first runs: outside
            # the capture.
            side = torch.cuda.Stream()
            side.wait_stream(self._stream)
            with torch.cuda.stream(side):
                for _ in range(2):
                    function(self._input)
            self._stream.wait_stream(side)
            # Other threads may go on with what a capture must not do.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._output = function(self._input)

    def __call__(self, image: Tensor) -> Tensor:
        with torch.cuda.device(self._input.device), torch.no_grad():
            stream = torch.cuda.current_stream()
            if stream != self._stream:  # what the last replay reads and writes must be done with first
                stream.wait_stream(self._stream)
                self._stream = stream
            self._input.copy_(image)
            self._graph.replay()
            return self._output.clone()

    def finish(self) -> None:
        """Wait for the last replay, whose memory is about to be given away."""
        self._stream.synchronize()
