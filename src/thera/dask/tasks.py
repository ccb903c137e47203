"""What runs on a worker, any number of times: one chunk of the output, from the input that it needs."""

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thera.field.grid import Axis
from thera.field.threads import one_core
from thera.imaging.upscaling import scale_samples
from thera.models import Model
from thera.models.choice import ModelChoice
from thera.models.loading import shipped
from thera.tiled import Options, make_plan
from thera.values.bands import Bands
from thera.values.ranges import Range
from thera.values.samples import ArraySamples
from thera.values.survey import Survey

#: Models that a worker keeps.
KEPT = 2


class ModelName(NamedTuple):
    """A model as tasks name it. `version` changes when the contents of its file do."""

    choice: ModelChoice
    version: int = 0

    @classmethod
    def of(cls, choice: ModelChoice) -> "ModelName":
        """Files get the name by which workers on other machines find them in a shared folder."""
        # On one core: Dask keeps the others busy with other tasks.
        choice = replace(choice, threads=1)
        path = Path(choice.name)
        shipped_too = any(model.name == choice.name for model in shipped())
        if choice.name.startswith("hf:") or not path.is_file() or shipped_too:
            return cls(choice)
        return cls(replace(choice, name=str(path.resolve())), path.stat().st_mtime_ns)


_loading = Lock()


def loaded(name: ModelName) -> Model:
    """The model of that name, loaded once in this process."""
    with _loading:
        return _load(name)


@lru_cache(KEPT)
def _load(name: ModelName) -> Model:
    return name.choice.load()


@dataclass(frozen=True)
class ChunkScaling:
    """All that the tasks of one scaling have in common."""

    model: ModelName
    source: tuple[int, int]
    size: tuple[int, int]
    rows: tuple[int, ...]  # where the input is cut into chunks
    cols: tuple[int, ...]
    depth: tuple[int, int]  # how far chunks overlap along either axis
    bands: Bands
    options: Options

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


def upscale_chunk(
    block: NDArray, *, scaling: ChunkScaling, ranges: list[Range], block_id: tuple[int, ...] = ()
) -> NDArray:
    """One chunk of the output. `block`: its part of the input and the overlap around it, h×w×C."""
    model = loaded(scaling.model)
    part = scaling.part(block_id)
    top, left = (max(0, cells.start - depth) for cells, depth in zip(part, scaling.depth, strict=True))
    samples = ArraySamples(block, scaling.bands, scaling.source, (top, left))
    # The memory is there in any case: the plan with the least work is taken, however much of it that needs.
    plan = make_plan(model, scaling.source, scaling.size, scaling.options, part=part, good_enough=1.0)
    with one_core():
        return scale_samples(model, samples, ranges, plan, scaling.options)


def count_chunk(block: NDArray, *, survey: Survey) -> NDArray:
    """What a chunk adds to a pass of a survey, 1×1×n."""
    samples = ArraySamples(block, survey.bands)
    window = samples.read((0, 0, block.shape[0], block.shape[1]), range(block.shape[2]))
    return survey.counted(*window)[None, None]


def narrowed(counts: NDArray, *, survey: Survey) -> NDArray:
    """The survey after a pass, 1×1×1, with what all chunks add up to."""
    result = np.empty((1, 1, 1), object)
    result[...] = deepcopy(survey)  # a task leaves what it is given as it is
    result[0, 0, 0].narrow(counts.ravel())
    return result
