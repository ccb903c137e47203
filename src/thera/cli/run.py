"""Scales files and folders for `thera upscale`, one file after the other."""

import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thera.cli.feedback import Feedback, Shown
from thera.cli.timing import Clock, human_time
from thera.errors import ImageFileError, InvalidInput, TheraError, UnreadableImage
from thera.field.threads import limit_threads
from thera.geo.files import Item, Request, prepare
from thera.imaging import AUTO, DEFAULT_MODEL, RESTORING_MODEL
from thera.memory import is_out_of_memory
from thera.models.choice import ModelChoice

if TYPE_CHECKING:
    from thera.geo.files import Job
    from thera.imaging.picture import Picture
    from thera.models import Model

#: Seconds that a model may take to load before somebody is told.
PATIENCE = 1.5

Record = dict[str, Any]  # the result of a file, as --json prints it


class Loading:
    """Gives a model, which is loaded once, in another thread.

    Started early, it loads while this thread imports the rest and reads the image.
    """

    def __init__(self, choice: ModelChoice, feedback: Feedback) -> None:
        self._choice, self._feedback = choice, feedback
        self.start = cache(lambda: ThreadPoolExecutor(1).submit(choice.load))

    def __call__(self) -> "Model":
        loading, name = self.start(), self._choice.name
        with suppress(TimeoutError):
            return loading.result(PATIENCE)
        compares = self._choice.engine == "auto" and self._choice.device in ("auto", "cpu")
        why = " (the first two times, engines may be compared)" if compares else ""
        self._feedback.wait_for(f"Opening {name}{why}")
        return loading.result()


