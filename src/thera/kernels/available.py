"""Where the kernels can run, and in which dtype they multiply. This file does not need Triton."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

TRITON = find_spec("triton") is not None
SHARED_MEMORY = 200 << 10  # bytes per program: server GPUs from Hopper on have them, desktop GPUs do not


@torch.compiler.assume_constant_result
def can_run_large_kernels() -> bool:
    """True if there is Triton and the current GPU has a large shared memory."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    memory = getattr(properties, "shared_memory_per_block_optin", 0)  # AMD GPUs do not report it
    return TRITON and memory > SHARED_MEMORY


def matmul_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which matrices are multiplied with x: autocast's if it is on, else that of x."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
