"""The queue: jobs take turns, survive what nobody means for them, and stop when nobody waits."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from thera.errors import InvalidInput, UnknownImage
from thera.models import Model
from thera.web import jobs
from thera.web.jobs import FairLock, Job, Queue


def wait(condition: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def queue() -> Any:
    queue = Queue()
    yield queue
    queue.close()


def endless(job: Job) -> None:
    while True:
        time.sleep(0.01)
        job.report(0.5)


def test_jobs_may_be_started_by_many_requests_at_once(queue: Queue) -> None:
    with ThreadPoolExecutor(8) as pool:
        started = list(pool.map(lambda number: queue.start("field", lambda job: number), range(400)))
    wait(lambda: not any(job.active for job in started))
    assert {job.state for job in started} == {"done"}


def test_a_lock_goes_to_whoever_has_waited_longest() -> None:
    lock, order = FairLock(), []

    def work(name: str) -> None:
        for _ in range(4):
            with lock, lock:
                order.append(name)
                time.sleep(0.03)  # long enough for the other to queue

    threads = [threading.Thread(target=work, args=[name]) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "".join(order[1:7]) in ("ababab", "bababa")


def test_a_view_is_encoded_while_a_file_is_made(queue: Queue) -> None:
    file = queue.start("download", endless)
    view = queue.start("field", lambda job: b"field")
    wait(lambda: view.state == "done")
    assert file.state == "running"


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(jobs.time, "monotonic", lambda: self.now)


@pytest.mark.parametrize("kind", ["field", "download"])
def test_a_job_tells_how_far_it_is_and_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, kind: Literal["field", "download"]
) -> None:
    clock, told = Clock(monkeypatch), []

    def after(seconds: float) -> tuple[float, float | None]:
        clock.now += seconds
        facts = job.describe()
        return facts["share"], facts["left"]

    def work(job: Job) -> None:
        told.append(after(0))  # nothing is known
        job.expected = 60
        told.append(after(6))  # by the clock, before any report
        told.append(after(74))  # later than expected, so that nothing is known again
        job.report(0.5)  # after 80 seconds
        told.append(after(0))  # the bar does not go back
        told.append(after(30))
        told.append(after(60))  # later than expected: 170 seconds for a half
        job.report(0.96)

    job = Job(kind, work, {"name": "a.png"}, "")
    job.run()
    assert [left for _, left in told] == [None, 54, None, 80, 50, 170]
    by_clock = [0, 0.1, 0.95, 0.95, 0.95, 0.95]
    assert [share for share, _ in told] == (by_clock if kind == "field" else [0, 0, 0, 0.5, 0.5, 0.5])
    assert after(0) == (1, None) and job.describe()["name"] == "a.png"


def test_pages_hear_of_a_job_while_it_has_nothing_to_report(queue: Queue) -> None:
    go, shares = threading.Event(), []

    def work(job: Job) -> None:
        job.expected = 1000
        go.wait(20)

    async def listen() -> None:
        async def gone() -> bool:
            return len(shares) == 3

        async for _ in queue.changes("page", gone):
            shares.append(queue.describe("page")[0]["share"])

    queue.start("field", work, page="page")
    asyncio.run(asyncio.wait_for(listen(), 20))
    go.set()
    assert sorted(set(shares)) == shares


def test_a_cancelled_job_runs_again_from_its_start(queue: Queue) -> None:
    shares: list[float] = []

    def work(job: Job) -> str:
        shares.append(job.share)
        if len(shares) == 1:
            endless(job)
        return "done"

    job = queue.start("download", work)
    wait(lambda: job.share == 0.5)
    job.cancel()
    assert job.state == "cancelled"
    queue.retry(job)  # at once, while the first run may still be ending
    wait(lambda: queue.find(job.id).state == "done")
    assert queue.find(job.id).result == "done" and shares == [0, 0]


def test_errors_are_told_in_a_sentence(queue: Queue) -> None:
    def fail(error: Exception) -> Any:
        def work(job: Job) -> None:
            raise error

        return work

    told = {}
    for error in (InvalidInput("Too much."), MemoryError(), ZeroDivisionError("oops")):
        job = queue.start("download", fail(error))
        wait(lambda job=job: job.state == "failed")
        told[type(error).__name__] = job.message
    assert told["InvalidInput"] == "Too much." and "smaller size" in told["MemoryError"]
    assert "oops" in told["ZeroDivisionError"]


def test_files_are_kept_until_they_are_too_many(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "KEPT_BYTES", 25)

    def work(job: Job) -> Path:
        path = tmp_path / job.id / "file.png"
        path.parent.mkdir()
        path.write_bytes(b"0123456789")
        job.about["bytes"] = 10
        return path

    made = []
    for _ in range(3):
        made.append(queue.start("download", work, {}))
        wait(lambda: made[-1].state == "done")
    queue.start("download", endless)
    with pytest.raises(UnknownImage):
        queue.find(made[0].id)
    assert not (tmp_path / made[0].id).exists()
    assert made[1].result.is_file() and made[2].result.is_file()
    queue.remove(made[2])
    assert not (tmp_path / made[2].id).exists()


def test_the_newest_file_stays_however_large_it_is(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "KEPT_BYTES", 25)

    def work(job: Job) -> Path:
        job.about["bytes"] = 1000
        path = tmp_path / "file.png"
        path.write_bytes(b"")
        return path

    made = queue.start("download", work, {})
    wait(lambda: made.state == "done")
    queue.start("download", endless)
    assert queue.find(made.id).result is not None


def test_what_a_closed_page_waited_for_is_cancelled_and_files_are_not(queue: Queue) -> None:
    async def visit() -> int:
        seen, left = 0, time.monotonic() + 0.5
        field = queue.start("field", endless, page="one")

        async def gone() -> bool:
            return time.monotonic() > left

        async for _ in queue.changes("one", gone):
            seen += 1
        assert field.state == "cancelled"
        with pytest.raises(UnknownImage):
            queue.find(field.id)
        return seen

    file, other = queue.start("download", endless), queue.start("field", endless, page="two")
    assert asyncio.run(visit()) >= 2
    assert file.active and other.active


def test_a_file_that_no_page_has_asked_for_in_a_long_time_is_forgotten(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not queue.forgotten
    monkeypatch.setattr(jobs, "FORGOTTEN", -1)
    assert queue.forgotten


def test_cancelling_ends_the_network_and_not_only_the_next_step(queue: Queue, air: Model) -> None:
    """The picture is so large that it would take ten seconds, and it is cancelled before they begin."""
    began, encoded = threading.Event(), threading.Event()

    def work(job: Job) -> None:
        began.set()
        air.encode(np.zeros((1000, 1000, 3), np.float32))
        encoded.set()

    job = queue.start("download", work)
    began.wait(10)
    job.cancel()
    after = queue.start("download", lambda job: None)
    wait(lambda: after.state == "done", 60)
    assert not encoded.is_set()
