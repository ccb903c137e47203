"""Which files `thera upscale` scales, and where their outputs go."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from thera.errors import ImageFileError, InvalidInput
from thera.files import reason_of
from thera.geo.files import Item
from thera.geo.raster import RASTER_ONLY
from thera.geo.safe import is_product
from thera.imaging.formats import READABLE_SUFFIXES


def file_item(source: Path, output: Path | None, label: str, slashed: bool = False) -> Item:
    """A single file, scaled into `output`, a file or folder, or beside the input.

    `label`: the size, as part of the names of outputs. `slashed`: the output is a folder, even if it is new.
    """
    stem = f"{source.stem}_{label}"
    if output is not None and (os.path.isdir(output) or slashed):
        return Item(source, output, stem)
    return Item(source, source.parent, stem, output)


def find_items(sources: list[Path], output: Path | None, label: str, recursive: bool) -> list[Item]:
    """Every image of a folder, or of several files and folders."""
    if len(sources) == 1:
        if output is not None and not os.path.isdir(output.parent):
            raise ImageFileError(f"The folder {output.parent} of the output does not exist: make it first.")
        return _folder_items(sources[0], output, label, recursive)
    for source in sources:
        if source.suffix == ".zarr":
            raise InvalidInput(f"{source} is a Zarr store: scale it by itself.")
    if output is not None and os.path.exists(output) and not os.path.isdir(output):
        raise ImageFileError(f"The output {output} is a file: several inputs need a folder.")
    items: list[Item] = []
    for source in sources:
        if os.path.isdir(source) and not is_product(source):
            folder = None if output is None else output / source.resolve().name
            items += _folder_items(source, folder, label, recursive)
        else:
            items.append(Item(source, output or source.parent, f"{source.stem}_{label}"))
    return _told_apart(items)


@contextmanager
def made_folders(items: Sequence[Item], dry: bool = False) -> Iterator[None]:
    """Makes the folders of outputs unless they are there, and removes those in which nothing was written."""
    wanted = dict.fromkeys(
        item.folder for item in items if not dry and item.output is None and item.folder != item.source.parent
    )
    new = {part for folder in wanted for part in (folder, *folder.parents) if not os.path.exists(part)}
    try:
        for folder in wanted:
            _make_folder(folder)
        yield
    finally:
        for folder in sorted(new, key=lambda folder: len(folder.parts), reverse=True):
            with suppress(OSError):  # it holds a picture
                folder.rmdir()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # a circle of links is a RuntimeError
        reason = getattr(error, "strerror", None) or error
        if os.path.islink(folder):
            reason = "it is a link that leads nowhere"
        raise ImageFileError(f"The folder {folder} cannot be made: {reason}.") from error


def _folder_items(source: Path, output: Path | None, label: str, recursive: bool) -> list[Item]:
    """Every image of a folder, sorted by name."""
    readable = (*READABLE_SUFFIXES, *(RASTER_ONLY if find_spec("rasterio") else ()))
    folder = source if source.name not in ("", "..") else source.resolve()
    target = output or folder.with_name(f"{folder.name}_{label}")
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
