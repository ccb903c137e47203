"""Muon (Jordan et al., 2024): momentum, with every matrix made orthogonal before it is added.

Adam scales each weight by itself. Muon moves all singular directions of a layer equally far, and gets further
in the same minutes. Matrices of one shape are processed as one batch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
RMS = 0.2  # of an update at rate 1: about Adam's (Liu et al., 2025), so both use the same rate
QUINTIC = (3.4445, -4.7750, 2.0315)  # drives singular values into [0.7, 1.2] in five iterations
ITERATIONS = 5


def matrices(network: nn.Module) -> list[tuple[nn.Parameter, int]]:
    """The weights that Muon trains, each with the number of matrices stacked in it: three for queries, keys
    and values. Left out: the layer that reads the image, the last layer, depthwise filters and tables.
    """
    chosen = []
    for name, p in network.named_parameters():
        inside = name.startswith(("backbone.", "hypernetwork.")) and not name.startswith("backbone.head.")
        if inside and p.ndim in (2, 4) and min(p.shape[:2]) > 1 and not name.endswith("table"):
            chosen.append((p, 3 if name.endswith("qkv.weight") else 1))
    return chosen


def orthogonal(m: Tensor) -> Tensor:
    """Nearly the closest matrices with orthonormal rows, by Newton-Schulz iterations. m: B×r×c, r ≤ c.

    >>> u = orthogonal(torch.randn(2, 8, 40).double())
    >>> bool(((u @ u.mT).diagonal(dim1=1, dim2=2) - 1).abs().max() < 0.6)
    True
    """
    a, b, c = QUINTIC
    x = m / (m.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


class Muon(torch.optim.Optimizer):
    """Orthogonal Nesterov momentum. `lr` is a tensor, so that a captured step reads its current value."""

    def __init__(self, parameters: list[tuple[nn.Parameter, int]], lr: Tensor) -> None:
        super().__init__([p for p, _ in parameters], {"lr": lr})
        self.stacked = [n for _, n in parameters]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        parameters: list[nn.Parameter] = self.param_groups[0]["params"]
        lr: Tensor = self.param_groups[0]["lr"]
        gradients = [p.grad for p in parameters if p.grad is not None]
        for p in parameters:
            if "momentum" not in self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        momenta = [self.state[p]["momentum"] for p in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        steps = torch._foreach_lerp(gradients, momenta, MOMENTUM)

        by_shape: dict[tuple[int, int], list[int]] = defaultdict(list)
        flat = [rows(s, p, n) for s, p, n in zip(steps, parameters, self.stacked, strict=True)]
        for i, m in enumerate(flat):
            by_shape[min(m.shape[1:]), max(m.shape[1:])].append(i)
        changes = list(flat)
        for (r, c), members in by_shape.items():
            batch = torch.cat([flat[i] if flat[i].shape[1] == r else flat[i].mT for i in members])
            short = batch.bfloat16() if batch.is_cuda else batch
            change = orthogonal(short).to(batch.dtype) * (-lr * RMS * math.sqrt(c))
            parts = change.split([self.stacked[i] for i in members])
            for i, part in zip(members, parts, strict=True):
                changes[i] = part if flat[i].shape[1] == r else part.mT.contiguous()
        torch._foreach_add_([rows(p, p, n) for p, n in zip(parameters, self.stacked, strict=True)], changes)


def rows(t: Tensor, p: Tensor, n: int) -> Tensor:
    """t, shaped like the parameter p, as n matrices whose columns follow the order of p's memory.

    It is a view if t is p itself or has p's strides.
    """
    if p.ndim == 4 and p.is_contiguous(memory_format=torch.channels_last):
        t = t.permute(0, 2, 3, 1)
    shape = n, p.shape[0] // n, p[0].numel()
    return t.view(shape) if t.data_ptr() == p.data_ptr() else t.reshape(shape)
