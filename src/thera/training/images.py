"""Reads training images from folders and tar files."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, UnidentifiedImageError

from thera.errors import InvalidInput
from thera.evaluation.images import SUFFIXES


def read_images(
    paths: list[str | Path],
    smallest: int,
    resized: tuple[float, ...] = (),
    soft: tuple[float, ...] = (),
    skip: Callable[[str], None] = print,
) -> list[np.ndarray]:
    """All images of folders and tar files as H×W×3 uint8, with their resized and softened copies.

    An image that cannot be read, or is smaller than `smallest`, is skipped; `skip` is called with the reason.
    """

    def decode(item: tuple[str, Callable[[], bytes]]) -> list[np.ndarray] | str:
        name, read = item
        try:
            stored = Image.open(io.BytesIO(read()))
            if stored.mode.startswith(("I", "F")):  # Pillow would clip these at 255
                return f"Skipped {name}: its samples have more than 8 bits."
            image = stored.convert("RGB")
        except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError) as e:
            return f"Skipped {name}: not a readable image ({e})."
        copies = [image]
        for s in resized:
            size = (round(image.width * s), round(image.height * s))
            copies.append(image.resize(size, Image.Resampling.BICUBIC))
        copies += [image.filter(ImageFilter.GaussianBlur(sigma)) for sigma in soft]
        kept = [np.array(c) for c in copies if min(c.size) >= smallest]
        return kept or (
            f"Skipped {name}: {image.width}×{image.height} is smaller than the smallest crop, {smallest}."
        )

    images: list[np.ndarray] = []
    with ThreadPoolExecutor() as pool:
        for found in pool.map(decode, _entries(paths)):
            if isinstance(found, str):
                skip(found)
            else:
                images += found
    if not images:
        raise InvalidInput(
            f"No usable image in {', '.join(map(str, paths))}: name folders or tar files of images."
        )
    return images


def _entries(paths: list[str | Path]) -> Iterator[tuple[str, Callable[[], bytes]]]:
    for path in map(Path, paths):
        if path.is_dir():
            for file in sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES):
                yield str(file), file.read_bytes
        elif path.is_file() and tarfile.is_tarfile(path):
            try:
                yield from _members(path)
            except tarfile.TarError as e:
                raise InvalidInput(f"{path} is damaged or cut short ({e}): fetch it again.") from None
        else:
            raise InvalidInput(f"{path} is neither a folder nor a tar file of images.")


def _members(path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and Path(member.name).suffix.lower() in SUFFIXES:
                content = archive.extractfile(member)
                yield f"{path}:{member.name}", partial(bytes, content.read() if content else b"")
