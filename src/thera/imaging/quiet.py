"""Keeps the warnings that libraries print away from the terminal: what matters is said by Thera."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from threading import current_thread, main_thread


@contextmanager
def quiet() -> Iterator[None]:
    """Within it, nothing that is written to the process's standard error, or printed by Python, is shown.

    This holds for all threads, so only the main thread does it: a server, which reads pictures in other
    threads, must not lose lines of its log.
    """
    if current_thread() is not main_thread():
        yield
        return
    try:
        stderr = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    try:
        with suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        with redirect_stdout(io.StringIO()):  # OpenEXR prints there
            yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
