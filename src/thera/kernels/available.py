"""Where the kernels can run, and in which dtype they multiply. This file does not need Triton."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

TRITON = find_spec("triton") is not None
# Bytes of shared memory per program. Server GPUs from Hopper on have the first, all others from Ampere on the
# second: A100 (sm_80) 163 KiB, desktop GPUs (sm_86, sm_89, sm_120) 99 KiB.
LARGE, SMALL = 200 << 10, 99 << 10
# Whether GPUs with the second run the kernels with smaller tiles. The tests compile those for these GPUs, but
# none has run them: until one has, the plain form runs there.
SMALL_TILES = False


@torch.compiler.assume_constant_result
def can_run_kernels() -> bool:
    """True if there is Triton and the current GPU runs the kernels, with whichever tiles."""
    return can_run_large_kernels() or (SMALL_TILES and TRITON and _shared_memory() >= SMALL)


@torch.compiler.assume_constant_result
def can_run_large_kernels() -> bool:
    """True if there is Triton and the current GPU can run the kernels with their larger tiles."""
    return TRITON and _shared_memory() > LARGE


def _shared_memory() -> int:
    """The bytes that a program can have on the current GPU. 0 if there is none, or one by AMD."""
    if not torch.cuda.is_available():
        return 0
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return getattr(properties, "shared_memory_per_block_optin", 0)


def matmul_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which matrices are multiplied with x: autocast's if it is on, else that of x."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
