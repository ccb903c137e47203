"""Blocks of NumPy work on all cores.

NumPy's elementwise functions use one core. Its matrix products use all, but wait for one another after each
of them, which costs a fifth of the time on an idle machine and most of it on a busy one. Blocks of cells do
not depend on each other: a thread for each core, with products of one thread each, needs no waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import array_api_compat

# More of them than this would wait for Python's own lock.
MOST_THREADS = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(array: Any, work: Callable[[Item], Result], blocks: Sequence[Item]) -> list[Result]:
    """[work(block) for block in blocks] of an array, on all cores; torch sees to that itself."""
    if array_api_compat.is_torch_array(array):
        return [work(block) for block in blocks]
    return on_all_cores(work, blocks)


def on_all_cores(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """[work(item) for item in items], several at once where the matrix library's threads can be held back."""
    controller = _blas()
    if controller is None:
        return [work(item) for item in items]
    threads = min(MOST_THREADS, max((library["num_threads"] for library in controller.info()), default=1))
    with controller.limit(limits=1):
        if min(threads, len(items)) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(min(threads, len(items))) as pool:
            return list(pool.map(work, items))


@cache
def _blas() -> Any:
    """What holds back the threads of NumPy's matrix products, where it is installed."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController().select(user_api="blas")