@dataclass
class Scaler:
    """Scales files by one request, with a model that is loaded once. `dry`: only plans, writes nothing.

    `deliver` brings a file that is written to where it is wanted, before it is called done.
    """

    feedback: Feedback
    request: Request
    choice: ModelChoice
    dry: bool = False
    deliver: Callable[[Path], object] = lambda written: None

    def __post_init__(self) -> None:
        limit_threads(self.choice.threads)
        self._clocks: dict[str, Clock] = {}  # of each model, by its name
        self._left = ""  # how long the other files will take
        clean = replace(self.choice, name=DEFAULT_MODEL, strength=1.0)
        #: Gives the model; with `--model auto` the clean one.
        self.loaded = Loading(clean if self.automatic else self.choice, self.feedback)
        self._restoring = Loading(replace(self.choice, name=RESTORING_MODEL), self.feedback)
        if not self.automatic:
            self.loaded.start()

    @property
    def automatic(self) -> bool:
        return self.choice.name == AUTO

    def _chosen(self, item: Item) -> tuple[Loading, str, "Picture | None"]:
        """With `--model auto`: the model for a file, why it was chosen, and the picture if it was read."""
        if self.request.is_raster(item):
            return self.loaded, "measurements are not restored", None
        from thera.imaging.traces import traces
        from thera.models import shipped

        try:
            picture = self.request.file.read(item.source)
        except UnreadableImage:  # GDAL may read it
            return self.loaded, "it is no picture", None
        size = picture.layout.size
        if math.prod(self.request.target.for_image(size)) <= math.prod(size):
            return self.loaded, "it is not enlarged", picture
        found = traces(item.source, picture)
        reason = found.reason()
        if reason is None:
            return self.loaded, str(found), picture
        if RESTORING_MODEL not in [model.name for model in shipped()]:
            return self.loaded, f"{reason}, but no model named {RESTORING_MODEL} is installed", picture
        return self._restoring, reason, picture

    def attempt(self, item: Item, place: str = "") -> Record:
        """Scales one file, and returns its record. Errors are part of the record.

        `place`: "37 of 1,000" for one of many files. They are skipped if they are done.
        """
        record: Record = {"input": str(item.source)}
        try:
            if place and not self.request.file.overwrite:
                for output in filter(os.path.isfile, self.request.outputs(item)):
                    return record | {"output": str(output), "status": "skipped"}
            return record | self._scale(item, place)
        except TheraError as problem:
            error: Exception = problem
            if place and str(item.source) not in str(problem):
                error = ImageFileError(f"{item.source}: {problem}")
        except Exception as problem:
            if is_out_of_memory(problem):
                error = InvalidInput(f"{item.source} needs more memory than there is: lower --memory.")
            elif not place or isinstance(problem, click.ClickException):
                raise
            else:  # An unexpected error must not stop the other files.
                error = ImageFileError(f"{item.source} could not be scaled: {problem!r}.")
        return record | {"status": "failed", "error": self.feedback.named(str(error))}

    def attempt_all(self, items: list[Item]) -> Iterator[Record]:
        """Scales one file after the other, and gives their records."""
        began, scaled = time.monotonic(), 0
        for count, item in enumerate(items, 1):
            if scaled and not self.dry:
                seconds = (time.monotonic() - began) / scaled * (len(items) + 1 - count)
                self._left = f"about {human_time(seconds)} left for all"
            record = self.attempt(item, f"{count:,} of {len(items):,}")
            scaled += record["status"] == "done"
            yield record

    def _scale(self, item: Item, place: str) -> Record:
        """Reads, checks and plans a file, shows the plan, scales it, and says how long that took."""
        began = time.monotonic()
        model, reason, picture = self._chosen(item) if self.automatic else (self.loaded, "", None)
        job = self._planned(item, model, picture) if self.dry else prepare(item, model, self.request, picture)
        if self.request.file.quality is not None and not place and not job.form.lossy:
            raise click.UsageError(
                f"--quality is for JPEG, JPEG XL, WebP and AVIF, and this is {job.form.name.upper()}:"
                " leave it out."
            )
        unused = []
        if self.automatic and self.choice.strength != 1 and model is self.loaded:
            name = job.model.name
            unused = [f"--strength changes nothing here: {name} restores nothing that it could weaken"]
        feedback = self.feedback
        shown = Shown(item.source, job, f", as {reason}" if reason else "", place, unused)
        clock = self._clocks.setdefault(job.model.name, Clock(job.model, self.choice.threads))
        estimate = None if feedback.quiet and not self.dry else clock.estimate(job, always=self.dry)
        record = done(job.output, job.plan.source, job.plan.size, job.form.name, job.depth, job.model)
        record |= {
            "ensemble": self.request.options.ensemble,
            "tiles": job.tiles,
            "memory": job.plan.memory,
            "seconds": 0.0,
            "notes": [*job.notes, *unused],
        }
        if self.dry or not place:
            feedback.plan(shown, estimate, self.dry)
        if self.dry:
            return record | {"status": "planned", "seconds": round(estimate or 0, 3), "disk": job.disk}
        started = time.monotonic()
        left = {"left": self._left} if place else {}
        label = Path(feedback.named(str(item.source))).name
        label = f"{place} files · {label}" if place else label
        with feedback.progress(math.prod(job.plan.size), label, estimate, job.tiles, **left) as progress:
            self._run(job, progress)
        if estimate is not None and not self.request.resume:  # a part of it may have been there already
            clock.learn(job, time.monotonic() - started)
        self.deliver(job.output)
        seconds = time.monotonic() - began
        feedback.finished(shown, seconds)
        return record | {"seconds": round(seconds, 3)}

    def _run(self, job: "Job", progress: Callable[[float], object]) -> None:
        """Scales a file. If that is interrupted, says what is kept of it."""
        try:
            job.run(progress)
        except KeyboardInterrupt:
            if (kept := getattr(job, "kept", None)) is not None:
                self.feedback.say(kept)
            raise

    def _planned(self, item: Item, model: Loading, picture: "Picture | None") -> "Job":
        """The job of an item whose folder may not be there yet: it is checked where it would be made."""
        existing = item.folder
        while not os.path.isdir(existing) and existing != existing.parent:
            existing = existing.parent
        request = self.request
        if existing != item.folder:
            request = replace(request, file=replace(request.file, overwrite=True))
        job = prepare(item._replace(folder=existing), model, request, picture)
        return replace(job, output=item.output or item.folder / job.output.name)


def done(
    output: Path, source: tuple[int, int], size: tuple[int, int], form: str, depth: str, model: "Model"
) -> Record:
    """The record of a file of size `source` that was scaled to `size`, both (height, width)."""
    info = model.info
    return {
        "output": str(output),
        "status": "done",
        "from": [source[1], source[0]],
        "to": [size[1], size[0]],
        "format": form,
        "depth": depth,
        "model": info.name,
        "engine": info.engine,
        "device": info.device,
        "precision": info.precision,
    }
