"""Measure every method on every image at every scale. A stopped evaluation continues where it was."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput, TheraError
from thera.evaluation.images import ImageSet, check_sizes, read
from thera.evaluation.methods import Method
from thera.evaluation.protocol import METRICS, PROTOCOL, check_scale, degrade, score, unit
from thera.evaluation.records import Record, appending, json_lines, key_of, read_records
from thera.files import replacing
from thera.memory import is_out_of_memory

Progress = Callable[[Iterable[list[Record]], int], Iterable[list[Record]]]


class Refusals(TheraError):
    """Methods refused images. `records` are those of all else, which is measured and stored."""

    def __init__(self, message: str, records: list[Record]) -> None:
        super().__init__(message)
        self.records = records


def run(
    methods: Sequence[Method],
    sets: Sequence[ImageSet],
    scales: Iterable[float],
    out: Path,
    workers: int = 2,
    replace: bool = False,
    progress: Progress = lambda results, total: results,
    begin: Callable[[], object] = lambda: None,
) -> list[Record]:
    """Measure what `out` does not hold yet, append it there, and return all records that were asked for.

    `begin` is called when everything is checked, before anything is measured.

    If `out` holds results of another checkpoint or image under the same name, or of an older protocol, they
    are refused, or dropped with `replace`. What a method refuses, for want of memory say, is named in a
    `Refusals`, when all else is measured.

    `workers` threads work on one image each. Only one of them runs a model at a time, so that memory is
    needed for one image, not for several.
    """
    scales = [check_scale(scale) for scale in scales]
    if not scales:
        raise InvalidInput("No scale was given: name at least one, such as --scales 2 3 4.")
    check_sizes(sets, scales)

    def checksums(named: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
        files = {(images.name, path.name): path for images in sets for path in images.files}
        return {key: checksum(read(path).pixels) for key, path in files.items() if key in named}

    check_stored(out, methods, PROTOCOL, checksums, replace)
    begin()
    tasks = [(images, path, scale) for images in sets for path in images.files for scale in scales]
    return measure_all(methods, [partial(_task, *task) for task in tasks], out, workers, progress)


class Task(NamedTuple):
    """One image at one scale, which every method is measured on."""

    about: Record  # what its records have in common
    prepare: Callable[[], Prepared]  # called if a method has not been measured yet


class Prepared(NamedTuple):
    """What a method is given, and how its output is scored."""

    image: NDArray[np.float32]  # the small one that every method is given
    size: tuple[int, int]
    scores: Callable[[Any], Record]  # of an output


def measure_all(
    methods: Sequence[Method],
    tasks: Sequence[Callable[[], Task]],
    out: Path,
    workers: int,
    progress: Progress,
) -> list[Record]:
    """Measure what `out` does not hold yet, append it there, and return the records of all tasks.

    What a method refuses is left out, and named in a `Refusals` at the end.
    """
    stored = {key_of(record): record for record in read_records(out)}
    model_lock = threading.Lock()
    result: list[Record] = []
    refused: list[str] = []
    with appending(out) as file, ThreadPoolExecutor(workers) as pool:
        try:
            measured = pool.map(lambda task: _measure(task(), methods, stored, model_lock, refused), tasks)
            for records in progress(measured, len(tasks)):
                file.write(json_lines(record for record in records if key_of(record) not in stored))
                file.flush()
                result += records
        finally:
            pool.shutdown(cancel_futures=True)
    if refused:
        more = f" {len(refused) - 1:,} more were refused." if refused[1:] else ""
        raise Refusals(f"All else is measured, but not {min(refused)}{more}", result)
    return result


def check_stored(
    out: Path,
    methods: Sequence[Method],
    protocol: int | str,
    checksums: Callable[[set[tuple[str, str]]], dict[tuple[str, str], str]],
    replace: bool,
) -> None:
    """Refuse results in `out` of other models or images of the same names, or drop them with `replace`.

    `checksums` gives those of the images that the results name, by data set and image.
    """
    records = read_records(out)
    if not records:
        return
    identities: dict[str, set[str]] = {}
    for method in methods:
        identities.setdefault(method.name, set()).add(method.identity)
    pixels = checksums({(record["data"], record["image"]) for record in records})
    kept = [
        record
        for record in records
        if record.get("protocol", 1) == protocol
        and record["identity"] in identities.get(record["method"], {record["identity"]})
        and record["pixels"] == pixels.get((record["data"], record["image"]), record["pixels"])
    ]
    if len(kept) == len(records):
        return
    if not replace:
        other = next(record for record in records if record not in kept)
        what = f"another {other['method']} or another {other['image']} of {other['data']}"
        if other.get("protocol", 1) != protocol:
            what = f"version {other.get('protocol', 1)} of the protocol, not of version {protocol}"
        raise InvalidInput(
            f"{out} holds results of {what}: store the new ones in another file, or drop the old ones with "
            "--replace."
        )
    with replacing(out) as file:
        file.write(json_lines(kept).encode())


def checksum(*pixels: NDArray[np.uint8]) -> str:
    return f"{zlib.crc32(b''.join(array.tobytes() for array in pixels)):08x}"


def _task(images: ImageSet, path: Path, scale: float) -> Task:
    image = read(path)
    about = {
        "data": images.name,
        "image": path.name,
        "pixels": checksum(image.pixels),
        "scale": int(scale) if scale == int(scale) else scale,
        "protocol": PROTOCOL,
    }

    def prepare() -> Prepared:
        source, target = degrade(image.pixels, scale, images.damage)
        said = {"conversion": image.conversion} if image.conversion else {}

        def scores(output: Any) -> Record:
            return {name: round(score(output, target, scale, name), 5) for name in METRICS} | said

        return Prepared(unit(source), (target.shape[0], target.shape[1]), scores)

    return Task(about, prepare)


def _measure(
    task: Task,
    methods: Sequence[Method],
    stored: dict[tuple[Any, ...], Record],
    model_lock: threading.Lock,
    refused: list[str],
) -> list[Record]:
    """The records of one image at one scale, one for each method that does not refuse it."""
    prepared = None
    records = []
    for method in methods:
        record: Record = {"method": method.name, "identity": method.identity} | task.about
        known = stored.get(key_of(record))
        if known is not None:
            records.append(known)
            continue
        if prepared is None:
            prepared = task.prepare()
        with model_lock if method.engine else nullcontext():
            start = time.perf_counter()
            try:
                output = method.upscale(prepared.image, prepared.size)
            except Exception as error:
                if not (isinstance(error, TheraError) or is_out_of_memory(error)):
                    raise
                why = error if isinstance(error, TheraError) else "It needs more memory than there is."
                refused.append(f"{task.about['image']} ×{task.about['scale']:g} by {method.name}: {why}")
                continue
            seconds = time.perf_counter() - start
        record |= prepared.scores(output) | {"seconds": round(seconds, 3), "engine": method.engine}
        records.append(record)
    return records
