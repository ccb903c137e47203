"""Calls that run in background threads, a bounded number at a time."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Behind:
    """Runs calls in `threads` background threads. Without any, each call runs at once.

    At most `pending` calls wait or run, by default two for each thread: another one waits for the oldest.
    Leaving the `with` block waits for all calls. An error of a call is raised where the caller waits.
    """

    def __init__(self, threads: int, pending: int | None = None) -> None:
        self._threads = ThreadPoolExecutor(threads) if threads else None
        self._pending = pending or 2 * threads
        self._open: deque[Future[object]] = deque()

    def __call__(self, function: Callable[..., object], *given: object) -> None:
        if self._threads is None:
            function(*given)
            return
        if len(self._open) == self._pending:
            self._open.popleft().result()
        self._open.append(self._threads.submit(function, *given))

    def __enter__(self) -> "Behind":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=kind is not None)
        if kind is None:
            self.wait()

    def wait(self) -> None:
        """Waits for all calls, and raises the first error."""
        while self._open:
            self._open.popleft().result()
