"""Compress rows of pixels on all cores, in order, with a limited number of tasks in flight."""

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from thera.field.threads import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Raw bytes in one piece: large enough to compress well on its own, small enough to use all cores.
PIECE = 2**19


def in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`map` on threads. At most two items per thread are read ahead."""
    workers = min(8, usable_cores())
    with ThreadPoolExecutor(workers, thread_name_prefix="deflate") as pool:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def deflate(data: bytes, wbits: int, last: bool = True) -> bytes:
    """Predicted samples compressed by zlib. Unless `last`, the stream stays open at a byte boundary.

    Predicted samples of photographs have short runs but no repeated phrases. Searching only for runs is ten
    times as fast as the usual search, and compresses them better. Drawings have repeated phrases: data that
    compresses well is therefore searched in full, too.
    """

    def compressed(strategy: int) -> bytes:
        stream = zlib.compressobj(6, zlib.DEFLATED, wbits, 9, strategy)
        return stream.compress(data) + stream.flush(zlib.Z_FINISH if last else zlib.Z_FULL_FLUSH)

    runs = compressed(zlib.Z_RLE)
    if len(runs) > 0.3 * len(data):
        return runs
    return min(runs, compressed(zlib.Z_DEFAULT_STRATEGY), key=len)


def regrouped(bands: Iterable[NDArray], rows: int) -> Iterator[NDArray]:
    """The rows of `bands` in groups of `rows`; the last group may be shorter."""
    held: list[NDArray] = []
    count = 0
    for band in bands:
        while count + len(band) >= rows:
            need = rows - count
            held.append(band[:need])
            yield held[0] if len(held) == 1 else np.concatenate(held)
            held, count, band = [], 0, band[need:]
        if len(band):
            held.append(band)
            count += len(band)
    if held:
        yield np.concatenate(held)
