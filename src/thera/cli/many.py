"""`thera upscale --workers` and `--scheduler`: folders and Zarr stores on a Dask cluster."""

import copy
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from thera.cli.feedback import Feedback
from thera.cli.run import Record, Scaler, done
from thera.cli.timing import human_time
from thera.errors import ClusterError, ImageFileError, InvalidInput, TheraError
from thera.files import partial_stem
from thera.geo.files import Item, Request
from thera.memory import default_memory
from thera.models.choice import ModelChoice
from thera.optional import require
from thera.values.meaning import Meaning

#: The least default memory of each of several tasks, in bytes.
LEAST_MEMORY = 1 << 30
#: Stands for the place of a file among many in a worker's messages.
PLACE = "\0"


class Cluster(NamedTuple):
    """A cluster: the scheduler at an address, or this many processes on this machine."""

    workers: int | None = None
    scheduler: str | None = None

    @property
    def cores(self) -> int:
        """Cores for each process on this machine."""
        return max(1, (os.cpu_count() or 1) // (self.workers or 1))

    def choice(self, scaler: Scaler) -> ModelChoice:
        """The model as workers load it. On this machine all use the engine that this process has chosen."""
        if self.scheduler is not None:
            return scaler.choice
        return replace(scaler.choice, engine=scaler.loaded().info.engine)

    def memory(self, given: int | None, tasks: int) -> int | None:
        """The memory of each of several tasks. On this machine they share `given`, or the default."""
        if self.scheduler is not None:
            return given
        return max(LEAST_MEMORY, default_memory() // tasks) if given is None else given // tasks


def scale_files(scaler: Scaler, items: Sequence[Item], cluster: Cluster) -> Iterator[Record]:
    """Scales several files at a time, and gives their records as they end."""
    distributed = require("distributed", "dask", "scaling several files at a time")
    from thera.dask.clusters import connected

    workers, threads = cluster.workers or 1, cluster.cores
    if cluster.scheduler is not None:
        threads = 1  # the cluster decides how many tasks a worker runs at a time
        items = [Item(path.resolve(), folder.resolve(), stem) for path, folder, stem, _ in items]
    memory = cluster.memory(scaler.request.options.memory, workers)
    request = replace(scaler.request, options=replace(scaler.request.options, memory=memory))
    choice = replace(cluster.choice(scaler), threads=scaler.choice.threads or threads)
    _announce(cluster, scaler.feedback)
    with (
        _without_partial_files(items, cluster),
        connected(cluster.scheduler, workers, cores=cluster.cores) as client,
        scaler.feedback.progress(len(items), f"{len(items):,} files") as progress,
    ):
        futures = {client.submit(scale_file, request, choice, item, pure=False): item for item in items}
        for count, future in enumerate(distributed.as_completed(futures), 1):
            record, messages = _outcome(future, futures[future].source)
            for message in messages:
                scaler.feedback.say(message.replace(PLACE, f"{count:,} of {len(items):,}", 1))
            progress(1)
            yield record


def scale_file(request: Request, choice: ModelChoice, item: Item) -> tuple[Record, list[str]]:
    """Runs on a worker: scales a file, and returns its record and messages."""
    with _making:
        scaler = copy.copy(_scaler(request, choice))
    scaler.feedback = collected = Messages()
    return scaler.attempt(item, PLACE), collected.messages


class Messages(Feedback):
    """Collects messages, which the process at the terminal shows."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.messages: list[str] = []

    def say(self, text: str) -> None:
        self.messages.append(text)


_making = Lock()


@lru_cache(1)
def _scaler(request: Request, choice: ModelChoice) -> Scaler:
    """One scaler for all files of a call, so that the model is loaded once."""
    return Scaler(Messages(), request, choice)


def _outcome(future: Any, source: Path) -> tuple[Record, list[str]]:
    """The record and messages of a file whose task has ended."""
    from distributed import KilledWorker

    if future.status == "finished":
        return future.result()
    if future.status != "error":
        raise ClusterError(
            "The connection to the Dask scheduler was lost: run the same command again to scale the files"
            " that are still missing."
        )
    problem = future.exception()
    reason = repr(problem)
    if isinstance(problem, KilledWorker):
        reason = "every worker that tried it died, maybe for lack of memory (use fewer, or lower --memory)"
    return {
        "input": str(source),
        "status": "failed",
        "error": f"{source} could not be scaled: {reason}.",
    }, []


@contextmanager
def _without_partial_files(items: Iterable[Item], cluster: Cluster) -> Iterator[None]:
    """Removes the partial files of killed workers at the end."""
    stems: dict[Path, set[str]] = {}
    for source, folder, stem, _ in items:
        stems.setdefault(folder, set()).update((stem[:40], source.stem[:40]))

    def partial() -> set[Path]:
        return {
            path for folder, own in stems.items() for path in folder.iterdir() if partial_stem(path) in own
        }

    before, over = partial(), False
    try:
        yield
        over = True
    finally:
        if over or cluster.scheduler is None:  # workers elsewhere may still be writing
            for path in partial() - before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def scale_store(scaler: Scaler, source: Path, output: Path | None, cluster: Cluster) -> Record:
    """Scales a Zarr store, and returns its record."""
    began = time.monotonic()
    record: Record = {"input": str(source)}
    try:
        record |= _scale_store(scaler, source, output, cluster)
        seconds = time.monotonic() - began
        if record["status"] == "done":
            scaler.feedback.say(f"{record['output']} is done in {human_time(seconds)}.")
        return record | {"seconds": round(seconds, 3)}
    except TheraError as error:
        return record | {"status": "failed", "error": str(error)}


def _scale_store(scaler: Scaler, source: Path, output: Path | None, cluster: Cluster) -> Record:
    if not os.path.isdir(source):
        message = "is no folder, as Zarr stores are" if os.path.exists(source) else "does not exist"
        raise ImageFileError(f"{source} {message}.")
    request, file = scaler.request, scaler.request.file
    options = {"format": file.form, "quality": file.quality, "dpi": request.target.resolution}
    options |= {"cog": request.cog or None, "linear": file.linear or None, "resume": request.resume or None}
    for option, value in (options | request.choice._asdict()).items():
        if value is not None:
            raise InvalidInput(f"--{option} is for image files and {source} is a Zarr store: leave it out.")
    require("dask", "dask", "a Zarr store")
    from thera.dask.arrays import TASK_MEMORY, Settings
    from thera.dask.stores import prepare_store
    from thera.dask.tasks import ModelName

    info = scaler.loaded().info
    output = output or source.with_name(f"{source.stem}_{request.target.label}{source.suffix}")
    if cluster.scheduler is not None:  # workers elsewhere have another current folder
        source, output = source.resolve(), output.resolve()
    with _compute_with(cluster, scaler.feedback) as tasks:
        memory = cluster.memory(request.options.memory, tasks) or TASK_MEMORY
        meaning = Meaning(request.stretch, alpha="data" if file.alpha == "data" else None)
        settings = Settings(
            ModelName.of(cluster.choice(scaler)), replace(request.options, memory=memory), meaning
        )
        job = prepare_store(source, output, request.target, settings, overwrite=file.overwrite)
        chunks = "1 chunk" if job.chunks == 1 else f"{job.chunks:,} chunks"
        scaler.feedback.say(
            f"{source} {job.source[1]}×{job.source[0]} → {job.output} {job.size[1]}×{job.size[0]}"
            f" | {info.name} ({info.engine} on {info.device}) | {chunks}, {tasks} at a time"
        )
        record = done(job.output, job.source, job.size, "zarr", job.dtypes, scaler.loaded())
        record |= {"ensemble": request.options.ensemble, "tiles": job.chunks, "notes": []}
        if scaler.dry:
            return record | {"status": "planned"}
        with scaler.feedback.progress(job.chunks, source.name) as progress:
            job.run(progress)
    return record


@contextmanager
def _compute_with(cluster: Cluster, feedback: Feedback) -> Iterator[int]:
    """Dask computes on the cluster, or by default in this process. Gives the number of tasks at a time."""
    from thera.dask.clusters import connected

    if cluster == Cluster():
        yield cluster.cores
        return
    _announce(cluster, feedback)
    with connected(cluster.scheduler, cluster.workers or 1, threads=cluster.cores) as client:
        yield sum(client.nthreads().values())


def _announce(cluster: Cluster, feedback: Feedback) -> None:
    """Says that processes are started, which takes some seconds."""
    if cluster.scheduler is None:
        count = cluster.workers or 1
        feedback.wait_for(f"Starting {count} worker{'s' * (count > 1)}")
