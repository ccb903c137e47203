"""Results in files of JSON lines: one object a line, appended as they are measured."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from thera.errors import ImageFileError, InvalidInput
from thera.files import reason_of

Record = dict[str, Any]

# Two records with the same values of these are the same measurement. `pixels` is a checksum of the image:
# another image under the same name is another measurement. Records from before there was a `protocol` have 1.
KEY = ("method", "identity", "data", "image", "pixels", "scale")


def key_of(record: Record) -> tuple[Any, ...]:
    """What the record is a measurement of."""
    return (*(record.get(name) for name in KEY), record.get("protocol", 1))


def read_records(path: Path) -> list[Record]:
    """The records of a file of JSON lines; none if there is no file.

    An interruption may have cut the last line short: such a line is left out.
    """
    if not os.path.exists(path):  # also False for a name that is too long
        return []
    records: list[Record] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} holds no results, as it is no text: name another file.") from error
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line.endswith("\n"):
            break
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise InvalidInput(f"Line {number} of {path} is not JSON ({error}): remove it.") from error
    return records


def json_lines(records: Iterable[Record]) -> str:
    """Records as text, one line each."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def append_records(path: Path, records: Iterable[Record]) -> None:
    """Append records to a file of JSON lines."""
    with appending(path) as file:
        file.write(json_lines(records))


def appending(path: Path) -> TextIO:
    """A file of JSON lines, opened to append to. A last line cut short by an interruption is removed."""
    with writing(path):
        if path.is_file():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        file = path.open("a", encoding="utf-8")
    return file


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Makes the folder of `path` if it is missing, and turns an OSError into a sentence."""
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        yield
    except OSError as error:
        raise ImageFileError(f"{path} could not be written: {reason_of(error)}.") from error
