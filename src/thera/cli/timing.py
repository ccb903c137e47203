"""How long a job will take on this machine: measured rates, kept between calls."""

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from thera.files import recalled, remember

if TYPE_CHECKING:
    from thera.models import Model

#: The side of the picture that a calibration encodes. Smaller jobs are over before it would be.
CALIBRATION = 64
#: Seconds from which a job's own time is a good measure.
LEARN_FROM = 5.0
#: How far one slow job moves the rates: the machine may have been busy with something else.
SLOWER = 0.5
#: Where rates are kept, in the folder of caches.
FILE = "rates.json"


class Work(Protocol):
    """Something that takes time."""

    @property
    def work(self) -> tuple[float, float]:
        """The effort of encoding, in pixels, and pixels to render."""


def human_time(seconds: float) -> str:
    """
    >>> [human_time(s) for s in (0.84, 12.3, 400, 9000)]
    ['0.8 s', '12 s', '7 min', '2.5 h']
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"


@dataclass
class Clock:
    """The rates of one model on this machine. `threads`: how many it may use, 0 for all.

    `points`: the field is read at points, as warps do, not on a grid.
    """

    model: "Model"
    threads: int = 0
    points: bool = False

    @cached_property
    def _key(self) -> str:
        info = self.model.info
        facts = (info.name, info.parameters, info.engine, info.device, info.precision, self.threads)
        return " ".join(map(str, facts)) + " points" * self.points

    @cached_property
    def _rates(self) -> list[float]:
        """Pixels encoded and rendered in a second, as kept; empty if there are none."""
        with suppress(TypeError, ValueError):  # the file is damaged
            encoded, rendered = map(float, recalled(FILE).get(self._key, ()))
            return [encoded, rendered] if min(encoded, rendered) > 0 else []
        return []

    def estimate(self, job: Work, always: bool = False) -> float | None:
        """The seconds that a job will take; None for a small one whose rates are not known yet."""
        if not self._rates:
            if not always and job.work[0] < CALIBRATION**2:
                return None
            self._keep(_calibrated(self.model, self.points))
        return sum(pixels / rate for pixels, rate in zip(job.work, self._rates, strict=True))

    def learn(self, job: Work, seconds: float) -> None:
        """Corrects the rates by the time that a job took, and keeps them for later calls."""
        estimate = self.estimate(job)
        if estimate and max(estimate, seconds) >= LEARN_FROM:
            change = estimate / seconds
            self._keep([rate * (change if change > 1 else change**SLOWER) for rate in self._rates])

    def _keep(self, rates: list[float]) -> None:
        self._rates = rates
        remember(FILE, self._key, rates)


def _calibrated(model: "Model", points: bool) -> list[float]:
    """The rates of a small picture."""
    import numpy as np

    image = np.random.default_rng(0).random((CALIBRATION, CALIBRATION, 3), np.float32)
    model.encode(image[:8, :8])  # the first call also prepares the engine
    began = time.perf_counter()
    field = model.encode(image)
    encoded = time.perf_counter()
    pixels = (2 * CALIBRATION) ** 2
    if points:
        from thera.field import Lanczos

        field.sample(
            CALIBRATION * np.random.default_rng(0).random((pixels, 2)), Lanczos(), jacobian=np.eye(2)
        )
    else:
        field.render(scale=2.0)
    return [CALIBRATION**2 / (encoded - began), pixels / (time.perf_counter() - encoded)]
