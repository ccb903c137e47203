"""Dask clusters: one that is there, or one of processes on this machine."""

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from thera._version import __version__
from thera.errors import ClusterError
from thera.optional import require

if TYPE_CHECKING:
    from distributed import Client

#: Seconds to wait for a scheduler, and for its first worker.
PATIENCE = 10


@contextmanager
def connected(
    scheduler: str | None, workers: int = 1, threads: int = 1, cores: int = 1
) -> Iterator["Client"]:
    """A client of the scheduler at an address, or of one with so many workers on this machine, with which
    Dask computes as long as it lasts.

    Each worker on this machine does so many tasks at a time, one on each of its `threads`, and NumPy's own
    products in each of them take so many `cores`.
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
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            memory_limit=0,  # plans keep to theirs
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,  # what goes wrong is said by those who asked for it
            env=environment,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        client.as_current(),
    ):
        yield client


def _client(scheduler: str) -> "Client":
    from distributed import Client
    from distributed.comm import connect

    async def knock() -> None:
        (await connect(scheduler, timeout=PATIENCE)).abort()

    try:
        # A client that fails to connect is never closed, and haunts what Dask computes in this process later.
        asyncio.run(knock())
        return Client(scheduler, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:  # of which TimeoutError is one
        raise ClusterError(
            f"No Dask scheduler answers at {scheduler} ({error}): check the address, which reads like"
            " tcp://host:8786, or start one with `dask scheduler`."
        ) from error


def check(client: "Client") -> None:
    """Refuses a cluster whose scheduler or workers lack Thera, or have another version of it.

    Dask reads tasks where they run. A worker that cannot is dropped, and the others wait for it.
    """

    def version() -> str:  # being local, it is sent as it is: that takes no Thera over there
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
            told = "no thera" if isinstance(what, Exception) else f"thera {what}"
            raise ClusterError(
                f"The Dask {where} has {told} and this is thera {__version__}: install that there, with"
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
