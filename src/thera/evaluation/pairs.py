"""Pairs of pictures of one scene at two focal lengths: the low one is the input, the high one the target.

A pair is brought together when it is read: the shift between both is measured, the colours of the high one
are fitted to those of the low one, and pixels that differ all the same (something moved) count less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.evaluation.images import SUFFIXES, read
from thera.evaluation.resize import imresize, to_uint8

# How often City100's cameras enlarge; its low pictures are stored at the size of the high ones.
CITY100 = {"nikon": 2.9, "iphone": 2.5}
SAME_RATIO = 0.02  # of both axes, relative
ALIKE = 0.5  # correlation of the brightness of both pictures, at least
FARTHEST = 8.0  # shift between both, in low pixels
MOVED = 3.0  # typical differences, beyond which a pixel counts less


@dataclass(frozen=True)
class PicturePair:
    """8-bit pictures; low(p) shows what high shows at (p + shift) · ratio, both in (row, column)."""

    low: NDArray[np.uint8]
    high: NDArray[np.uint8]
    weight: NDArray[np.uint8]  # of the low one's pixels: 255 where both show the same
    shift: tuple[float, float]  # in low pixels

    @property
    def ratio(self) -> tuple[float, float]:
        return self.high.shape[0] / self.low.shape[0], self.high.shape[1] / self.low.shape[1]


def read_pairs(folders: Sequence[str | Path], smallest: int) -> list[PicturePair]:
    """All pairs of folders, brought together. A low picture needs `smallest` pixels a side.

    A folder holds `low/NAME.png` and `high/NAME.png`, or, as City100, `NAMEL.png` and `NAMEH.png`, or, as
    COZ's train_LR and test_LR, a folder for each scene.
    """
    files = [pair for folder in folders for pair in find_pairs(Path(folder))]
    with ThreadPoolExecutor() as pool:
        pairs = list(pool.map(lambda pair: matched(*pair), files))
    for (path, _), pair in zip(files, pairs, strict=True):
        if min(pair.low.shape[:2]) < smallest:
            raise InvalidInput(f"{path} is smaller than a patch of {smallest} pixels: lower data.patch.")
    return pairs


def find_pairs(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The files of all pairs in a folder, low and high."""
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is no folder of pairs: name one with low/ and high/ in it.")
    if "_LR" in folder.name and not (folder / "low").is_dir():
        yield from _zoom_series(folder)
        return
    files = {p.relative_to(folder): p for p in sorted(folder.rglob("*")) if p.suffix.lower() in SUFFIXES}
    by_key: dict[tuple[Path, str], dict[str, Path]] = {}
    for name, path in files.items():
        stem, kind = name.stem, name.parent.name
        if kind not in ("low", "high") and stem[-1:] in "LH":
            stem, kind = stem[:-1], {"L": "low", "H": "high"}[stem[-1]]
            by_key.setdefault((name.parent, stem), {})[kind] = path
        elif kind in ("low", "high"):
            by_key.setdefault((name.parent.parent, stem), {})[kind] = path
    if not by_key:
        raise InvalidInput(f"{folder} holds no pairs: they are low/NAME and high/NAME, or NAMEL and NAMEH.")
    for found in by_key.values():
        if len(found) == 1:
            ((kind, path),) = found.items()
            other = "high" if kind == "low" else "low"
            raise InvalidInput(f"{path} has no {other} partner: add it, or remove this one.")
        yield found["low"], found["high"]


