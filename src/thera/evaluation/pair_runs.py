"""Measure methods on pairs of pictures taken at two focal lengths.

A pair is scored twice: as it was taken, and aligned. The alignment is one affine map of each pair, fitted
between the bicubic enlargement and the high picture. The high picture is read through it, so that no output
is resampled and all methods have the same target. Colours of the high picture are fitted when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.evaluation import metrics
from thera.evaluation.images import with_names
from thera.evaluation.methods import Method
from thera.evaluation.pairs import PicturePair, find_pairs, matched
from thera.evaluation.protocol import cut, unit
from thera.evaluation.records import Record
from thera.evaluation.resize import resize
from thera.evaluation.runner import Prepared, Progress, Task, check_stored, checksum, measure_all
from thera.evaluation.tables import Table, summarise
from thera.field.psf import to_numpy

PROTOCOL = "pairs 1"  # results of two versions are never mixed, nor with those of single images
METRICS = {"psnr_y": metrics.psnr_y, "ssim": metrics.ssim}
BORDER = 12  # high pixels that are not scored on each side, beside the shift
SMALLEST = 2 * BORDER + 11  # side of a high picture
STEPS = 12  # of the fit, at most
ABOUT = (
    "The target is the picture at the longer focal length, its colours fitted to the other one's. "
    "Aligned: it is read through one affine map for each pair, the same for all methods."
)

Map = NDArray[np.float64]  # 2×3: output (x, y, 1) to input (x, y), in pixels


class PairSet(NamedTuple):
    """The pairs of a folder, low and high, under the folder's name."""

    name: str
    folder: Path
    files: list[tuple[Path, Path]]


def pair_sets(folders: Iterable[str | Path]) -> list[PairSet]:
    """The pairs of each folder."""
    return [PairSet(name, folder, list(find_pairs(folder))) for name, folder in with_names(folders)]


def run_pairs(
    methods: Sequence[Method],
    sets: Sequence[PairSet],
    out: Path,
    workers: int = 2,
    replace: bool = False,
    progress: Progress = lambda results, total: results,
) -> list[Record]:
    """Measure what `out` does not hold yet, append it there, and return all records that were asked for.

    Results in `out` of other models or pictures of the same names are refused, or dropped with `replace`.
    What a method refuses is named in a `Refusals`, when all else is measured.
    """
    files = {(s.name, _name(s, low)): (low, high) for s in sets for low, high in s.files}

    def checksums(named: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
        return {key: _checksum(matched(*pair)) for key, pair in files.items() if key in named}

    check_stored(out, methods, PROTOCOL, checksums, replace)
    tasks = [partial(_task, data, name, *pair) for (data, name), pair in files.items()]
    return measure_all(methods, tasks, out, workers, progress)


def pair_tables(records: Sequence[Record]) -> list[Table]:
    """Tables of PSNR and SSIM for each folder of pairs, as taken and aligned."""
    tables = []
    for data in dict.fromkeys(record["data"] for record in records):
        for metric in METRICS:
            columns = [record | {"scale": 0} for record in records]
            columns += [record | record["aligned"] | {"scale": 1} for record in records]
            table = summarise(columns, data, metric, [0, 1], ["as taken", "aligned"])
            ratios = sorted({f"×{record['scale']:g}" for record in records if record["data"] == data})
            table.title = f"{data}, {', '.join(ratios)}: {table.title.partition(', ')[2]}"
            tables.append(table)
    return tables


def _name(pairs: PairSet, low: Path) -> str:
    return low.relative_to(pairs.folder).as_posix()


def _checksum(pair: PicturePair) -> str:
    return checksum(pair.low, pair.high)


def _task(data: str, name: str, low: Path, high: Path) -> Task:
    pair = matched(low, high)
    if min(pair.high.shape[:2]) < SMALLEST:
        raise InvalidInput(f"{high} is too small to score: a pair needs {SMALLEST} pixels a side, or more.")
    about = {
        "data": data,
        "image": name,
        "pixels": _checksum(pair),
        "scale": round(float(np.mean(pair.ratio)), 2),
        "protocol": PROTOCOL,
    }
    return Task(about, partial(_prepared, pair))


def _prepared(pair: PicturePair) -> Prepared:
    target = unit(pair.high)
    size = target.shape[0], target.shape[1]
    bicubic = resize(unit(pair.low), size).astype(np.float32).clip(0, 1)
    aligned = warped(target, fitted_map(target, bicubic, _shift(pair))).clip(0, 1)
    border = BORDER + round(float(np.abs(_shift(pair)).max()))

    def scores(output: Any) -> Record:
        seen = cut(to_numpy(output).clip(0, 1), border)
        as_taken, after = (
            {name: round(metric(seen, cut(wanted, border)), 5) for name, metric in METRICS.items()}
            for wanted in (target, aligned)
        )
        return as_taken | {"aligned": after}

    return Prepared(unit(pair.low), size, scores)


def _shift(pair: PicturePair) -> NDArray[np.float64]:
    """Where the high picture shows what the low one does: (x, y) in high pixels."""
    return np.multiply(pair.shift, pair.ratio)[::-1]


def fitted_map(moving: NDArray, fixed: NDArray, shift: NDArray[np.float64]) -> Map:
    """The affine map m for which moving(m·p) is closest to fixed(p): Gauss-Newton on the brightness.

    It begins with no change or with `shift`, whichever is closer. Only a step to a closer map is taken.
    """
    inner = (slice(BORDER, -BORDER),) * 2
    bright = fixed.mean(-1)
    height, width = bright.shape
    y, x = np.mgrid[:height, :width] + 0.5

    def difference(m: Map) -> tuple[float, NDArray]:
        now = warped(moving, m).mean(-1)
        return float(((bright - now)[inner] ** 2).mean()), now

    starts = [np.array([[1, 0, dx], [0, 1, dy]], float) for dx, dy in ((0, 0), shift)]
    (least, now), best = min(((difference(m), m) for m in starts), key=lambda found: found[0][0])
    for _ in range(STEPS):
        down, across = np.gradient(now)
        slopes = [g * p for g in (across, down) for p in (x - width / 2, y - height / 2, np.ones_like(x))]
        columns = np.stack([slope[inner].ravel() for slope in slopes], 1)
        error = (bright - now)[inner].ravel()
        step = np.linalg.lstsq(columns.T @ columns, columns.T @ error, rcond=None)[0].reshape(2, 3)
        step[:, 2] -= step[:, :2] @ [width / 2, height / 2]
        closer, there = difference(best + step)
        if closer >= least:
            break
        best, least, now = best + step, closer, there
    return best


def warped(image: NDArray, m: Map) -> NDArray[np.float32]:
    """H×W×C image read at m·(x, y, 1) for the centre of every pixel, bicubic; 0 outside."""
    from PIL import Image

    channels = [Image.fromarray(np.ascontiguousarray(c, np.float32)) for c in np.moveaxis(image, -1, 0)]
    size, numbers = image.shape[1::-1], tuple(m.ravel())
    moved = [c.transform(size, Image.Transform.AFFINE, numbers, Image.Resampling.BICUBIC) for c in channels]
    return np.stack([np.asarray(c) for c in moved], -1)
