"""Jobs that run in the background: with progress, cancelled on request or when nobody asks for them."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from thera.errors import TheraError, UnknownImage

#: Seconds without a request after which a job is cancelled. A hidden tab polls seldom.
FORGOTTEN = 90.0
#: Jobs whose results are kept.
KEPT = 8


class Stopped(Exception):
    """The job was cancelled, or its page is gone."""


class Job:
    """One piece of work. `state` is waiting, running, done, failed or cancelled."""

    def __init__(self, work: Callable[[Job], Any]) -> None:
        self.id = secrets.token_urlsafe(9)
        self.state, self.share, self.message = "waiting", 0.0, ""
        self.result: Any = None
        self._work, self._seen, self._lock = work, time.monotonic(), Lock()

    def report(self, share: float) -> None:
        """Reports the share done. Raises `Stopped` if the job was cancelled or forgotten."""
        self.share = min(1.0, share)
        if self.state == "cancelled" or time.monotonic() - self._seen > FORGOTTEN:
            raise Stopped

    def describe(self) -> dict[str, Any]:
        self._seen = time.monotonic()
        return {"id": self.id, "state": self.state, "share": round(self.share, 4), "message": self.message}

    def drop(self) -> None:
        """Cancels the job, and discards its result: a file goes with the folder it is in."""
        with self._lock:
            if self.state in ("waiting", "running"):
                self.state = "cancelled"
            if isinstance(self.result, Path):
                shutil.rmtree(self.result.parent, ignore_errors=True)
            self.result = None

    def run(self) -> None:
        if not self._move("waiting", "running"):
            return
        try:
            self.report(0)
            result = self._work(self)
        except Stopped:
            self.state = "cancelled"
        except TheraError as error:
            self._fail(str(error))
        except MemoryError:
            self._fail("This needs more memory than there is: choose a smaller size.")
        except Exception as error:
            # The page must hear of it, and the server go on.
            self._fail(f"Something went wrong that should not have: {error!r}.")
        else:
            self.share, self.result = 1.0, result
            if not self._move("running", "done"):
                self.drop()

    def _move(self, before: str, after: str) -> bool:
        with self._lock:
            if self.state != before:
                return False
            self.state = after
            return True

    def _fail(self, message: str) -> None:
        self.message = message
        self._move("running", "failed")


class Jobs:
    """All jobs, run one after the other: two encoders at once would be slower, and need twice the memory."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="job")
        self._jobs: dict[str, Job] = {}
        self._lock = Lock()  # several requests may start jobs at once

    def start(self, work: Callable[[Job], Any]) -> Job:
        job = Job(work)
        with self._lock:
            self._jobs[job.id] = job
            ended = [old.id for old in self._jobs.values() if old.state not in ("waiting", "running")]
            over = [self._jobs.pop(id) for id in ended[:-KEPT]]
        for old in over:
            old.drop()
        self._pool.submit(job.run)
        return job

    def find(self, id: str) -> Job:
        if id not in self._jobs:
            raise UnknownImage("There is no such job any more: start it again.")
        return self._jobs[id]

    def close(self) -> None:
        for job in list(self._jobs.values()):
            job.drop()
        self._pool.shutdown(wait=True, cancel_futures=True)
