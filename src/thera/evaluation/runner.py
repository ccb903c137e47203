"""Every method on every image at every scale, a JSON line each; a stopped run goes on where it was."""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO

from thera.errors import ImageFileError, InvalidInput
from thera.evaluation.images import ImageSet, TargetImage, check_sizes, read
from thera.evaluation.methods import Method
from thera.evaluation.protocol import METRICS, check_scale, degrade, score, unit
from thera.files import reason_of

Record = dict[str, Any]
Progress = Callable[[Iterable[list[Record]], int], Iterable[list[Record]]]

# What makes two records the same measurement. `pixels` is a checksum of the image: another image under the
# same name is another measurement.
KEY = ("method", "identity", "data", "image", "pixels", "scale")


def read_records(path: Path) -> list[Record]:
    """The records of a JSONL file; a last line cut short by an interruption is left out.

    >>> read_records(Path("no-such-file.jsonl"))
    []
    """
    if not os.path.exists(path):  # False, too, for a name too long to be one
        return []
    records: list[Record] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} holds no results, nor any text: name a file of JSON lines.") from error
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line.endswith("\n"):
            break
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidInput(
                f"Line {number} of {path} is not JSON ({error}): repair or remove it."
            ) from error
        records.append(record)
    return records


def append_records(path: Path, records: Iterable[Record]) -> None:
    """Add records to a JSONL file, a line each."""
    with appending(path) as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def appending(path: Path) -> TextIO:
    """A file of JSON lines, opened to append to. A last line cut short by an interruption is removed."""
    with writing(path):
        if path.is_file():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        file = path.open("a", encoding="utf-8")
    return file


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Makes the folder of `path` where there is none, and a sentence of what keeps it from being written."""
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        yield
    except OSError as error:
        raise ImageFileError(f"{path} could not be written: {reason_of(error)}.") from error


def key_of(record: Record) -> tuple[Any, ...]:
    """What the record measures, without what it found."""
    return tuple(record.get(name) for name in KEY)


def run(
    methods: Sequence[Method],
    sets: Sequence[ImageSet],
    scales: Iterable[float],
    out: Path,
    workers: int = 2,
    replace: bool = False,
    progress: Progress = lambda units, total: units,
) -> list[Record]:
    """Measure what `out` does not hold yet, append it there, and return every record of this run.

    What `out` holds of other checkpoints or images of the same names is refused, or with `replace` dropped.

    Images are worked on by `workers` threads; only one of them at a time is inside a model, so that neither
    an accelerator nor the processor is asked for two images' memory at once.
    """
    scales = [check_scale(scale) for scale in scales]
    if not scales:
        raise InvalidInput("No scale was given: name at least one, such as --scales 2 3 4.")
    check_sizes(sets, scales)
    _settle(out, methods, sets, replace)
    stored = {key_of(record): record for record in read_records(out)}
    in_model = threading.Lock()

    def measure(unit_of_work: tuple[str, Path, float]) -> list[Record]:
        return _measure(*unit_of_work, methods, stored, in_model)

    units = [(images.name, path, scale) for images in sets for path in images.files for scale in scales]
    result: list[Record] = []
    with appending(out) as file, ThreadPoolExecutor(workers) as pool:
        try:
            for records in progress(pool.map(measure, units), len(units)):
                for record in records:
                    if key_of(record) not in stored:
                        file.write(json.dumps(record, ensure_ascii=False) + "\n")
                file.flush()
                result += records
        finally:
            pool.shutdown(cancel_futures=True)
    return result


def _settle(out: Path, methods: Sequence[Method], sets: Sequence[ImageSet], replace: bool) -> None:
    """Make `out` fit to go on from: whole lines, and one meaning for each name of a model or an image."""
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
        if record["identity"] in identities.get(record["method"], {record["identity"]})
        and record["pixels"] == pixels.get((record["data"], record["image"]), record["pixels"])
    ]
    if len(kept) < len(records) and not replace:
        other = next(record for record in records if record not in kept)
        raise InvalidInput(
            f"{out} holds results of another {other['method']} or another {other['image']} of "
            f"{other['data']}: store elsewhere, or drop them with --replace."
        )
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in kept]
    text = "".join(lines)
    if text != out.read_text(encoding="utf-8"):
        temporary = out.with_name(f"{out.name}.new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(out)


def _checksum(image: TargetImage) -> str:
    return f"{zlib.crc32(image.pixels.tobytes()):08x}"


def _measure(
    data: str,
    path: Path,
    scale: float,
    methods: Sequence[Method],
    stored: dict[tuple[Any, ...], Record],
    in_model: threading.Lock,
) -> list[Record]:
    image = read(path)
    pair = None
    records = []
    for method in methods:
        record: Record = {
            "method": method.name,
            "identity": method.identity,
            "data": data,
            "image": path.name,
            "pixels": _checksum(image),
            "scale": int(scale) if scale == int(scale) else scale,
        }
        known = stored.get(key_of(record))
        if known is not None:
            records.append(known)
            continue
        if pair is None:
            pair = degrade(image.pixels, scale)
        height, width = pair.target.shape[:2]
        with in_model if method.engine else nullcontext():
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
