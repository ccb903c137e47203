"""The queue of the program behind the page: what it encodes and the files it makes, as jobs.

Each kind of job has a thread of its own, so that encoding a view and making a file go on side by side. They
take turns at the network, tile by tile (`FairLock`), so that neither waits for the other to end.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread, get_ident
from typing import Any, Literal

from thera.errors import TheraError, UnknownImage
from thera.models.engine import interrupt

Kind = Literal["field", "download", "measure"]
State = Literal["queued", "running", "done", "failed", "cancelled"]

#: Seconds without an open page after which a download is cancelled.
FORGOTTEN = 600.0
#: Downloads whose files are kept, and their bytes in all. The oldest go first.
KEPT, KEPT_BYTES = 100, 8 << 30
#: Seconds between two messages to a page, and between two looks whether it is still there.
PAUSE, LOOK = 0.1, 0.25
#: The share from which a job's own pace is a better measure than what was expected.
OWN_PACE = 0.02


class Stopped(Exception):
    """The job was cancelled."""


class FairLock:
    """A re-entrant lock that goes to whoever has waited longest."""

    def __init__(self) -> None:
        self._state, self._owner, self._depth = Lock(), 0, 0
        self._waiting: deque[tuple[int, Lock]] = deque()

    def __enter__(self) -> None:
        with self._state:
            if self._owner in (0, get_ident()):
                self._owner, self._depth = get_ident(), self._depth + 1
                return
            turn = Lock()
            turn.acquire()
            self._waiting.append((get_ident(), turn))
        turn.acquire()  # until it is handed on

    def __exit__(self, *error: object) -> None:
        with self._state:
            self._depth -= 1
            if self._depth:
                return
            self._owner = 0
            if self._waiting:
                self._owner, turn = self._waiting.popleft()
                self._depth = 1
                turn.release()


class Job:
    """One piece of work. `about` is what pages are told of it; `page` is the one that alone waits for it."""

    def __init__(self, kind: Kind, work: Callable[[Job], Any], about: dict[str, Any], page: str) -> None:
        self.id, self.kind, self.about, self.page = secrets.token_urlsafe(9), kind, about, page
        self.state: State = "queued"
        self.share, self.message, self.result = 0.0, "", None
        #: Seconds that all of it takes, about; None if nothing is known.
        self.expected: float | None = None
        self.began = self.ended = 0.0
        self._reported = self._guess = 0.0  # the seconds of the last report, and the share by the clock
        self._work, self._thread, self._lock = work, 0, Lock()
        self.changed: Callable[[], object] = lambda: None

    @property
    def active(self) -> bool:
        return self.state in ("queued", "running")

    def report(self, share: float) -> None:
        """Reports the share done. Raises `Stopped` if the job was cancelled."""
        share = min(1.0, share)
        if share > self.share:
            self.share, self._reported = share, time.monotonic() - self.began
        self.changed()
        if self.state == "cancelled":
            raise Stopped

    def describe(self) -> dict[str, Any]:
        facts = {"id": self.id, "kind": self.kind, "state": self.state, "message": self.message}
        share, left = self._progress()
        return {**facts, "share": round(share, 4), "left": left, **self.about}

    def _progress(self) -> tuple[float, float | None]:
        """The share that is done, and the seconds that it still takes, about; None if nothing is known.

        The first report may come late, as that of a large tile does. Until then the clock says how far an
        encoding is.
        """
        if self.state != "running":
            return self.share, None
        spent, left = time.monotonic() - self.began, 0.0
        if self.share >= OWN_PACE:
            rest = 1 / self.share - 1
            left = self._reported * rest - (spent - self._reported)
            left = left if left > 0 else spent * rest  # it has become slower
        elif self.expected is not None:
            left = self.expected - spent
            if self.kind == "field":  # of files, pages tell the percentage
                self._guess = min(0.95, spent / max(self.expected, 0.01))
        # 0 would read as unknown.
        return max(self.share, self._guess), max(round(left, 1), 0.1) if left > 0 else None

    def cancel(self) -> None:
        """Ends it within an operator of the network."""
        with self._lock:
            if not self.active:
                return
            self._end("cancelled")
            running = self._thread != 0
        if running:
            Thread(target=self._interrupt, daemon=True).start()

    def _interrupt(self) -> None:
        """Interrupts the network until the work has ended: at first it may not have begun to compute."""
        while True:
            with self._lock:
                if not self._thread:
                    return
                interrupt(self._thread)
            time.sleep(0.1)

    def discard(self) -> None:
        """Cancels it and drops its result: a file goes with the folder it is in."""
        self.cancel()
        with self._lock:
            if isinstance(self.result, Path):
                shutil.rmtree(self.result.parent, ignore_errors=True)
            self.result = None

    def again(self) -> Job:
        """The same job, to be run from its start. The earlier run may still be ending."""
        job = Job(self.kind, self._work, self.about, self.page)
        job.id, job.changed = self.id, self.changed
        return job

    def run(self) -> None:
        with self._lock:
            if self.state != "queued":
                return
            self.state, self.began, self._thread = "running", time.monotonic(), get_ident()
        self.changed()
        result, message = None, ""
        try:
            result = self._work(self)
        except TheraError as error:
            message = error.problem
        except MemoryError:
            message = "This needs more memory than there is: choose a smaller size."
        except Exception as error:
            # The page must hear of it, and the program go on. A cancelled job may end by any error.
            message = f"Something went wrong that should not have: {error!r}."
        with self._lock:
            self._thread = 0
            if self.state == "cancelled":
                if isinstance(result, Path):
                    shutil.rmtree(result.parent, ignore_errors=True)
                return
            self.message, self.result = message, result
            self.share = self.share if message else 1.0
            self._end("failed" if message else "done")

    def _end(self, state: State) -> None:
        self.state, self.ended = state, time.monotonic()
        self.changed()


class Queue:
    """All jobs, and the pages that look at them."""

    def __init__(self) -> None:
        self._pools: dict[Kind, ThreadPoolExecutor] = {}
        self._jobs: dict[str, Job] = {}
        self._lock = Lock()  # several requests may start jobs at once
        self._wake: set[Callable[[], object]] = set()
        self._pages: Counter[str] = Counter()
        self._alone = time.monotonic()  # since when no page is open
        self.closed = False

    def start(
        self,
        kind: Kind,
        work: Callable[[Job], Any],
        about: dict[str, Any] | None = None,
        page: str = "",
    ) -> Job:
        """Queues a job. One with a `page` is cancelled when that page is closed."""
        job = Job(kind, work, about or {}, page)
        job.changed = self.changed
        with self._lock:
            self._jobs[job.id] = job
        self._submit(job)
        self._tidy()
        return job

    def _submit(self, job: Job) -> None:
        with self._lock:
            if job.kind not in self._pools:
                self._pools[job.kind] = ThreadPoolExecutor(1, thread_name_prefix=job.kind)
            self._pools[job.kind].submit(job.run)
        self.changed()

    def find(self, id: str) -> Job:
        if id not in self._jobs:
            raise UnknownImage("There is no such job any more: start it again.")
        return self._jobs[id]

    def all(self, kind: Kind) -> list[Job]:
        with self._lock:
            return [job for job in self._jobs.values() if job.kind == kind]

    def retry(self, job: Job) -> None:
        """Runs a job again that has failed or was cancelled."""
        if job.state in ("failed", "cancelled"):
            with self._lock:
                self._jobs[job.id] = job = job.again()
            self._submit(job)

    def remove(self, job: Job) -> None:
        with self._lock:
            self._jobs.pop(job.id, None)
        job.discard()
        self.changed()

    def _tidy(self) -> None:
        """Drops the oldest files that are too many or too large together. The newest always stays."""
        ended = [job for job in self.all("download") if not job.active]
        sizes = [job.about.get("bytes", 0) for job in ended]
        while len(ended) > KEPT or (len(ended) > 1 and sum(sizes) > KEPT_BYTES):
            self.remove(ended.pop(0))
            sizes.pop(0)

    def close(self) -> None:
        """Cancels everything, and ends what pages listen to."""
        self.closed = True
        for job in list(self._jobs.values()):
            job.discard()
        self.changed()
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)

    # ---- pages

    def changed(self) -> None:
        for wake in tuple(self._wake):
            with suppress(RuntimeError):  # its loop has ended
                wake()

    def describe(self, page: str = "") -> list[dict[str, Any]]:
        """All downloads, and what this page alone waits for."""
        return [job.describe() for job in self._shown(page)]

    def _shown(self, page: str) -> list[Job]:
        with self._lock:
            jobs = list(self._jobs.values())
        return [job for job in jobs if job.kind == "download" or (page and job.page == page)]

    def _works_for(self, page: str) -> bool:
        """True while something runs that a page shows: its time passes without a report, too."""
        return any(job.state == "running" for job in self._shown(page))

    async def changes(self, page: str, gone: Callable[[], Any]) -> AsyncGenerator[None]:
        """Yields when the page opens and after each change, until `await gone()` or the program ends."""
        changed, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        self._wake.add(wake)
        self._pages[page] += 1
        changed.set()
        try:
            while not self.closed and not await gone():
                if changed.is_set() or self._works_for(page):
                    changed.clear()
                    yield
                    await asyncio.sleep(PAUSE)
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), LOOK)
        finally:
            self._wake.discard(wake)
            self._leave(page)

    def _leave(self, page: str) -> None:
        self._pages[page] -= 1
        if self._pages[page] <= 0:
            del self._pages[page]
            with self._lock:
                own = [job for job in self._jobs.values() if page and job.page == page]
            for job in own:
                self.remove(job)
        if not self._pages:
            self._alone = time.monotonic()

    @property
    def forgotten(self) -> bool:
        """True if no page has been open for long: what was ordered is not waited for any more."""
        return not self._pages and time.monotonic() - self._alone > FORGOTTEN
