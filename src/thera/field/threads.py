"""Blocks of NumPy work on all cores.

NumPy's elementwise functions use one core. Its matrix products use all, but synchronise after each product.
That costs a fifth of the time on an idle machine and most of it on a busy one. Blocks of cells are
independent, so one thread per core, each with single-threaded products, needs no synchronisation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock, local
from typing import Any, TypeVar

import array_api_compat

# More threads than this would wait for Python's global lock.
MOST_THREADS = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


_limit = 0


def limit_threads(count: int) -> None:
    """Lets this process use at most `count` threads at a time for its own work; 0 for all cores."""
    global _limit
    _limit = count


def usable_cores() -> int:
    """The cores that this process may use."""
    return min(os.cpu_count() or 1, _limit or MOST_THREADS)


def map_blocks(array: Any, work: Callable[[Item], Result], blocks: Sequence[Item]) -> list[Result]:
    """[work(block) for block in blocks] on all cores; in turn for torch, which uses all cores itself."""
    if array_api_compat.is_torch_array(array):
        return [work(block) for block in blocks]
    return on_all_cores(work, blocks)


def on_all_cores(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """[work(item) for item in items], in parallel if the threads of matrix products can be limited."""
    with _blas_threads.one_thread_each() as cores:
        threads = min(MOST_THREADS, cores, len(items), _limit or MOST_THREADS)
        if threads < 2 or getattr(_this_thread, "alone", False):
            return [work(item) for item in items]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, items))


_this_thread = local()


@contextmanager
def one_core() -> Iterator[None]:
    """Restricts this thread to one core, for callers that use all cores already, like a Dask worker.

    >>> with one_core():
    ...     on_all_cores(abs, [-1, 2])
    [1, 2]
    """
    before, _this_thread.alone = getattr(_this_thread, "alone", False), True
    try:
        yield
    finally:
        _this_thread.alone = before


class _BlasThreads:
    """The threads of NumPy's matrix products. Several threads may limit them at the same time: the first
    one stores the original limit, and the last one restores it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._holders, self._cores = 0, 1
        self._limit: Any = None

    @contextmanager
    def one_thread_each(self) -> Iterator[int]:
        """Limits products to one thread each. Gives the original number of threads; 1 if threadpoolctl,
        which sets the limit, is not installed."""
        with self._lock:
            if self._holders == 0 and (blas := _blas()) is not None:
                self._cores = max((library["num_threads"] for library in blas.info()), default=1)
                self._limit = blas.limit(limits=1)
                self._share(blas)
            self._holders += 1
        try:
            yield self._cores
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0 and (blas := _blas()) is not None:
                    self._limit.restore_original_limits()
                    self._share(blas)

    def _share(self, blas: Any) -> None:
        """Lets any thread change the limit. Since threadpoolctl 3.7 only the thread that set it may."""
        for library in blas.lib_controllers:
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread()


_blas_threads = _BlasThreads()


@cache
def _blas() -> Any:
    """The controller of the threads of NumPy's matrix products; None if it is not installed."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController().select(user_api="blas")
