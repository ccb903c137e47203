"""Folders of test images, read as 8-bit RGB. Conversions are recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError, InvalidInput
from thera.evaluation.protocol import METRICS, border_of, reduced_length

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = {".avif", ".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}


class ImageSet(NamedTuple):
    """The images of a folder, under the folder's name."""

    name: str
    files: list[Path]
    damage: str = ""  # to the low-resolution images: see `damage.py`

    def damaged(self, damage: str) -> ImageSet:
        """The same images with this damage, under a name that says so: "Set14 jpeg:40"."""
        return ImageSet(f"{self.name} {damage}", self.files, damage) if damage else self


class TargetImage(NamedTuple):
    """An 8-bit H×W×3 image, and how it was converted if the file held something else."""

    pixels: NDArray[np.uint8]
    conversion: str | None = None


def with_names(folders: Iterable[str | Path]) -> Iterator[tuple[str, Path]]:
    """Folders with the names under which their results are stored. Two of the same name are refused."""
    seen = set()
    for folder in map(Path, folders):
        name = folder.resolve().name
        if name in seen:
            raise InvalidInput(f"Two folders are called {name}: rename one, or their results would be mixed.")
        seen.add(name)
        yield name, folder


def image_sets(folders: Iterable[str | Path]) -> list[ImageSet]:
    """The images of each folder, sorted by name."""
    sets = []
    for name, folder in with_names(folders):
        if not folder.is_dir():
            raise InvalidInput(f"{folder} is not a folder: give a folder of images.")
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
        if not files:
            raise InvalidInput(f"{folder} has no image in it: give one with {', '.join(sorted(SUFFIXES))}.")
        sets.append(ImageSet(name, files))
    return sets


def check_sizes(sets: Iterable[ImageSet], scales: Iterable[float]) -> None:
    """Refuse images that are too small for one of the scales, before hours of work. Only headers are read."""
    extra = max(extra for _, extra in METRICS.values())
    scales = list(scales)
    for path in (path for images in sets for path in images.files):
        with _open(path) as image:
            for scale in scales:
                side = min(reduced_length(n, scale)[1] for n in image.size)
                if side <= 2 * border_of(scale, extra) + 10:
                    raise InvalidInput(
                        f"{path} of {image.size[0]}×{image.size[1]} pixels is too small for ×{scale:g}: "
                        "leave the image or the scale out."
                    )


def read(path: Path) -> TargetImage:
    """The image in `path` as 8-bit RGB."""
    with _open(path) as image:
        deep = ["16 bits cut to the upper 8"] if ";16" in f"{getattr(image, 'tile', '')} {image.mode}" else []
        try:
            image.load()
        except (OSError, SyntaxError, ValueError) as error:
            raise ImageFileError(f"{path} is damaged ({error}): replace it.") from error
        if image.mode == "RGB":
            return TargetImage(np.array(image), *deep)
        if image.mode in ("1", "L", "I;16"):
            grey = np.array(image) >> 8 if image.mode == "I;16" else np.array(image.convert("L"))
            pixels = np.repeat(grey.astype(np.uint8)[..., None], 3, axis=2)
            return TargetImage(pixels, ", ".join([*deep, "grey repeated in three channels"]))
        if image.mode in ("P", "PA", "LA", "RGBA"):
            rgba = np.array(image.convert("RGBA"))
            if rgba[..., 3].min() < 255:
                raise ImageFileError(f"{path} has transparent pixels, which have no PSNR: flatten it first.")
            done = "palette looked up" if image.mode == "P" else "opaque alpha dropped"
            return TargetImage(rgba[..., :3], ", ".join([*deep, done]))
        raise ImageFileError(f"{path} holds {image.mode} pixels: convert it to 8-bit RGB first.")


def _open(path: Path) -> Image.Image:
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(path)
    except (UnidentifiedImageError, OSError) as error:
        raise ImageFileError(f"{path} cannot be read as an image ({error}): remove or replace it.") from error
