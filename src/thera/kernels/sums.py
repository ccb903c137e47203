"""The sum of partial gradients, and a second stream to compute it on.

Where many programs add to the same gradient, each writes its own part, and this kernel sums the parts. There
are tens to hundreds of them and each is small: PyTorch's sum takes three times as long as reading them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 4096  # numbers that a program loads at a time
FEW = 16384  # up to so many columns, a program takes 16 instead of 128, so that there are enough programs


@triton.jit
def _sum(parts, out, columns, ROWS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros((BR, BC), tl.float32)
    for start in tl.range(0, ROWS, BR, num_stages=3):
        r = start + tl.arange(0, BR)
        inside = (r < ROWS)[:, None] & (c < columns)[None, :]
        total += tl.load(parts + r.to(tl.int64)[:, None] * columns + c[None, :], inside, 0.0)
    tl.store(out + c, tl.sum(total, 0), c < columns)


def summed(parts: Tensor) -> Tensor:
    """parts.sum(0). parts: contiguous, float32, on a GPU."""
    rows, out = parts.shape[0], parts.new_empty(parts.shape[1:])
    BC = 16 if out.numel() <= FEW else 128
    _sum[(triton.cdiv(out.numel(), BC),)](
        parts, out, out.numel(), ROWS=rows, BR=TILE // BC, BC=BC, num_warps=8
    )
    return out


@cache
def _second_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@contextmanager
def beside(device: torch.device) -> Iterator[Callable[[], None]]:
    """Runs what is launched inside on a second stream, and gives the function that waits for it.

    Small kernels then use the multiprocessors that large ones leave idle as they end.
    """
    if device.type != "cuda":  # in the tests
        yield lambda: None
        return
    first, second = torch.cuda.current_stream(device), _second_stream(device)
    second.wait_stream(first)
    with torch.cuda.stream(second):
        yield lambda: first.wait_stream(second)
