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
from thera.cli.run import Item, Record, Run, model_facts
from thera.errors import ClusterError, ImageFileError, InvalidInput, TheraError
from thera.files import partial_stem
from thera.geo.files import Request
from thera.memory import default_memory
from thera.models.choice import ModelChoice
from thera.optional import require
from thera.values.meaning import Meaning

#: Bytes that each of several tasks may take at least, unless given.
LEAST_MEMORY = 1 << 30


class Cluster(NamedTuple):
    """Where to work: at the scheduler of that address, or in so many processes here."""

    workers: int | None = None
    scheduler: str | None = None

    @property
    def cores(self) -> int:
        """How many each process here gets."""
        return max(1, (os.cpu_count() or 1) // (self.workers or 1))

    def memory(self, given: int | None, tasks: int) -> int | None:
        """What each of several tasks may take, here a share of what all of them may."""
        if self.scheduler is not None:
            return given
        return max(LEAST_MEMORY, default_memory() // tasks) if given is None else given // tasks


def scale_files(run: Run, items: Sequence[Item], cluster: Cluster) -> list[Record]:
    """The records of all files in their order, several of which are scaled at a time."""
    distributed = require("distributed", "dask", "scaling several files at a time")
    from thera.dask.clusters import connected

    workers, threads = cluster.workers or 1, cluster.cores
    if cluster.scheduler is not None:
        threads = 1  # others decide how many tasks their workers do at a time
        items = [Item(path.resolve(), folder.resolve(), stem) for path, folder, stem, _ in items]
    memory = cluster.memory(run.request.options.memory, workers)
    request = replace(run.request, options=replace(run.request.options, memory=memory))
    choice = replace(run.choice, threads=threads)
    records: list[Record] = [{} for _ in items]
    with (
        _without_partial_files(items, cluster),
        connected(cluster.scheduler, workers, cores=cluster.cores) as client,
        run.feedback.progress(len(items), "all files", unit=" files") as progress,
    ):
        futures = {
            client.submit(scale_file, request, choice, each, pure=False): at for at, each in enumerate(items)
        }
        for future in distributed.as_completed(futures):
            at = futures[future]
            records[at], said = _outcome(future, items[at].source)
            for line in said:
                run.feedback.say(line)
            progress(1)
    return records


def scale_file(request: Request, choice: ModelChoice, item: Item) -> tuple[Record, list[str]]:
    """On a worker: the record of a file, and what there is to say about it."""
    with _making:
        run = copy.copy(_run(request, choice))
    run.feedback = notes = Notes()
    return run.attempt(item, one_of_many=True), notes.said


class Notes(Feedback):
    """Keeps what there is to say for the process that somebody looks at."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


_making = Lock()


@lru_cache(1)
def _run(request: Request, choice: ModelChoice) -> Run:
    """One for all files of a call: it loads the model."""
    return Run(Notes(), request, choice)


def _outcome(future: Any, source: Path) -> tuple[Record, list[str]]:
    """What came of a file whose task is over."""
    from distributed import KilledWorker

    if future.status == "finished":
        return future.result()
    if future.status != "error":
        raise ClusterError(
            "The connection to the Dask scheduler was lost: run the same command again, and it goes on with"
            " the files that are not there."
        )
    problem = future.exception()
    reason = repr(problem)
    if isinstance(problem, KilledWorker):
        reason = "every worker that tried it died, maybe for want of memory (use fewer, or lower --memory)"
    return {
        "input": str(source),
        "status": "failed",
        "error": f"{source} could not be scaled: {reason}.",
    }, []


@contextmanager
def _without_partial_files(items: Iterable[Item], cluster: Cluster) -> Iterator[None]:
    """Removes what workers were writing when they were killed, once nobody writes any more."""
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
        if over or cluster.scheduler is None:  # workers elsewhere finish what they have begun
            for path in partial() - before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def scale_store(run: Run, source: Path, output: Path | None, cluster: Cluster) -> Record:
    """Scales a Zarr store, and says what came of it."""
    began = time.monotonic()
    record: Record = {"input": str(source)}
    try:
        return (
            record
            | _scale_store(run, source, output, cluster)
            | {"seconds": round(time.monotonic() - began, 3)}
        )
    except TheraError as error:
        return record | {"status": "failed", "error": str(error)}


def _scale_store(run: Run, source: Path, output: Path | None, cluster: Cluster) -> Record:
    if not os.path.isdir(source):
        message = "is no folder, as Zarr stores are" if os.path.exists(source) else "does not exist"
        raise ImageFileError(f"{source} {message}.")
    request, file = run.request, run.request.file
    for option, value in (("format", file.form), ("quality", file.quality), ("cog", request.cog or None)):
        if value is not None:
            raise InvalidInput(f"--{option} is for image files and {source} is a Zarr store: leave it out.")
    require("dask", "dask", "a Zarr store")
    from thera.dask.arrays import TASK_MEMORY, Settings
    from thera.dask.stores import prepare_store
    from thera.dask.tasks import ModelName

    info = run.loaded().info
    output = output or source.with_name(f"{source.stem}_{request.target.label}{source.suffix}")
    if cluster.scheduler is not None:  # workers elsewhere know of no current folder
        source, output = source.resolve(), output.resolve()
    with _compute_with(cluster) as tasks:
        memory = cluster.memory(request.options.memory, tasks) or TASK_MEMORY
        meaning = Meaning(request.stretch, alpha="data" if file.alpha == "data" else None)
        settings = Settings(ModelName.of(run.choice), replace(request.options, memory=memory), meaning)
        job = prepare_store(source, output, request.target, settings, overwrite=file.overwrite)
        run.feedback.say(
            f"{source} {job.source[1]}×{job.source[0]} → {job.output} {job.size[1]}×{job.size[0]}"
            f" | {info.name} ({info.engine} on {info.device}) | {job.chunks} chunks, {tasks} at a time"
        )
        with run.feedback.progress(job.chunks, source.name, unit=" chunks") as progress:
            job.run(progress)
    return {
        "output": str(job.output),
        "status": "done",
        "from": [job.source[1], job.source[0]],
        "to": [job.size[1], job.size[0]],
        "format": "zarr",
        "depth": job.dtypes,
        **model_facts(run.loaded()),
        "ensemble": request.options.ensemble,
        "tiles": job.chunks,
        "notes": [],
    }


@contextmanager
def _compute_with(cluster: Cluster) -> Iterator[int]:
    """Dask computes there, or in threads of this process. Gives the number of tasks at a time."""
    from thera.dask.clusters import connected

    if cluster == Cluster():
        yield cluster.cores
        return
    with connected(cluster.scheduler, cluster.workers or 1, threads=cluster.cores) as client:
        yield sum(client.nthreads().values())
