"""The options that every way to turn a picture into pixels shares."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from thera.field import Filter
from thera.field.ensemble import ROTATIONS
from thera.memory import default_memory
from thera.models import Model

UNLOCKED = nullcontext()


@dataclass(frozen=True)
class Options:
    """`psf`: the filter of the output pixels; None for the model's default.

    `ensemble`: the mean over four rotations, a little better at four times the work.
    `memory`: the limit in bytes for the whole job; None for the default.
    `consistent`: the mean over each input pixel is that pixel; for rasters and arrays at whole-number scales.
    `lock`: held while a tile is encoded, so that fields with the same lock encode one tile at a time.
    """

    psf: Filter | None = None
    ensemble: bool = False
    memory: int | None = None
    lock: AbstractContextManager[object] = field(default=UNLOCKED, compare=False, repr=False)
    consistent: bool = False

    @property
    def rotations(self) -> int:
        return ROTATIONS if self.ensemble else 1

    @property
    def limit(self) -> int:
        """The memory limit in bytes."""
        return default_memory() if self.memory is None else self.memory

    def filters(self, model: Model, steps: Sequence[float]) -> list[Filter]:
        """The filter of each rotation, for output pixels with these sides in input pixels."""
        if self.psf is not None:
            return [self.psf] * self.rotations
        return [model.psf(steps, quarters) for quarters in range(self.rotations)]
