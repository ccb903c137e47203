"""Scales files and folders for `thera upscale`, one file after the other."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thera.cli.feedback import Feedback
from thera.errors import ImageFileError, InvalidInput, TheraError
from thera.files import reason_of
from thera.geo.files import Item, Request, prepare
from thera.models.choice import ModelChoice

if TYPE_CHECKING:
    from thera.models import Model

Record = dict[str, Any]  # the result of a file, as --json prints it


@dataclass
class Scaler:
    """Scales files by one request, with a model that is loaded once."""

    feedback: Feedback
    request: Request
    choice: ModelChoice

    def __post_init__(self) -> None:
        # The model loads in another thread while this one imports the rest and reads the image.
        self._loading = ThreadPoolExecutor(1).submit(self.choice.load)

    def loaded(self) -> "Model":
        return self._loading.result()

    def file_item(self, source: Path, output: Path | None) -> Item:
        """A single file, scaled into `output`, a file or folder, or beside the input."""
        stem = f"{source.stem}_{self.request.target.label}"
        if output is not None and os.path.isdir(output):
            return Item(source, output, stem)
        return Item(source, source.parent, stem, output)

    def items(self, sources: list[Path], output: Path | None, recursive: bool) -> list[Item]:
        """Every image of a folder, or of several files and folders."""
        if len(sources) == 1:
            return self.folder_items(sources[0], output, recursive)
        for source in sources:
            if source.suffix == ".zarr":
                raise InvalidInput(f"{source} is a Zarr store: scale it by itself.")
        if output is not None:
            if os.path.exists(output) and not os.path.isdir(output):
                raise ImageFileError(f"The output {output} is a file: several inputs need a folder.")
            self.loaded()  # an unknown model is refused before any folder is made
            make_folder(output)
        items: list[Item] = []
        for source in sources:
            if os.path.isdir(source):
                folder = None if output is None else output / source.resolve().name
                items += self.folder_items(source, folder, recursive)
            else:
                items.append(self.file_item(source, output))
        return _told_apart(items)

    def folder_items(self, source: Path, output: Path | None, recursive: bool) -> list[Item]:
        """Every image of a folder, sorted by name."""
        from thera.imaging.formats import READABLE_SUFFIXES

        folder = source if source.name not in ("", "..") else source.resolve()
        target = output or folder.with_name(f"{folder.name}_{self.request.target.label}")
        if os.path.exists(target) and (not target.is_dir() or target.samefile(source)):
            raise ImageFileError(f"The output {target} must be a folder of its own: choose another name.")
        if not os.path.isdir(target.parent):
            raise ImageFileError(f"The folder {target.parent} of the output does not exist: make it first.")
        inside = Path(os.path.realpath(target))  # outputs of an earlier call are not inputs
        images = [
            path
            for path in _files_in(source, recursive)
            if path.suffix.lower() in READABLE_SUFFIXES
            and path.is_file()
            and inside not in path.resolve().parents
        ]
        if not images:
            hint = "" if recursive else " (--recursive also searches its folders)"
            raise ImageFileError(f"The folder {source} has no images in it{hint}.")
        self.loaded()  # an unknown model is refused before any folder is made
        return list(_placed(images, source, target))

    def attempt(self, item: Item, one_of_many: bool = False) -> Record:
        """Scales one file, and returns its record. Errors are part of the record."""
        record: Record = {"input": str(item.source)}
        try:
            if one_of_many and not self.request.file.overwrite:
                for output in filter(os.path.isfile, self.request.outputs(item)):
                    return record | {"output": str(output), "status": "skipped"}
            return record | self._scale(item, one_of_many)
        except MemoryError:
            error: Exception = InvalidInput(f"{item.source} needs more memory than there is: lower --memory.")
        except TheraError as problem:
            error = problem
            if one_of_many and str(item.source) not in str(problem):
                error = ImageFileError(f"{item.source}: {problem}")
        except Exception as problem:
            if not one_of_many:
                raise
            # An unexpected error must not stop the other files.
            error = ImageFileError(f"{item.source} could not be scaled: {problem!r}.")
        return record | {"status": "failed", "error": str(error)}

    def _scale(self, item: Item, one_of_many: bool) -> Record:
        began = time.monotonic()
        job = prepare(item, self.loaded(), self.request)
        plan, ensemble = job.plan, self.request.options.ensemble
        if self.request.file.quality is not None and not one_of_many and not job.form.lossy:
            name = job.form.name.upper()
            raise click.UsageError(f"--quality is for JPEG, WebP and AVIF, and this is {name}: leave it out.")
        self.feedback.plan(str(item.source), job, ensemble)
        with self.feedback.progress(plan.size[0] * plan.size[1], item.source.name) as progress:
            job.run(progress)
        record = done(job.output, plan.source, plan.size, job.form.name, job.depth, job.model)
        return record | {
            "ensemble": ensemble,
            "tiles": job.tiles,
            "memory": plan.memory,
            "seconds": round(time.monotonic() - began, 3),
            "notes": list(job.notes),
        }


def done(
    output: Path, source: tuple[int, int], size: tuple[int, int], form: str, depth: str, model: "Model"
) -> Record:
    """The record of a file of size `source` that was scaled to `size`, both (height, width)."""
    info = model.info
    return {
        "output": str(output),
        "status": "done",
        "from": [source[1], source[0]],
        "to": [size[1], size[0]],
        "format": form,
        "depth": depth,
        "model": info.name,
        "engine": info.engine,
        "device": info.device,
        "precision": info.precision,
    }


def _told_apart(items: list[Item]) -> list[Item]:
    """Items whose outputs differ: a.gif and a.png must not both become a_x2.png."""
    count = Counter((item.folder, item.stem) for item in items)
    places: dict[tuple[Path, str], Path] = {}
    apart = []
    for item in items:
        stem = item.stem
        if count[item.folder, stem] > 1:
            stem = f"{item.source.stem}_{item.source.suffix[1:]}{stem.removeprefix(item.source.stem)}"
        other = places.setdefault((item.folder, stem), item.source)
        if other != item.source:
            raise ImageFileError(
                f"{other} and {item.source} would both become {item.folder / item.stem}: scale them one after"
                " the other, into different folders."
            )
        apart.append(item._replace(stem=stem))
    return apart


def make_folder(folder: Path) -> None:
    """Makes a folder, and those it lies in, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # a circle of links is a RuntimeError
        reason = getattr(error, "strerror", None) or error
        if os.path.islink(folder):
            reason = "it is a link that leads nowhere"
        raise ImageFileError(f"The folder {folder} cannot be made: {reason}.") from error


def _files_in(folder: Path, recursive: bool) -> list[Path]:
    """All that is in a folder, sorted; with `recursive`, also in the folders within it.

    A folder that may not be read is an error: its pictures must not be left out without a word.
    """

    def unreadable(error: OSError) -> None:
        raise ImageFileError(
            f"The folder {error.filename} cannot be read: {reason_of(error)}. Check its permissions."
        ) from error

    found = []
    for root, folders, files in os.walk(folder, onerror=unreadable):
        found += [Path(root, name) for name in files]
        if not recursive:
            folders.clear()
    return sorted(found)


def _placed(images: list[Path], source: Path, target: Path) -> Iterator[Item]:
    """The images of a folder as items in another folder, whose subfolders are created."""
    names = Counter(path.relative_to(source).with_suffix("") for path in images)
    for path in images:
        name = path.relative_to(source).with_suffix("")
        # a.gif and a.heic must not both become a.png
        stem = name if names[name] == 1 else path.relative_to(source)
        folder = target / stem.parent
        make_folder(folder)
        yield Item(path, folder, stem.name)
