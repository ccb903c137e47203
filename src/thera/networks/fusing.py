"""Where the Triton kernels run, and in which type: what every fused form asks before it takes over."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

TRITON = find_spec("triton") is not None
SHARED_MEMORY = 200 << 10  # bytes to a program: Hopper and Blackwell servers have them, desktops do not


@torch.compiler.assume_constant_result
def can_fuse() -> bool:
    """Whether this machine runs kernels that need a large shared memory."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    memory = getattr(properties, "shared_memory_per_block_optin", 0)  # AMD's have none
    return TRITON and memory > SHARED_MEMORY


def operand_type(x: Tensor) -> torch.dtype:
    """The type in which matrices are multiplied with x: autocast's where it is on, else x's own."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
