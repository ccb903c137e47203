"""One CUDA graph for a piece of work that is done again and again."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Captured:
    """A function of tensors in place: run as it is, on a GPU only until it has allocated and compiled what it
    needs; then it is captured as one CUDA graph and replayed."""

    def __init__(self, function: Callable[[], None], device: torch.device, whole: bool) -> None:
        self.function, self.device, self.whole = function, device, whole
        self.graph: torch.cuda.CUDAGraph | None = None
        self.plain = 0  # calls before the graph

    def __call__(self) -> None:
        if self.device.type != "cuda" or not self.whole:
            self.function()
        elif self.graph is None and self.plain >= 3:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.function()
            self.graph.replay()
        elif self.graph is None:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.function()
            torch.cuda.current_stream().wait_stream(side)
            self.plain += 1
        else:
            self.graph.replay()