def _zoom_series(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The pairs of COZ: a folder for each scene holds one view at several focal lengths.

    The high pictures of test_LR and test_LR_add are in test_HR beside them, in the order of the scenes. In
    train_LR the largest picture of each scene is the high one.
    """
    scenes = [found for scene in sorted(folder.iterdir()) if scene.is_dir() and (found := _pictures(scene))]
    if not scenes:
        raise InvalidInput(
            f"{folder} holds no pairs: as COZ's, it needs a folder of pictures for each scene."
        )
    targets = folder.with_name(folder.name.partition("_LR")[0] + "_HR")
    highs = _pictures(targets) if targets.is_dir() else [max(scene, key=_area) for scene in scenes]
    if len(highs) != len(scenes):
        raise InvalidInput(
            f"{targets} holds {len(highs)} pictures for the {len(scenes)} scenes of {folder.name}:"
            " each scene needs one."
        )
    for scene, high in zip(scenes, highs, strict=True):
        if scene == [high]:
            raise InvalidInput(f"{high} is the only picture of its scene: add another one, or remove it.")
        yield from ((low, high) for low in scene if low != high)


def _pictures(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES]


def _area(path: Path) -> int:
    from PIL import Image

    with Image.open(path) as image:
        return image.width * image.height


def matched(low_path: Path, high_path: Path) -> PicturePair:
    """The pictures of two files, brought together."""
    low, high = read(low_path).pixels, read(high_path).pixels
    if low.shape == high.shape:
        ratio = next((r for name, r in CITY100.items() if name in str(low_path).lower()), None)
        if ratio is None:
            raise InvalidInput(f"{low_path} is as large as its partner: store it at its own resolution.")
        low = imresize(low, (round(low.shape[0] / ratio), round(low.shape[1] / ratio)))
    down, across = high.shape[0] / low.shape[0], high.shape[1] / low.shape[1]
    if min(down, across) < 1 or abs(down / across - 1) > SAME_RATIO:
        raise InvalidInput(
            f"{high_path} is {down:.2f} times as high and {across:.2f} times as wide as {low_path.name}:"
            " a pair needs one ratio of at least 1."
        )
    reduced = imresize(high, (low.shape[0], low.shape[1])).astype(np.float32)
    grey = low.mean(axis=2, dtype=np.float32), reduced.mean(axis=2)
    shift = measured_shift(*grey)
    there = np.roll(reduced, (-round(shift[0]), -round(shift[1])), (0, 1))
    alike = np.corrcoef(grey[0].ravel(), there.mean(axis=2).ravel())[0, 1]
    if not alike > ALIKE or max(map(abs, shift)) > FARTHEST:
        raise InvalidInput(
            f"{low_path} and {high_path.name} show different things (correlation {alike:.2f}, shift"
            f" {shift[0]:.1f}, {shift[1]:.1f} pixels): remove them."
        )
    lines = fitted_colours(there, low)
    high = np.stack([to_uint8(gain * high[..., c] + offset) for c, (gain, offset) in enumerate(lines)], 2)
    difference = _smoothed(_difference(there, low, lines))
    difference /= MOVED * (np.median(difference) + 1)
    return PicturePair(low, high, to_uint8(255 / (1 + difference**2)), shift)


def fitted_colours(high: NDArray, low: NDArray) -> list[tuple[float, float]]:
    """Gain and offset of each channel that take one picture to the other, fitted where they differ least.

    Half of the pixels are left out, so that what moved does not count.
    """
    kept = np.ones(low.shape[:2], bool)
    for _ in range(4):
        lines = [tuple(np.polyfit(high[..., c][kept], low[..., c][kept], 1)) for c in range(low.shape[2])]
        difference = _difference(high, low, lines)
        kept = difference <= np.median(difference)
    return lines


def _difference(high: NDArray, low: NDArray, lines: list[tuple[float, float]]) -> NDArray[np.float64]:
    """The mean absolute difference of the channels at every pixel, after the fit."""
    fitted = [gain * high[..., c] + offset - low[..., c] for c, (gain, offset) in enumerate(lines)]
    return np.abs(fitted).mean(axis=0)


def measured_shift(low: NDArray[np.float32], reduced: NDArray[np.float32]) -> tuple[float, float]:
    """(row, column) d such that low(p) = reduced(p + d): the peak of the phase correlation, and its parabola.

    >>> picture = np.random.default_rng(0).random((40, 50)).astype(np.float32)
    >>> [round(d) for d in measured_shift(np.roll(picture, (-3, 2), (0, 1)), picture)]
    [3, -2]
    """
    window = np.hanning(low.shape[0])[:, None] * np.hanning(low.shape[1])
    one, two = (np.fft.rfft2((picture - picture.mean()) * window) for picture in (low, reduced))
    cross = two * one.conj()
    peaks = np.fft.irfft2(cross / (np.abs(cross) + 1e-3 * np.abs(cross).max()), low.shape)
    at = np.unravel_index(peaks.argmax(), peaks.shape)
    shift = []
    for axis, (n, k) in enumerate(zip(peaks.shape, at, strict=True)):
        before, here, after = (peaks[(*at[:axis], (k + i) % n, *at[axis + 1 :])] for i in (-1, 0, 1))
        bend = before - 2 * here + after
        fine = float(k) + (0.5 * (before - after) / bend if bend else 0.0)
        shift.append(fine - n if fine > n / 2 else fine)
    return shift[0], shift[1]


def _smoothed(values: NDArray[np.float64], radius: int = 2) -> NDArray[np.float64]:
    for axis in (0, 1):
        values = np.mean([np.roll(values, i, axis) for i in range(-radius, radius + 1)], axis=0)
    return values
