"""One call of `thera upscale`: files and folders, one after the other."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from thera.cli.feedback import Feedback
from thera.errors import ImageFileError, InvalidInput, TheraError
from thera.models.choice import ModelChoice

if TYPE_CHECKING:
    from thera.geo.files import Request
    from thera.models import Model

Record = dict[str, Any]  # what came of a file, as --json prints it


class Item(NamedTuple):
    """An image to scale: its output if it was named, else the folder and the stem of its name there."""

    source: Path
    folder: Path
    stem: str
    output: Path | None = None


@dataclass
class Run:
    """What is done to every file of a call, and the model that does it, loaded once."""

    feedback: Feedback
    request: "Request"
    choice: ModelChoice

    def __post_init__(self) -> None:
        # ONNX Runtime prepares the model on another core while this one imports the rest and reads the image.
        self._loading = ThreadPoolExecutor(1).submit(self.choice.load)

    def loaded(self) -> "Model":
        return self._loading.result()

    def one(self, source: Path, output: Path | None) -> Item:
        """A single file, into the file or the folder that was named, or beside it."""
        stem = f"{source.stem}_{self.request.target.label}"
        if output is not None and os.path.isdir(output):
            return Item(source, output, stem)
        return Item(source, source.parent, stem, output)

    def items(self, source: Path, output: Path | None, recursive: bool) -> list[Item]:
        """Every image of a folder, in the order of their names."""
        from thera.imaging.formats import READABLE_SUFFIXES

        folder = source if source.name not in ("", "..") else source.resolve()
        target = output or folder.with_name(f"{folder.name}_{self.request.target.label}")
        if os.path.exists(target) and (not target.is_dir() or target.samefile(source)):
            raise ImageFileError(f"The output {target} must be a folder of its own: name another.")
        if not os.path.isdir(target.parent):
            raise ImageFileError(f"The folder {target.parent} of the output does not exist: make it first.")
        inside = target.resolve()  # what an earlier run made is no input
        found = sorted(source.rglob("*") if recursive else source.iterdir())
        images = [
            path
            for path in found
            if path.suffix.lower() in READABLE_SUFFIXES
            and path.is_file()
            and inside not in path.resolve().parents
        ]
        if not images:
            hint = "" if recursive else " (--recursive looks in its folders too)"
            raise ImageFileError(f"The folder {source} has no images in it{hint}.")
        self.loaded()  # an unknown model is refused before any folder is made
        return list(_placed(images, source, target))

    def attempt(self, item: Item, one_of_many: bool = False) -> Record:
        """Scales one file, and says what came of it."""
        record: Record = {"input": str(item.source)}
        try:
            there = [path for path in self._outputs(item) if os.path.isfile(path)]
            if one_of_many and there and not self.request.file.overwrite:
                return record | {"output": str(there[0]), "status": "skipped"}
            return record | self._scale(item)
        except MemoryError:
            error: Exception = InvalidInput(f"{item.source} needs more memory than there is: lower --memory.")
        except TheraError as problem:
            error = problem
            if one_of_many and str(item.source) not in str(problem):
                error = ImageFileError(f"{item.source}: {problem}")
        except Exception as problem:
            if not one_of_many:
                raise
            # Not foreseen, but the other files shall not suffer from it.
            error = ImageFileError(f"{item.source} could not be scaled: {problem!r}.")
        return record | {"status": "failed", "error": str(error)}

    def _outputs(self, item: Item) -> list[Path]:
        """The files that an earlier run may have made of an item."""
        from thera.geo.files import named

        return [named(*item[:3], suffix) for suffix in self.request.suffixes(item.source)]

    def _scale(self, item: Item) -> Record:
        from thera.geo.files import prepare

        began = time.monotonic()
        source, folder, stem, output = item
        job = prepare(source, self.loaded(), self.request, output, folder, stem)
        ensemble = self.request.options.ensemble
        self.feedback.plan(str(source), job, ensemble)
        plan = job.plan
        with self.feedback.progress(plan.size[0] * plan.size[1], source.name) as progress:
            job.run(progress)
        return {
            "output": str(job.output),
            "status": "done",
            "from": [plan.source[1], plan.source[0]],
            "to": [plan.size[1], plan.size[0]],
            "format": job.form.name,
            "depth": job.depth,
            **model_facts(job.model),
            "ensemble": ensemble,
            "tiles": job.tiles,
            "memory": plan.memory,
            "seconds": round(time.monotonic() - began, 3),
            "notes": list(job.notes),
        }


def model_facts(model: "Model") -> Record:
    """What a record says of the model."""
    info = model.info
    return {
        "model": info.name,
        "engine": info.engine,
        "device": info.device,
        "precision": info.precision,
    }


def _placed(images: list[Path], source: Path, target: Path) -> Iterator[Item]:
    """The images of a folder with their places in another, whose folders are made."""
    names = Counter(path.relative_to(source).with_suffix("") for path in images)
    for path in images:
        name = path.relative_to(source).with_suffix("")
        # a.gif and a.heic must not both become a.png
        stem = name if names[name] == 1 else path.relative_to(source)
        folder = target / stem.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ImageFileError(f"The folder {folder} cannot be made: {error.strerror}.") from error
        yield Item(path, folder, stem.name)
