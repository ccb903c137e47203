"""Which engine runs a model fastest on this machine: measured once in about a second, then remembered."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from thera.errors import ModelError, TheraError
from thera.files import recalled, remember
from thera.models.engine import FileEngine

SIDE, ROUNDS = 48, 3  # of the measurement: pixels of the square input, calls of each engine
GAIN = 1.1  # an engine must be this many times as fast as the reference to be chosen
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
    for candidate, make in makers.items():
        if isinstance(kept, dict) and kept.get("choice") == str(candidate):
            with suppress(TheraError):  # it may have stopped working: then all are measured again
                return Choice(make(), str(kept.get("why", "")))
    engines, times = measure(makers)
    reference = next(iter(times))
    best = min(times, key=lambda candidate: times[candidate])
    if times[best] * GAIN > times[reference]:
        best = reference
    speeds = [f"{c} {times[reference] / t:.2f} times" for c, t in times.items() if c != reference]
    why = f"measured on this machine, with the speed of {reference} as 1: {', '.join(speeds) or 'no other'}"
    remember(FILE, key, {"choice": str(best), "why": why})
    return Choice(engines[best], why)


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
    for _ in range(ROUNDS):
        for candidate, engine in engines.items():
            start = time.perf_counter()
            engine.features(engine.asarray(image))
            times[candidate] = min(times[candidate], time.perf_counter() - start)
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
