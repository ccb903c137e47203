"""Messages and progress bars on stderr."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from thera.cli.timing import human_time
from thera.memory import human_bytes

if TYPE_CHECKING:
    from thera.geo.files import Job

#: Encoded pixels per input pixel that are worth a note.
MUCH_OVERLAP = 1.6
#: Seconds before a progress bar appears, and between its movements.
BAR_DELAY, BAR_STEP = 0.5, 0.2
#: The width of a bar on a terminal that reports 0 columns.
COLUMNS = 80
#: A bar is never this far before the work has got there.
ALMOST = 0.95


def json_text(facts: object, indent: int | None = None) -> str:
    """Facts as JSON. A name that is no UTF-8 holds surrogates, which are escaped."""
    text = json.dumps(facts, indent=indent, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def echo(text: str) -> None:
    """Prints a line on stderr. If that is closed or full, nobody reads it, which is no reason to stop."""
    with suppress(OSError):
        click.echo(text, err=True)


class Shown(NamedTuple):
    """A file as messages speak of it: why its model was chosen, its place among many, notes of its own."""

    source: Path
    job: "Job"
    reason: str
    place: str
    notes: Sequence[str] = ()

    @property
    def start(self) -> str:
        return f"{self.place}  {self.source}" if self.place else str(self.source)


@dataclass
class Feedback:
    """Writes messages to stderr, unless `quiet`.

    `shown` has other names, such as stdin, for some paths without their extensions.
    """

    quiet: bool
    shown: dict[str, str] = field(default_factory=dict)

    def named(self, text: str) -> str:
        """The text with the names that paths are shown by."""
        for path, name in self.shown.items():
            # A name may hold backslashes, which mean something in a replacement.
            text = name.join(re.split(rf"{re.escape(path)}(?:\.\w+)?", text))
        return text

    def say(self, text: str) -> None:
        if self.quiet:
            return
        if "tqdm" in sys.modules and sys.stderr.isatty():  # writes above a progress bar
            sys.modules["tqdm"].tqdm.write(self.named(text), file=sys.stderr)
        else:
            echo(self.named(text))

    def wait_for(self, what: str) -> None:
        """Says on a terminal what takes some seconds now."""
        if sys.stderr.isatty():
            self.say(f"{what} …")

    def plan(self, shown: Shown, seconds: float | None, dry: bool) -> None:
        """Shows the plan in one line: sizes, model and why it was chosen, engine, tiles, memory, time."""
        job = shown.job
        plan, info = job.plan, job.model.info
        precision = "" if info.precision == "f32" else f", {info.precision}"
        rotations = ", 4 rotations" if job.options.ensemble else ""
        engine = f"{info.name}{shown.reason} ({info.engine} on {info.device}{precision}{rotations})"
        tiles = "1 tile" if job.tiles == 1 else f"{job.tiles:,} tiles"
        took = f" | about {human_time(seconds)}" if seconds else ""
        disk = f" | up to {human_bytes(job.disk)} on disk" if dry else ""
        (H, W), (rows, cols) = plan.source, plan.size
        need = f"{tiles}, {human_bytes(plan.memory)}{took}{disk}"
        self.say(f"{shown.start} {W}×{H} → {job.output} {cols}×{rows} | {engine} | {need}")
        self.notes(shown)

    def finished(self, shown: Shown, seconds: float) -> None:
        """Says how long a file took, and for one of many what it became."""
        job = shown.job
        if not shown.place:
            self.say(f"{job.output} is done in {human_time(seconds)}.")
            return
        (H, W), (rows, cols) = job.plan.source, job.plan.size
        chosen = f" by {job.model.name}{shown.reason}" if shown.reason else ""
        self.say(f"{shown.start} {W}×{H} → {cols}×{rows}{chosen} in {human_time(seconds)}")
        self.notes(shown)

    def notes(self, shown: Shown) -> None:
        """What a user should know of a file."""
        job = shown.job
        for note in (*job.notes, *shown.notes):
            self.say(f"  note: {note}")
        # Tiles that are encoded side by side overlap for the sake of time.
        if job.tiles > 1 and job.plan.workers == 1 and job.plan.overlap > MUCH_OVERLAP:
            share = 1 - 1 / job.plan.overlap
            self.say(f"  note: {share:.0%} of the work is overlap between tiles; more --memory reduces it")

    @contextmanager
    def progress(
        self,
        total: float,
        name: str,
        seconds: float | None = None,
        steps: int = 1,
        left: str = "{remaining} left",
    ) -> Iterator[Callable[[float], object]]:
        """A progress bar with the time left. It appears after a delay, on terminals only.

        If it is known how many `seconds` all of it takes, the bar also moves between two of the `steps` in
        which progress is reported. `left`: what is said of the time that is left.
        """
        if self.quiet or not sys.stderr.isatty():
            yield lambda done: None
            return
        from tqdm import tqdm

        done, reported, ended = 0.0, time.monotonic(), Event()

        def count(part: float) -> None:
            nonlocal done, reported
            done, reported = done + part, time.monotonic()

        def show(bar: Any) -> None:
            pause = BAR_DELAY
            while not ended.wait(pause):
                ahead = 0.0
                if seconds:
                    ahead = min(ALMOST / steps, (time.monotonic() - reported) / seconds) * total
                bar.delay, pause = 0, BAR_STEP
                bar.n = max(bar.n, min(done + ahead, ALMOST * total))
                bar.refresh()

        form = f"{{desc}} {{percentage:3.0f}}% {{bar:24}} {left}"
        with tqdm(total=total, desc=name, bar_format=form, smoothing=0, delay=BAR_DELAY, leave=False) as bar:
            if bar.ncols is not None and bar.ncols < 1:
                bar.ncols, bar.nrows = COLUMNS, None
            clock = Thread(target=show, args=(bar,), daemon=True)
            clock.start()
            try:
                yield count
            finally:
                ended.set()
                clock.join()
