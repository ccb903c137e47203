"""Messages and progress bars on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import click

from thera.memory import human_bytes

if TYPE_CHECKING:
    from thera.geo.upscaling import RasterScaling
    from thera.imaging.files import FileScaling

#: Encoded pixels per input pixel that are worth a note.
MUCH_OVERLAP = 1.6
#: Seconds before a progress bar appears.
BAR_DELAY = 2.0


@dataclass
class Feedback:
    """Writes messages to stderr, unless `quiet`."""

    quiet: bool

    def say(self, text: str) -> None:
        if self.quiet:
            return
        if "tqdm" in sys.modules:  # writes above a progress bar
            sys.modules["tqdm"].tqdm.write(text, file=sys.stderr)
        else:
            click.echo(text, err=True)

    def plan(self, source: str, job: "FileScaling | RasterScaling", ensemble: bool) -> None:
        """Shows the plan in one line: sizes, model, engine, tiles, memory."""
        plan, info = job.plan, job.model.info
        (H, W), (rows, cols) = plan.source, plan.size
        engine = f"{info.engine} on {info.device}" + (
            "" if info.precision == "f32" else f", {info.precision}"
        )
        tiles = "1 tile" if job.tiles == 1 else f"{job.tiles} tiles"
        rotations = ", 4 rotations" if ensemble else ""
        self.say(
            f"{source} {W}×{H} → {job.output} {cols}×{rows}"
            f" | {info.name} ({engine}{rotations}) | {tiles} | about {human_bytes(plan.memory)}"
        )
        for note in job.notes:
            self.say(f"  note: {note}")
        if plan.overlap > MUCH_OVERLAP:
            share = 1 - 1 / plan.overlap
            self.say(f"  note: {share:.0%} of the work is overlap between tiles; more --memory reduces it")

    @contextmanager
    def progress(self, total: int, name: str, unit: str = "px") -> Iterator[Callable[[float], object]]:
        """A progress bar with the rate and the time left. It appears after a delay, on terminals only."""
        if self.quiet or not sys.stderr.isatty():
            yield lambda done: None
            return
        from tqdm import tqdm

        done = Event()

        def show(bar: Any) -> None:
            """Refreshes the bar between its updates, since one tile may take longer than the delay."""
            if not done.wait(BAR_DELAY):
                bar.delay = 0
                while not done.wait(0.5):
                    bar.refresh()

        with tqdm(total=total, desc=name, unit=unit, unit_scale=True, delay=BAR_DELAY, leave=False) as bar:
            clock = Thread(target=show, args=(bar,), daemon=True)
            clock.start()
            try:
                yield bar.update
            finally:
                done.set()
                clock.join()
