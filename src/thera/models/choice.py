"""A model by its name, and how to run it: what can be sent to another process."""

from __future__ import annotations

from dataclasses import dataclass

from thera.models.loading import load
from thera.models.model import Model


@dataclass(frozen=True)
class ModelChoice:
    """The arguments of `thera.load`."""

    name: str
    engine: str = "auto"
    device: str = "auto"
    precision: str = "f32"
    threads: int = 0

    def load(self) -> Model:
        return load(self.name, self.engine, self.device, self.precision, self.threads)
