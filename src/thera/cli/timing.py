"""How long a job will take on this machine: measured rates, kept between calls."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from thera.files import cache_folder

if TYPE_CHECKING:
    from thera.geo.upscaling import RasterScaling
    from thera.imaging.files import FileScaling
    from thera.models import Model

#: Encoded pixels from which a job is worth a calibration, and the side of the picture that it encodes.
WORTHWHILE, CALIBRATION = 20_000, 64
#: Seconds from which a job's own time is a good measure.
LEARN_FROM = 5.0


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


class Rates(NamedTuple):
    """Pixels per second, encoded and rendered."""

    encoded: float
    rendered: float

    def seconds(self, work: tuple[float, float]) -> float:
        return work[0] / self.encoded + work[1] / self.rendered


@dataclass
class Clock:
    """The rates of one model on this machine. `threads`: how many it may use, 0 for all."""

    model: "Model"
    threads: int = 0

    def __post_init__(self) -> None:
        info = self.model.info
        facts = (info.name, info.parameters, info.engine, info.device, info.precision, self.threads)
        self._key = " ".join(map(str, facts))
        self._rates: Rates | None = None
        with suppress(TypeError, ValueError):  # the file is damaged
            rates = Rates(*map(float, _kept().get(self._key, ())))
            self._rates = rates if min(rates) > 0 else None

    def estimate(self, job: "FileScaling | RasterScaling", always: bool = False) -> float | None:
        """The seconds that a job will take; None for a small one whose rates are not known yet."""
        if self._rates is None and (always or job.work[0] >= WORTHWHILE):
            self._rates = _calibrated(self.model)
            _keep(_kept() | {self._key: list(self._rates)})
        return self._rates and self._rates.seconds(job.work)

    def learn(self, job: "FileScaling | RasterScaling", seconds: float) -> None:
        """Corrects the rates by the time that a job took, and keeps them for later calls."""
        if self._rates is None or seconds < LEARN_FROM or not job.work[0]:
            return
        factor = self._rates.seconds(job.work) / seconds
        self._rates = Rates(*(rate * factor for rate in self._rates))
        _keep(_kept() | {self._key: list(self._rates)})


def _calibrated(model: "Model") -> Rates:
    """The rates of a small picture."""
    import numpy as np

    image = np.random.default_rng(0).random((CALIBRATION, CALIBRATION, 3), np.float32)
    model.encode(image[:8, :8])  # the first call also prepares the engine
    began = time.perf_counter()
    field = model.encode(image)
    encoded = time.perf_counter()
    size = field.render(scale=2.0).shape[0]
    ended = time.perf_counter()
    return Rates(CALIBRATION**2 / (encoded - began), size**2 / (ended - encoded))


def _file() -> Path:
    return cache_folder() / "rates.json"


def _kept() -> dict[str, Any]:
    with suppress(OSError, ValueError, RuntimeError):  # the last where there is no home
        kept = json.loads(_file().read_text())
        if isinstance(kept, dict):
            return kept
    return {}


def _keep(rates: dict[str, Any]) -> None:
    from thera.errors import TheraError
    from thera.files import replacing

    with suppress(OSError, RuntimeError, TheraError):  # it is only a convenience
        _file().parent.mkdir(parents=True, exist_ok=True)
        with replacing(_file()) as file:
            file.write(json.dumps(rates, indent=1).encode())
