"""The protocol of an engine, which runs a network: ONNX Runtime, ncnn, OpenVINO or PyTorch."""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, current_thread, get_ident, main_thread
from time import monotonic, sleep
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from thera.errors import InvalidInput
from thera.field.head import Head as Head

Array = Any  # a NumPy array or a PyTorch tensor
Result = TypeVar("Result")

#: How to end what is computed in threads other than the main one.
_cancels: dict[int, Callable[[], None]] = {}
#: Set when the program ends.
_ending = Event()
ENDING_SECONDS = 10  # to wait for threads at the end

#: "auto" is f16 on CUDA GPUs (see `TorchEngine`) and f32 everywhere else.
PRECISIONS = ("auto", "f32", "tf32", "bf16", "f16")


def check_precision(precision: str) -> None:
    if precision not in PRECISIONS:
        raise InvalidInput(f"There is no precision {precision!r}: choose one of {', '.join(PRECISIONS)}.")


def as_numpy(image: Array) -> Array:
    """A float32 copy of an array, or of a tensor on any device."""
    if hasattr(image, "detach"):
        image = image.detach().cpu().numpy()
    return np.array(image, np.float32, order="C")


def default_threads() -> int:
    """One for each core that this process may use."""
    if re.fullmatch("[1-9][0-9]{0,4}", wanted := os.environ.get("OMP_NUM_THREADS", "")):
        return int(wanted)  # with 0, ncnn crashes
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        import ncnn
    except ImportError:
        return usable
    return max(1, min(usable, ncnn.get_physical_big_cpu_count()))


def interrupt(thread: int) -> None:
    """Ends what an engine computes in this thread, in an instant or two: the call there raises an error."""
    if (cancel := _cancels.get(thread)) is not None:
        cancel()


def ending() -> bool:
    """True once the program ends: threads that were cancelled then wait for good."""
    return _ending.is_set()


@contextmanager
def cancelled_by(cancel: Callable[[], None]) -> Iterator[None]:
    """While this lasts, `interrupt` of this thread and the end of the program call `cancel`."""
    if ending():
        Event().wait()
    _cancels[get_ident()] = cancel
    try:
        yield
    finally:
        del _cancels[get_ident()]
        if ending():
            Event().wait()  # for good: the program ends without this daemon thread


def interruptible(compute: Callable[[], Result], cancel: Callable[[], None]) -> Result:
    """compute(), in such a way that Ctrl-C calls `cancel` at once.

    Python handles signals in the main thread, between two of its own instructions. So the main thread waits
    while another one computes.
    """
    if current_thread() is not main_thread():
        with cancelled_by(cancel):
            return compute()
    with ThreadPoolExecutor(1) as pool:
        try:  # from here on: Ctrl-C may come before the result is waited for
            return pool.submit(compute).result()
        except BaseException:
            cancel()
            raise


@atexit.register
def _end() -> None:
    """Cancels what daemon threads compute, and waits for it.

    Python ends a daemon thread when it next runs Python code. If C++ calls that code, the program aborts.
    """
    _ending.set()
    deadline = monotonic() + ENDING_SECONDS
    while _cancels and monotonic() < deadline:
        for cancel in list(_cancels.values()):
            cancel()
        sleep(0.005)


class Engine(Protocol):
    """Computes the features of images on one device. Its arrays belong to the library it runs on."""

    name: str
    device: str
    precision: str
    head: Head

    def asarray(self, image: Array) -> Array:
        """A float32 copy of `image` on the engine's device."""

    def features(self, image: Array) -> Array:
        """The last layer's input, H×W×C, for an image H×W×3 in [0, 1] made by `asarray`."""


class FileEngine(Engine, Protocol):
    """An engine made from a model file. Several threads may call `features` at once."""

    metadata: dict[str, Any]  # the description in the file


@runtime_checkable
class ReplayEngine(Engine, Protocol):
    """An engine that can replay a whole computation in one launch."""

    def compute(self, image: Array) -> Array:
        """The same as `features`, but never replayed: for use inside a function that is."""

    def replay(
        self, key: Hashable | None, function: Callable[[Array], Array], image: Array, outputs: int = 0
    ) -> Array:
        """function(asarray(image)), replayed if that is faster, for an array or a tensor on any device.

        A `key` stands for one function and one shape; None means that the function will not be called again.
        `outputs` is the number of pixels that it returns.
        """
