"""Less memory for an ONNX graph: attention and mlps go through a picture in parts.

Queries, keys and logits take ten times the memory of the features that they come from, and the hidden units
of an mlp several times. They set the peak, and so the size of a tile, whose halo is computed again and again.
Windows and pixels do not depend on each other there, so the result stays the same to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

PARTS = 4


def divide(graph: Any) -> None:
    """Let every attention and every mlp of a graph go through the picture in `PARTS`."""
    ways = Ways(graph)
    changed = {end: ways.divided(start, end) for start, end in ways.branches()}
    dropped = {name for start, end in ways.branches() for n in ways.between(start, end) for name in n.output}
    nodes = []
    for node in graph.node:
        first = node.output[0]
        nodes += changed.get(first, [] if first in dropped else [node])
    graph.initializer.extend(ways.constants.values())
    del graph.node[:]
    graph.node.extend(nodes)


class Ways:
    """The nodes of a graph by what they read and write."""

    def __init__(self, graph: Any) -> None:
        self.nodes = list(graph.node)
        self.makers = {name: node for node in self.nodes for name in node.output}
        self.users = {name: node for node in reversed(self.nodes) for name in node.input}  # the first of each
        self.constants: dict[str, Any] = {}

    def branches(self) -> list[tuple[str, str]]:
        """The first input and the last output of every attention and every mlp."""
        found = []
        for node in self.nodes:
            if node.op_type == "Softmax":
                first = self._before(self._before(node, "MatMul"), "MatMul")  # q·k; what makes q, k and v
                last = self._after(self._after(self._after(node, "MatMul"), "MatMul"), "Add")
                found.append((first.input[0], last.output[0]))
            elif node.op_type == "Gelu":
                last = self._after(self._after(node, "MatMul"), "Add")
                found.append((self._before(node, "LayerNormalization").input[0], last.output[0]))
        return found

    def _before(self, node: Any, kind: str) -> Any:
        while (node := self.makers[node.input[0]]).op_type != kind:
            pass
        return node

    def _after(self, node: Any, kind: str) -> Any:
        while (node := self.users[node.output[0]]).op_type != kind:
            pass
        return node

    def between(self, start: str, end: str) -> list[Any]:
        """The nodes on the ways from `start` to `end`, in order."""
        reached, ahead = {start}, []
        for node in self.nodes:
            if reached.intersection(node.input):
                reached.update(node.output)
                ahead.append(node)
        needed, found = {end}, []
        for node in reversed(ahead):
            if needed.intersection(node.output):
                needed.update(node.input)
                found.append(node)
        return found[::-1]

    def divided(self, start: str, end: str) -> list[Any]:
        """Nodes that compute `end` from parts of `start`, cut along axis 1."""
        from onnx import helper

        whole, size = f"{end}.whole", f"{end}.size"
        new = [
            helper.make_node("Shape", [start], [whole], start=1, end=2),
            helper.make_node("Add", [whole, self._constant(PARTS - 1)], [f"{whole}.more"]),
            helper.make_node("Div", [f"{whole}.more", self._constant(PARTS)], [size]),
        ]
        for i in range(PARTS + 1):
            new.append(helper.make_node("Mul", [size, self._constant(i)], [f"{size}.{i}"]))
        inside = self.between(start, end)
        own = {name for node in inside for name in node.output}
        # The mask of shifted windows is the only input besides that differs from window to window.
        cut = {start: 1} | {name: 0 for node in inside for name in node.input if self._is_mask(name)}
        for i in range(PARTS):
            for name, axis in cut.items():
                bounds = [f"{size}.{i}", f"{size}.{i + 1}", self._constant(axis)]
                new.append(helper.make_node("Slice", [name, *bounds], [f"{end}.{i}.{name}"]))
            for node in inside:
                copy = type(node)()
                copy.CopyFrom(node)
                copy.name = ""
                copy.input[:] = [f"{end}.{i}.{n}" if n in own or n in cut else n for n in node.input]
                copy.output[:] = [f"{end}.{i}.{n}" for n in node.output]
                new.append(copy)
        return [*new, helper.make_node("Concat", [f"{end}.{i}.{end}" for i in range(PARTS)], [end], axis=1)]

    def _is_mask(self, name: str) -> bool:
        return name in self.makers and self.makers[name].op_type == "Unsqueeze"

    def _constant(self, value: int) -> str:
        from onnx import numpy_helper

        name = f"parts.{value}"
        self.constants[name] = numpy_helper.from_array(np.array([value], np.int64), name)
        return name
