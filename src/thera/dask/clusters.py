"""Dask clusters: one that is there, or one of processes on this machine."""

import asyncio
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from thera._version import __version__
from thera.errors import ClusterError
from thera.optional import require

if TYPE_CHECKING:
    from distributed import Client
    from tornado.ioloop import IOLoop

#: Seconds to wait for a scheduler, and for its first worker.
PATIENCE = 10


@contextmanager
def connected(
    scheduler: str | None, workers: int = 1, threads: int = 1, cores: int = 1
) -> Iterator["Client"]:
    """A client of the scheduler at an address, or of a new cluster of processes on this machine.

    Each thread of a worker runs one task at a time, in which NumPy's matrix products take so many `cores`.
    """
    distributed = require("distributed", "dask", "work on several processes or machines")
    if scheduler is not None:
        with _client(scheduler) as client, client.as_current():
            try:
                client.wait_for_workers(1, timeout=PATIENCE)
            except TimeoutError as error:
                raise ClusterError(
                    f"The Dask scheduler at {scheduler} has no workers: start some with"
                    f" `dask worker {scheduler}`."
                ) from error
            check(client)
            yield client
        return
    environment = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(cores))
    with (
        _uninterrupted_loop() as loop,
        distributed.LocalCluster(
            loop=loop,
            n_workers=workers,
            threads_per_worker=threads,
            memory_limit=0,  # tasks keep to the memory of their plans
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,  # errors reach the caller, who reports them
            env=environment,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        client.as_current(),
    ):
        yield client


@contextmanager
def _uninterrupted_loop() -> Iterator["IOLoop"]:
    """An event loop whose processes do not hear of Ctrl-C: a terminal tells all processes, and workers would
    print a traceback. This process ends them.

    Processes inherit which signals are blocked from the thread that starts them, and threads do, too.
    """
    from distributed.utils import LoopRunner

    runner = LoopRunner()
    if hasattr(signal, "pthread_sigmask"):  # Windows has none
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # a thread that starts it hears of Ctrl-C again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            runner.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    else:
        runner.start()
    try:
        yield runner.loop
    finally:
        runner.stop()


def _client(scheduler: str) -> "Client":
    from distributed import Client
    from distributed.comm import connect

    async def knock() -> None:
        (await connect(scheduler, timeout=PATIENCE)).abort()

    try:
        # A client that fails to connect is never closed and disturbs later computations of this process.
        asyncio.run(knock())
        return Client(scheduler, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:  # of which TimeoutError is one
        raise ClusterError(
            f"No Dask scheduler answers at {scheduler} ({error}): check the address, which reads like"
            " tcp://host:8786, or start one with `dask scheduler`."
        ) from error


def check(client: "Client") -> None:
    """Refuses a cluster whose scheduler or workers lack Thera, or have another version of it.

    Tasks are unpickled where they run. A worker that cannot do that is dropped, and the others wait for it.
    """

    def version() -> str:  # a local function is sent by value, so it runs also where Thera is missing
        import thera

        return thera.__version__

    found: dict[str, Any] = {}
    try:
        found["scheduler"] = client.run_on_scheduler(version)
    except ImportError as error:
        found["scheduler"] = error
    found |= {f"worker {where}": what for where, what in client.run(version, on_error="return").items()}
    for where, what in found.items():
        if what != __version__:
            message = "no thera" if isinstance(what, Exception) else f"thera {what}"
            raise ClusterError(
                f"The Dask {where} has {message} and this is thera {__version__}: install that there, with"
                f" pip install 'thera[dask]=={__version__}'."
            )


def check_current() -> None:
    """Checks the cluster that this process is connected to, if it is."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return
    try:
        client = distributed.default_client()
    except ValueError:
        return
    if not client.asynchronous and client.status == "running":
        check(client)
