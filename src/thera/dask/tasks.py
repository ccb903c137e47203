"""What runs on a worker: one chunk of the output, from the chunk of the input that it needs.

A task carries the name of its model, never a session. Each process loads a model once and keeps it, and a
task may run any number of times, anywhere: its result depends on what it is given alone.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thera.field import Filter
from thera.field.grid import Axis
from thera.field.threads import one_core
from thera.imaging.tiling import make_plan, output_pixels, scaled_rows
from thera.models import Model, load
from thera.models.loading import shipped
from thera.values.planes import Plane
from thera.values.ranges import Range

#: Models that a worker keeps.
KEPT = 2


class ModelName(NamedTuple):
    """A model as tasks name it. `version` tells contents apart that a file had at different times."""

    name: str
    engine: str
    device: str
    precision: str
    version: int

    @classmethod
    def of(cls, model: str | Path, engine: str, device: str, precision: str) -> "ModelName":
        """Files get the name by which workers on other machines find them in a shared folder."""
        path = Path(model)
        if str(model).startswith("hf:") or not path.is_file() or any(m.name == str(model) for m in shipped()):
            return cls(str(model), engine, device, precision, 0)
        return cls(str(path.resolve()), engine, device, precision, path.stat().st_mtime_ns)


_loading = Lock()


def loaded(name: ModelName) -> Model:
    """The model of that name, loaded once in this process.

    One core runs each task: it is Dask that keeps the others busy, with other tasks.
    """
    with _loading:
        return _load(name)


@lru_cache(KEPT)
def _load(name: ModelName) -> Model:
    return load(name.name, name.engine, name.device, name.precision, threads=1)


@dataclass(frozen=True)
class Job:
    """All that the tasks of one scaling have in common.

    `rows` and `cols` are where the input is cut into chunks, `groups` the channels that the network sees
    together, (first, last + 1) each, and `depth` how far chunks overlap along either axis.
    """

    model: ModelName
    source: tuple[int, int]
    size: tuple[int, int]
    rows: tuple[int, ...]
    cols: tuple[int, ...]
    depth: tuple[int, int]
    groups: tuple[tuple[int, int], ...]
    dtype: np.dtype
    psf: Filter | None
    ensemble: bool
    memory: int

    def part(self, block: tuple[int, ...]) -> tuple[slice, slice]:
        """The cells of the input that a chunk of the output belongs to."""
        i, j = block[:2]
        return slice(self.rows[i], self.rows[i + 1]), slice(self.cols[j], self.cols[j + 1])

    def output_chunks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """How many rows and columns of the output belong to each chunk."""
        cuts = zip(self.source, self.size, (self.rows, self.cols), strict=True)
        rows, cols = (
            tuple(np.diff(np.searchsorted(Axis.whole(n, N).cell, at)).tolist()) for n, N, at in cuts
        )
        return rows, cols


def extremes(block: NDArray) -> NDArray:
    """The lowest values of the channels of a chunk, then the highest, 1×1×2C."""
    return np.concatenate([block.min((0, 1)), block.max((0, 1))])[None, None]


def spans_of(found: NDArray, groups: tuple[tuple[int, int], ...]) -> tuple[Range, ...]:
    """What the samples of each group of channels span, from the extremes of all chunks."""
    lowest, highest = np.split(found, 2, axis=2)
    return tuple(Range.of_extremes(lowest[..., a:b].min(), highest[..., a:b].max()) for a, b in groups)


def upscale_chunk(
    block: NDArray, *, job: Job, spans: tuple[Range, ...], block_id: tuple[int, ...] = ()
) -> NDArray:
    """One chunk of the output, h'×w'×C.

    `block` is its part of the input, and what lies within the overlap around it, h×w×C.
    """
    model = loaded(job.model)
    part = job.part(block_id)
    top, left = (max(0, cells.start - depth) for cells, depth in zip(part, job.depth, strict=True))
    plan = make_plan(
        model.info,
        job.source,
        job.size,
        fields=4 if job.ensemble else 1,
        psf=model.psf(job.source, job.size) if job.psf is None else job.psf,
        memory=job.memory,
        held=0,
        part=part,
        good_enough=1.0,  # what memory is left over helps nobody
    )
    shape = [
        output_pixels(Axis.whole(n, N), cells.start, cells.stop)
        for n, N, cells in zip(job.source, job.size, part, strict=True)
    ]
    out = np.empty((*(pixels.stop - pixels.start for pixels in shape), block.shape[2]), job.dtype)
    # One group of channels after the other, lest their fields be held side by side.
    for (first, last), span in zip(job.groups, spans, strict=True):
        plane = Plane(block, slice(first, last), span)

        def cells(above: int, before: int, below: int, behind: int, plane: Plane = plane) -> NDArray:
            return plane.cells(above - top, before - left, below - top, behind - left)

        done = 0
        with one_core():
            for rows, cols, (values,) in scaled_rows(
                model, [cells], plan, ensemble=job.ensemble, psf=job.psf
            ):
                plane.put(values, rows, cols, out[done : done + len(rows)])
                done += len(rows)
    return out
