"""Measure every method on every image at every scale. A stopped evaluation continues where it was."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from thera.errors import InvalidInput
from thera.evaluation.images import ImageSet, TargetImage, check_sizes, read
from thera.evaluation.methods import Method
from thera.evaluation.protocol import METRICS, PROTOCOL, check_scale, degrade, score, unit
from thera.evaluation.records import Record, appending, json_lines, key_of, read_records
from thera.files import replacing

Progress = Callable[[Iterable[list[Record]], int], Iterable[list[Record]]]


def run(
    methods: Sequence[Method],
    sets: Sequence[ImageSet],
    scales: Iterable[float],
    out: Path,
    workers: int = 2,
    replace: bool = False,
    progress: Progress = lambda results, total: results,
) -> list[Record]:
    """Measure what `out` does not hold yet, append it there, and return all records that were asked for.

    If `out` holds results of another checkpoint or image under the same name, or of an older protocol, they
    are refused, or dropped with `replace`.

    `workers` threads work on one image each. Only one of them runs a model at a time, so that memory is
    needed for one image, not for several.
    """
    scales = [check_scale(scale) for scale in scales]
    if not scales:
        raise InvalidInput("No scale was given: name at least one, such as --scales 2 3 4.")
    check_sizes(sets, scales)
    _check_stored(out, methods, sets, replace)
    stored = {key_of(record): record for record in read_records(out)}
    model_lock = threading.Lock()

    def measure(task: tuple[ImageSet, Path, float]) -> list[Record]:
        return _measure(*task, methods, stored, model_lock)

    tasks = [(images, path, scale) for images in sets for path in images.files for scale in scales]
    result: list[Record] = []
    with appending(out) as file, ThreadPoolExecutor(workers) as pool:
        try:
            for records in progress(pool.map(measure, tasks), len(tasks)):
                file.write(json_lines(record for record in records if key_of(record) not in stored))
                file.flush()
                result += records
        finally:
            pool.shutdown(cancel_futures=True)
    return result


def _check_stored(out: Path, methods: Sequence[Method], sets: Sequence[ImageSet], replace: bool) -> None:
    """Refuse results in `out` of other models or images of the same names, or drop them with `replace`."""
    records = read_records(out)
    if not records:
        return
    identities: dict[str, set[str]] = {}
    for method in methods:
        identities.setdefault(method.name, set()).add(method.identity)
    named = {(record["data"], record["image"]) for record in records}
    pixels = {
        (images.name, path.name): _checksum(read(path))
        for images in sets
        for path in images.files
        if (images.name, path.name) in named
    }
    kept = [
        record
        for record in records
        if record.get("protocol", 1) == PROTOCOL
        and record["identity"] in identities.get(record["method"], {record["identity"]})
        and record["pixels"] == pixels.get((record["data"], record["image"]), record["pixels"])
    ]
    if len(kept) == len(records):
        return
    if not replace:
        other = next(record for record in records if record not in kept)
        what = f"another {other['method']} or another {other['image']} of {other['data']}"
        if other.get("protocol", 1) != PROTOCOL:
            what = f"version {other.get('protocol', 1)} of the protocol, not of version {PROTOCOL}"
        raise InvalidInput(
            f"{out} holds results of {what}: store the new ones in another file, or drop the old ones with "
            "--replace."
        )
    with replacing(out) as file:
        file.write(json_lines(kept).encode())


def _checksum(image: TargetImage) -> str:
    return f"{zlib.crc32(image.pixels.tobytes()):08x}"


def _measure(
    images: ImageSet,
    path: Path,
    scale: float,
    methods: Sequence[Method],
    stored: dict[tuple[Any, ...], Record],
    model_lock: threading.Lock,
) -> list[Record]:
    """The records of one image at one scale, one for each method."""
    image = read(path)
    pair = None
    records = []
    for method in methods:
        record: Record = {
            "method": method.name,
            "identity": method.identity,
            "data": images.name,
            "image": path.name,
            "pixels": _checksum(image),
            "scale": int(scale) if scale == int(scale) else scale,
            "protocol": PROTOCOL,
        }
        known = stored.get(key_of(record))
        if known is not None:
            records.append(known)
            continue
        if pair is None:
            pair = degrade(image.pixels, scale, images.damage)
        height, width = pair.target.shape[:2]
        with model_lock if method.engine else nullcontext():
            start = time.perf_counter()
            output = method.upscale(unit(pair.source), (height, width))
            seconds = time.perf_counter() - start
        for name in METRICS:
            record[name] = round(score(output, pair.target, scale, name), 5)
        record |= {"seconds": round(seconds, 3), "engine": method.engine}
        if image.conversion:
            record["conversion"] = image.conversion
        records.append(record)
    return records
