"""Which engine runs a model fastest on this machine: measured in a second, Pro in a few, then remembered.

Other programs can disturb a measurement. So the best time of each engine is kept, and the first runs measure
again until two of them agree.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from time import perf_counter
from typing import NamedTuple

import numpy as np

from thera.errors import ModelError, TheraError
from thera.files import recalled, remember
from thera.models.engine import FileEngine

SIDE, ROUNDS = 96, 3  # of the measurement: pixels of the square input, calls of each engine at most
ENOUGH = 1.0  # seconds of calls after which no further round begins
GAIN = 1.05  # an engine must be this many times as fast as the reference to be chosen; tiles gain more
FILE = "engines.json"  # in the folder of caches
PACKAGES = ("ncnn", "onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "openvino", "thera")


class Candidate(NamedTuple):
    engine: str
    device: str

    def __str__(self) -> str:
        return f"{self.engine} on {self.device}"


class Choice(NamedTuple):
    """An engine, ready to run, and a sentence that says why it was chosen."""

    engine: FileEngine
    why: str


Makers = Mapping[Candidate, Callable[[], FileEngine]]


def installed(package: str) -> bool:
    """True if a package can be imported. It is not imported."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # it is blocked
        return False


def choose(model: str, precision: str, threads: int, makers: Makers) -> Choice:
    """The fastest of several engines. The first is the reference, kept unless another is clearly faster."""
    if len(makers) == 1:
        return Choice(next(iter(makers.values()))(), "")
    key = _key(model, precision, threads, makers)
    kept = recalled(FILE).get(key)
    before, agreed = _times(kept, makers), isinstance(kept, dict) and kept.get("agreed") is True
    if before and agreed:
        with suppress(TheraError):  # it may have stopped working: then all are measured again
            return Choice(makers[fastest(before)](), why(before))
    engines, now = measure(makers)
    times = {candidate: min(now[candidate], before.get(candidate, now[candidate])) for candidate in now}
    best = fastest(times)
    _keep(key, times, agreed=bool(before) and fastest(before) == best)
    return Choice(engines[best], why(times))


def refresh(model: str, precision: str, threads: int, makers: Makers) -> dict[Candidate, float]:
    """Measures anew and forgets what was measured before. Gives the seconds of each engine that works."""
    times = measure(makers)[1]
    if len(makers) > 1:
        _keep(_key(model, precision, threads, makers), times, agreed=True)
    return times


def fastest(times: Mapping[Candidate, float]) -> Candidate:
    reference = next(iter(times))
    best = min(times, key=lambda candidate: times[candidate])
    return reference if times[best] * GAIN > times[reference] else best


def why(times: Mapping[Candidate, float]) -> str:
    reference = next(iter(times))
    speeds = [f"{c} {times[reference] / t:.2f} times" for c, t in times.items() if c != reference]
    return f"measured on this machine, with the speed of {reference} as 1: {', '.join(speeds) or 'no other'}"


def _times(kept: object, makers: Makers) -> dict[Candidate, float]:
    """The times in what was kept, in the order of the engines; none if it is damaged."""
    stored = kept.get("seconds") if isinstance(kept, dict) else None
    if not isinstance(stored, dict):
        return {}
    found = {candidate: stored[str(candidate)] for candidate in makers if str(candidate) in stored}
    sound = all(isinstance(seconds, float) and seconds > 0 for seconds in found.values())
    return found if sound else {}


def _keep(key: str, times: Mapping[Candidate, float], agreed: bool) -> None:
    remember(FILE, key, {"seconds": {str(c): seconds for c, seconds in times.items()}, "agreed": agreed})


def measure(makers: Makers, side: int = SIDE) -> tuple[dict[Candidate, FileEngine], dict[Candidate, float]]:
    """The engines that work, and the seconds that each needs. The least of several rounds counts."""
    image = np.random.default_rng(0).random((side, side, 3), np.float32)
    engines: dict[Candidate, FileEngine] = {}
    errors = []
    for candidate, make in makers.items():
        try:
            engine = make()
            engine.features(engine.asarray(image))  # the first call prepares
            engines[candidate] = engine
        except TheraError as error:
            errors.append(str(error))
    if not engines:
        raise ModelError(" ".join(errors))
    times = dict.fromkeys(engines, float("inf"))
    began = perf_counter()
    for turn in range(ROUNDS):
        if turn and perf_counter() - began > ENOUGH:
            break
        for candidate, engine in engines.items():
            start = perf_counter()
            float(engine.features(engine.asarray(image))[0, 0, 0])  # waits for a GPU
            times[candidate] = min(times[candidate], perf_counter() - start)
    return engines, times


def _key(model: str, precision: str, threads: int, makers: Makers) -> str:
    """A digest of what a measurement depends on. It tells nobody the machine's name."""
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    names = ", ".join(map(str, makers))
    limit = os.environ.get("OMP_NUM_THREADS", "all")  # ncnn keeps to it
    machine = f"{platform.node()} {platform.machine()} {os.cpu_count()} cores, {limit} used"
    text = " | ".join([model, precision, f"{threads} threads", names, machine, *versions])
    return hashlib.sha256(text.encode()).hexdigest()
