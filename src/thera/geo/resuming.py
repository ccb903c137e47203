"""Finished frames of a raster that is being made: a run that was interrupted goes on where it was."""

import json
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thera._version import __version__
from thera.errors import ImageFileError, InvalidInput
from thera.field.grid import Box
from thera.files import held, partial_path, reason_of
from thera.models import Model

from .raster import Raster, gdal, opened

#: Samples of a frame, h×w×bands, and its mask if it has one.
Pixels = tuple[NDArray, NDArray[np.bool_] | None]
#: Pixels of the picture by which a network is known again are equal to this; engines differ by less.
ALIKE = 1e-3


def sidecar(output: Path) -> Path:
    """The folder beside an output that keeps its finished frames."""
    return output.with_name(f".{output.name}.resume")


def parts(output: Path) -> int:
    """How many frames of an output are kept."""
    return len(list(sidecar(output).glob("*.npz")))


@contextmanager
def keeping(output: Path, facts: dict[str, Any]) -> Iterator["Finished"]:
    """The frames of an output that are kept until it is complete.

    `facts`: what the frames depend on, by names for people. If they are not those of the frames that are
    there, InvalidInput says which changed.
    """
    folder = sidecar(output)
    try:
        folder.mkdir(exist_ok=True)
        with _alone(folder, output):
            _check(folder, output, facts)
            try:
                yield Finished(folder)
            except BaseException:
                if not parts(output):  # nothing to go on from: other options are as good
                    shutil.rmtree(folder, ignore_errors=True)
                raise
            shutil.rmtree(folder)
    except OSError as error:
        if error.errno is None:
            raise
        raise ImageFileError(f"{output} could not be written: {reason_of(error)}.") from error


@contextmanager
def _alone(folder: Path, output: Path) -> Iterator[None]:
    holding = held(folder, required=True)
    try:
        holding.__enter__()
    except BlockingIOError:
        raise InvalidInput(f"Another run is making {output}: wait for it, or choose another name.") from None
    try:
        yield
    finally:
        holding.__exit__(None, None, None)


def _check(folder: Path, output: Path, facts: dict[str, Any]) -> None:
    file = folder / "facts.json"
    if not file.exists() or not parts(output):
        new = partial_path(file)
        new.write_text(json.dumps(facts), encoding="utf-8")
        new.replace(file)
        return
    try:
        known = json.loads(file.read_bytes())
    except ValueError:
        known = {}
    for name, value in json.loads(json.dumps(facts)).items():
        same = known.get(name) == value
        if name == "model" and name in known:
            (before, seen), (now, sees) = known[name], value
            same = before == now and len(seen) == len(sees) and np.allclose(seen, sees, rtol=0, atol=ALIKE)
        if not same:
            raise InvalidInput(
                f"{output} was begun with another {name}: give the same again to go on, or delete {folder} to"
                " begin anew."
            )


class Finished:
    """Frames in a folder, each whole or absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, box: Box) -> Pixels | None:
        """The frame of a box; None if it was not finished, or if its file is damaged."""
        try:
            with np.load(self._file(box)) as file:
                return file["samples"], file.get("mask")
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def put(self, box: Box, pixels: Pixels) -> None:
        parts = {"samples": pixels[0]} if pixels[1] is None else {"samples": pixels[0], "mask": pixels[1]}
        new = partial_path(self._file(box))
        with new.open("wb") as file:
            np.savez(file, **parts)  # type: ignore[arg-type]
        new.replace(self._file(box))

    def _file(self, box: Box) -> Path:
        return self.folder / ("-".join(map(str, box)) + ".npz")


def input_facts(raster: Raster) -> list[list[Any]]:
    """The names, sizes and times of the files that a raster consists of."""
    with gdal(), opened(raster.path) as dataset:
        files = sorted(file for file in map(Path, dataset.files) if file.exists())
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def model_facts(model: Model) -> tuple[str, list[float]]:
    """What a model is called, and what it makes of a small picture: other weights make something else."""
    info = model.info
    picture = np.random.default_rng(0).random((8, 8, 3)).astype(np.float32)
    seen = np.asarray(model.upscale(picture, size=(16, 16)), np.float64).ravel()[::7]
    # Without the engine: the one that is measured as the fastest may change from run to run.
    return f"{__version__} {info.name} {info.precision}", seen.round(6).tolist()
