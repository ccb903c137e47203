"""Blocks of NumPy work on all cores.

NumPy's elementwise functions use one core. Its matrix products use all, but wait for one another after each
of them, which costs a fifth of the time on an idle machine and most of it on a busy one. Blocks of cells do
not depend on each other: a thread for each core, with products of one thread each, needs no waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock, local
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
    with _products.one_thread_each() as cores:
        threads = min(MOST_THREADS, cores, len(items))
        if threads < 2 or getattr(_here, "alone", False):
            return [work(item) for item in items]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, items))


_here = local()


@contextmanager
def one_core() -> Iterator[None]:
    """Within it this thread works alone: for whoever keeps the cores busy already, as a Dask worker does.

    >>> with one_core():
    ...     on_all_cores(abs, [-1, 2])
    [1, 2]
    """
    before, _here.alone = getattr(_here, "alone", False), True
    try:
        yield
    finally:
        _here.alone = before


class _Products:
    """The threads of NumPy's matrix products. Several threads may hold them back at the same time: what the
    first of them found is what the last one leaves."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._holders, self._cores = 0, 1
        self._limit: Any = None

    @contextmanager
    def one_thread_each(self) -> Iterator[int]:
        """Products take one thread each until the end of it. Gives how many they took before: 1 if nothing
        is installed to hold them back with."""
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
        """Lets any thread set the number next: threadpoolctl from 3.7 on keeps that to the one that has."""
        for library in blas.lib_controllers:
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread()


_products = _Products()


@cache
def _blas() -> Any:
    """What holds back the threads of NumPy's matrix products, where it is installed."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController().select(user_api="blas")
