"""Where the kernels can run, and in which dtype they multiply. This file does not need Triton."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

TRITON = find_spec("triton") is not None
# Bytes of shared memory per program. Server GPUs from Hopper on have the first, all others from Ampere on the
# second: A100 (sm_80) 163 KiB, desktop GPUs (sm_86, sm_89, sm_120) 99 KiB.
LARGE, SMALL = 200 << 10, 99 << 10


@torch.compiler.assume_constant_result
def can_run_large_kernels() -> bool:
    """True if there is Triton and the current GPU can run the kernels with their larger tiles."""
    return TRITON and _shared_memory() > LARGE


def agree(both: Callable[[], tuple[Tensor, Tensor]], tolerance: float) -> bool:
    """True if a kernel of inference gives on the current GPU what its plain form gives: `both` are the two.

    On Hopper GPUs the tests have shown it. No older GPU has run the code for it: there a kernel is tried
    before it is used. GPUs before Ampere (compute capability 8.0) have less memory than SMALL and run none.
    """
    if can_run_large_kernels():
        return True
    if not TRITON or _shared_memory() < SMALL:
        return False
    try:
        found, expected = (result.double() for result in both())
    except Exception:  # of the compiler, the launcher or the driver
        return False
    return bool((found - expected).norm() <= tolerance * expected.norm())  # a NaN is not


def _shared_memory() -> int:
    """The bytes that a program can have on the current GPU. 0 if there is none, or one by AMD."""
    if not torch.cuda.is_available():
        return 0
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return getattr(properties, "shared_memory_per_block_optin", 0)


def matmul_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which matrices are multiplied with x: autocast's if it is on, else that of x."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
