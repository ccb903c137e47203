"""A model by its name, and how to run it: what can be sent to another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thera.models.model import Model


@dataclass(frozen=True)
class ModelChoice:
    """The arguments of `thera.load`."""

    name: str
    engine: str = "auto"
    device: str = "auto"
    precision: str = "auto"
    threads: int = 0
    strength: float = 1.0

    def load(self) -> Model:
        from thera.models.loading import load  # not before it is needed: a command starts faster

        return load(self.name, self.engine, self.device, self.precision, self.threads, self.strength)
