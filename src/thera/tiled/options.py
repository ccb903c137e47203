"""How a picture is turned into pixels: the options that every way to do it shares."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from thera.field import Filter
from thera.field.ensemble import ROTATIONS
from thera.memory import default_memory
from thera.models import Model

UNLOCKED = nullcontext()


@dataclass(frozen=True)
class Options:
    """`psf`: the filter of the output pixels; None for the model's own.

    `ensemble`: the mean over four rotations, a little better at four times the work.
    `memory`: bytes that all of it may take; None for the default.
    `lock`: held while a tile is encoded. Fields that share one are encoded one tile at a time.
    """

    psf: Filter | None = None
    ensemble: bool = False
    memory: int | None = None
    lock: AbstractContextManager[object] = UNLOCKED

    @property
    def rotations(self) -> int:
        return ROTATIONS if self.ensemble else 1

    @property
    def limit(self) -> int:
        """Bytes that all of it may take."""
        return default_memory() if self.memory is None else self.memory

    def filters(self, model: Model, steps: Sequence[float]) -> list[Filter]:
        """The filter of each rotation, for output pixels with these sides in input pixels."""
        if self.psf is not None:
            return [self.psf] * self.rotations
        return [model.psf(steps, quarters) for quarters in range(self.rotations)]
