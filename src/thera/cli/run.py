"""Scales files and folders for `thera upscale`, one file after the other."""

import math
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thera.cli.feedback import Feedback
from thera.cli.timing import Clock, human_time
from thera.errors import ImageFileError, InvalidInput, TheraError, UnreadableImage
from thera.field.threads import limit_threads
from thera.files import reason_of
from thera.geo.files import Item, Request, prepare
from thera.geo.raster import RASTER_ONLY
from thera.geo.safe import is_product
from thera.imaging import AUTO, DEFAULT_MODEL, RESTORING_MODEL
from thera.models.choice import ModelChoice

if TYPE_CHECKING:
    from thera.geo.upscaling import RasterScaling
    from thera.imaging.files import FileScaling
    from thera.imaging.picture import Picture
    from thera.models import Model

Record = dict[str, Any]  # the result of a file, as --json prints it


@dataclass
class Scaler:
    """Scales files by one request, with a model that is loaded once. `dry`: only plans, writes nothing."""

    feedback: Feedback
    request: Request
    choice: ModelChoice
    dry: bool = False

    def __post_init__(self) -> None:
        limit_threads(self.choice.threads)
        self._clocks: dict[str, Clock] = {}  # of each model, by its name
        self._left = ""  # how long the other files will take
        # The model loads in another thread while this one imports the rest and reads the image.
        first = replace(self.choice, name=DEFAULT_MODEL, strength=1.0) if self.automatic else self.choice
        self._loading = ThreadPoolExecutor(1).submit(first.load)
        self._restoring = cache(replace(self.choice, name=RESTORING_MODEL).load)

    @property
    def automatic(self) -> bool:
        return self.choice.name == AUTO

    def loaded(self) -> "Model":
        """The model; with `--model auto` the clean one."""
        return self._loading.result()

    def chosen(self, item: Item) -> tuple["Model", str, "Picture | None"]:
        """The model for a file, why it was chosen if nobody named it, and the picture if it was read."""
        if not self.automatic:
            return self.loaded(), "", None
        if self.request.is_raster(item):
            return self.loaded(), "measurements are not restored", None
        from thera.imaging.traces import traces
        from thera.models import shipped

        try:
            picture = self.request.file.read(item.source)
        except UnreadableImage:  # GDAL may read it
            return self.loaded(), "it is no picture", None
        found = traces(item.source, picture)
        reason = found.reason()
        if reason is None:
            return self.loaded(), f"it is clean: {found}", picture
        if RESTORING_MODEL not in [model.name for model in shipped()]:
            return self.loaded(), f"{reason}, but no model named {RESTORING_MODEL} is installed", picture
        return self._restoring(), reason, picture

    def file_item(self, source: Path, output: Path | None) -> Item:
        """A single file, scaled into `output`, a file or folder, or beside the input."""
        stem = f"{source.stem}_{self.request.label}"
        if output is not None and os.path.isdir(output):
            return Item(source, output, stem)
        return Item(source, source.parent, stem, output)

    def items(self, sources: list[Path], output: Path | None, recursive: bool) -> list[Item]:
        """Every image of a folder, or of several files and folders."""
        if len(sources) == 1:
            if output is not None and not os.path.isdir(output.parent):
                raise ImageFileError(
                    f"The folder {output.parent} of the output does not exist: make it first."
                )
            return self.folder_items(sources[0], output, recursive)
        for source in sources:
            if source.suffix == ".zarr":
                raise InvalidInput(f"{source} is a Zarr store: scale it by itself.")
        if output is not None and os.path.exists(output) and not os.path.isdir(output):
            raise ImageFileError(f"The output {output} is a file: several inputs need a folder.")
        items: list[Item] = []
        for source in sources:
            if os.path.isdir(source) and not is_product(source):
                folder = None if output is None else output / source.resolve().name
                items += self.folder_items(source, folder, recursive)
            else:
                stem = f"{source.stem}_{self.request.target.label}"
                items.append(Item(source, output or source.parent, stem))
        return _told_apart(items)

    def make_folders(self, items: list[Item]) -> None:
        """Makes the folders of all outputs, once it is known that there is such a model."""
        self.loaded()
        for folder in dict.fromkeys(item.folder for item in items):
            make_folder(folder)

    def folder_items(self, source: Path, output: Path | None, recursive: bool) -> list[Item]:
        """Every image of a folder, sorted by name."""
        from thera.imaging.formats import READABLE_SUFFIXES

        readable = (*READABLE_SUFFIXES, *(RASTER_ONLY if find_spec("rasterio") else ()))
        folder = source if source.name not in ("", "..") else source.resolve()
        target = output or folder.with_name(f"{folder.name}_{self.request.label}")
        if os.path.exists(target) and (not target.is_dir() or target.samefile(source)):
            raise ImageFileError(f"The output {target} must be a folder of its own: choose another name.")
        inside = Path(os.path.realpath(target))  # outputs of an earlier call are not inputs
        images = [
            path
            for path in _files_in(source, recursive)
            if (is_product(path) or (path.suffix.lower() in readable and path.is_file()))
            and inside not in path.resolve().parents
        ]
        if not images:
            hint = "" if recursive else " (--recursive also searches its folders)"
            raise ImageFileError(f"The folder {source} has no images in it{hint}.")
        return list(_placed(images, source, target))

    def attempt(self, item: Item, place: str = "") -> Record:
        """Scales one file, and returns its record. Errors are part of the record.

        `place`: "37 of 1,000" for one of many files. They are skipped if they are done.
        """
        record: Record = {"input": str(item.source)}
        try:
            if place and not self.request.file.overwrite:
                for output in filter(os.path.isfile, self.request.outputs(item)):
                    return record | {"output": str(output), "status": "skipped"}
            return record | self._scale(item, place)
        except MemoryError:
            error: Exception = InvalidInput(f"{item.source} needs more memory than there is: lower --memory.")
        except TheraError as problem:
            error = problem
            if place and str(item.source) not in str(problem):
                error = ImageFileError(f"{item.source}: {problem}")
        except Exception as problem:
            if not place or isinstance(problem, click.ClickException):
                raise
            # An unexpected error must not stop the other files.
            error = ImageFileError(f"{item.source} could not be scaled: {problem!r}.")
        return record | {"status": "failed", "error": self.feedback.named(str(error))}

    def attempt_all(self, items: list[Item]) -> Iterator[Record]:
        """Scales one file after the other, and gives their records."""
        began, scaled = time.monotonic(), 0
        for count, item in enumerate(items, 1):
            if scaled and not self.dry:
                seconds = (time.monotonic() - began) / scaled * (len(items) + 1 - count)
                self._left = f"about {human_time(seconds)} left for all"
            record = self.attempt(item, f"{count:,} of {len(items):,}")
            scaled += record["status"] == "done"
            yield record

    def _scale(self, item: Item, place: str) -> Record:
        began = time.monotonic()
        model, reason, picture = self.chosen(item)
        reason = f", as {reason}" if reason else ""
        job = self._planned(item, model, picture) if self.dry else prepare(item, model, self.request, picture)
        if self.request.file.quality is not None and not place and not job.form.lossy:
            name = job.form.name.upper()
            raise click.UsageError(
                f"--quality is for JPEG, JPEG XL, WebP and AVIF, and this is {name}: leave it out."
            )
        plan, feedback = job.plan, self.feedback
        clock = self._clocks.setdefault(job.model.name, Clock(job.model, self.choice.threads))
        estimate = None if feedback.quiet and not self.dry else clock.estimate(job, always=self.dry)
        record = done(job.output, plan.source, plan.size, job.form.name, job.depth, job.model)
        record |= {
            "ensemble": self.request.options.ensemble,
            "tiles": job.tiles,
            "memory": plan.memory,
            "seconds": 0.0,
            "notes": list(job.notes),
        }
        if self.dry or not place:
            source = f"{place}  {item.source}" if place else str(item.source)
            feedback.plan(source, job, reason, estimate, self.dry)
        if self.dry:
            return record | {"status": "planned", "seconds": round(estimate or 0, 3), "disk": job.disk}
        name = Path(feedback.named(str(item.source))).name
        label, started = f"{place} files · {name}" if place else name, time.monotonic()
        left = {"left": self._left} if place else {}
        with feedback.progress(math.prod(plan.size), label, estimate, job.tiles, **left) as progress:
            job.run(progress)
        if estimate is not None:
            clock.learn(job, time.monotonic() - started)
        seconds = time.monotonic() - began
        if place:
            (H, W), (rows, cols) = plan.source, plan.size
            chosen = f" by {model.name}{reason}" if reason else ""
            feedback.say(f"{place}  {item.source} {W}×{H} → {cols}×{rows}{chosen} in {human_time(seconds)}")
            feedback.notes(job)
        else:
            feedback.say(f"{job.output} is done in {human_time(seconds)}.")
        return record | {"seconds": round(seconds, 3)}

    def _planned(
        self, item: Item, model: "Model", picture: "Picture | None"
    ) -> "FileScaling | RasterScaling":
        """The job of an item whose folder may not be there yet: it is checked where it would be made."""
        existing = item.folder
        while not os.path.isdir(existing) and existing != existing.parent:
            existing = existing.parent
        request = self.request
        if existing != item.folder:
            request = replace(request, file=replace(request.file, overwrite=True))
        job = prepare(item._replace(folder=existing), model, request, picture)
        return replace(job, output=item.output or item.folder / job.output.name)


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
        found += [Path(root, name) for name in folders if is_product(Path(name))]
        folders[:] = [name for name in folders if recursive and not is_product(Path(name))]
    return sorted(found)


def _placed(images: list[Path], source: Path, target: Path) -> Iterator[Item]:
    """The images of a folder as items in another folder."""
    names = Counter(path.relative_to(source).with_suffix("") for path in images)
    for path in images:
        name = path.relative_to(source).with_suffix("")
        # a.gif and a.heic must not both become a.png
        stem = name if names[name] == 1 else path.relative_to(source)
        yield Item(path, target / stem.parent, stem.name)
