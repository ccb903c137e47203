"""Amounts of memory: what the machine has, what a job may take, and how people write it."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from thera.errors import InvalidInput

#: Where Linux tells about a container's limits, of versions 1 and 2.
CGROUPS = "/sys/fs/cgroup"

#: A larger output, beyond 100 gigapixels, is refused as a mistake.
MOST_PIXELS = 10**11


def is_out_of_memory(error: BaseException) -> bool:
    """True for the errors of Python and PyTorch where memory is short. PyTorch's are RuntimeErrors.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    (True, True)
    """
    signs = "out of memory", "DefaultCPUAllocator"
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
    )


def physical_memory() -> int | None:
    """The machine's memory in bytes, where the system tells."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def available_memory() -> int:
    """Bytes that programs can still take on the machine and in its container, as far as the system tells."""
    return min(_left_on_machine(), _left_in_container())


def _left_on_machine() -> int:
    """Bytes that are left, where the system tells; otherwise half of the machine's."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = next(line for line in file if line.startswith("MemAvailable:"))
        return 1024 * int(found.split()[1])
    except (OSError, StopIteration, ValueError, IndexError):
        return (physical_memory() or 8 << 30) // 2


def _left_in_container(root: str = CGROUPS) -> int:
    """Bytes that are left below the limit of a container; `sys.maxsize` without a limit.

    Caches of files that are no longer used count as left, for the kernel frees them.
    """
    for limit, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),  # version 2
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        with suppress(OSError, ValueError):  # there is no such file, or the limit is "max"
            most, taken = (int(Path(root, name).read_text("ascii")) for name in (limit, used))
            lines = Path(root, limit).with_name("memory.stat").read_text("ascii").splitlines()
            freed = next((int(line.split()[1]) for line in lines if line.startswith(f"{cache} ")), 0)
            return max(most - taken + freed, 0)
    return sys.maxsize


def default_memory() -> int:
    """Bytes that a job may take unless told otherwise: 4 GiB, or half of a small machine's memory."""
    return min(4 << 30, (physical_memory() or 8 << 30) // 2)


def release_freed() -> None:
    """Gives freed memory back to the system where the C library would keep it, as glibc does in each thread.

    It takes some milliseconds: call it after work that takes a second, in programs that run for long.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@lru_cache
def _malloc_trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def parse_bytes(amount: float | str) -> int:
    """A number of bytes, which may be given as people write it.

    >>> parse_bytes("2GiB"), parse_bytes("500 MB"), parse_bytes("1.5g"), parse_bytes(1e9)
    (2147483648, 500000000, 1610612736, 1000000000)
    """
    text = str(amount)
    units = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
    units |= {f"{u}ib": n for u, n in units.items() if u} | {"b": 1}
    units |= {f"{u}b": 1000**i for i, u in enumerate("kmgt", 1)}
    number = text.strip().lower().rstrip("kmgtib ")
    unit = text.strip().lower()[len(number) :].strip()
    try:
        count = float(number) * units[unit]
    except (ValueError, KeyError):
        count = math.nan
    if not (math.isfinite(count) and count >= 1):
        raise InvalidInput(f"{amount!r} is not an amount of memory: write it like 2GiB or 500MB.")
    return int(count)


def human_bytes(count: float) -> str:
    """
    >>> human_bytes(1_610_612_736)
    '1.5 GiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 999.5:  # three digits are shown
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"
