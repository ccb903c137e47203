"""What a training run is, in one small TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from thera.errors import InvalidInput
from thera.networks.spec import KAPPA, Spec


@dataclass(frozen=True)
class Data:
    """One scale r per sample; a (patch·r)² crop becomes a patch² input by antialiased bicubic."""

    patch: int = 48
    batch: int = 64
    scales: tuple[float, float] = (1.2, 4.0)
    spread: str = "uniform"  # of r between the two, or "log": as many from ×1.5 to ×3 as from ×3 to ×6
    targets: int = 1  # supervised pixels per input pixel, one drawn in each cell; the paper draws patch²
    resized: tuple[float, ...] = ()  # further copies of every image at these sizes
    soft: tuple[float, ...] = ()  # and blurred by Gaussians of these deviations, in pixels
    detail: float = 0.0  # crops are drawn as often as the image's mean slope there, to this power

    @property
    def crops(self) -> tuple[int, int]:
        """The sides of the smallest crop and of the largest, in pixels."""
        low, high = (round(self.patch * scale) for scale in self.scales)
        return low, high


@dataclass(frozen=True)
class Objective:
    """loss + tv · E|∇Φ(x, 0)| + seam · E|jump of Φ(x, 0) between cells|, in units of image / 0.5."""

    loss: str = "l1"  # or the root mean square: "rms" each patch's, "mse" the whole batch's
    together: float = (
        0.0  # of the loss: asked of the mean of a patch's four quarter turns, as ensembles render
    )
    tv: float = 1e-4
    seam: float = 0.0


@dataclass(frozen=True)
class Teacher:
    """A better model, whose fields take the place of the images as targets: see `lessons.py`."""

    model: str = ""  # a shipped model or a file; none: the images are the targets
    share: float = 1.0  # of the teacher in a target, the rest is the image's
    kept: int = 1000  # batches to draw from
    reuse: int = 4  # steps for each batch that the teacher looks at


@dataclass(frozen=True)
class Optimiser:
    """Cosine decay to zero after a short warm-up."""

    method: str = "adam"  # or "muon" for the layers' matrices and Adam for the rest, at the same rate
    steps: int = 0  # 0: as many as `--minutes` allow
    rate: float = 5e-4
    betas: tuple[float, float] = (0.9, 0.99)
    warmup: int = 500
    clip: float = 10.0  # largest gradient norm; 0: none
    kappa: float = KAPPA  # where κ starts: the paper's theory; it settles near 0.03
    kappa_rate: float = 0.1  # of the rate; 0: κ stays fixed
    ema: float = 0.999
    precision: str = "bf16"  # of the networks on a GPU; the field is always float32
    drop_path: float = 0.1  # how often Pro's last branches are left out of a step, its first never; 0: none


@dataclass(frozen=True)
class Config:
    """A training run: which network, from which weights, on what, towards what, how.

    >>> Config.parse({"network": {"variant": "plus"}, "data": {"batch": 16}}).network.name
    'edsr-plus'
    """

    network: Spec = field(default_factory=Spec)
    start: str = ""  # a shipped model or a file whose matching weights are the start
    seed: int = 0
    data: Data = field(default_factory=Data)
    objective: Objective = field(default_factory=Objective)
    teacher: Teacher = field(default_factory=Teacher)
    optimiser: Optimiser = field(default_factory=Optimiser)

    def __post_init__(self) -> None:
        low, high = self.data.scales
        _check(1 <= low <= high, "data.scales", self.data.scales, "two numbers from 1 up, the smaller first")
        _check(self.data.patch >= 1, "data.patch", self.data.patch, "at least 1")
        _check(self.data.batch >= 1, "data.batch", self.data.batch, "at least 1")
        _check(self.data.spread in ("uniform", "log"), "data.spread", self.data.spread, "'uniform' or 'log'")
        _check(self.data.targets >= 1, "data.targets", self.data.targets, "at least 1")
        _check(
            all(0 < s <= 1 for s in self.data.resized), "data.resized", self.data.resized, "sizes in (0, 1]"
        )
        soft = self.data.soft
        _check(all(s > 0 for s in soft), "data.soft", soft, "deviations above 0, in pixels")
        _check(self.data.detail >= 0, "data.detail", self.data.detail, "0 or more")
        losses = ("l1", "rms", "mse")
        _check(self.objective.loss in losses, "objective.loss", self.objective.loss, "'l1', 'rms' or 'mse'")
        together = self.objective.together
        _check(0 <= together <= 1, "objective.together", together, "in [0, 1]")
        _check(0 <= self.teacher.share <= 1, "teacher.share", self.teacher.share, "in [0, 1]")
        _check(self.teacher.kept >= 1, "teacher.kept", self.teacher.kept, "at least 1")
        _check(self.teacher.reuse >= 1, "teacher.reuse", self.teacher.reuse, "at least 1")
        drop = self.optimiser.drop_path
        _check(0 <= drop < 1, "optimiser.drop_path", drop, "in [0, 1)")
        method = self.optimiser.method
        _check(method in ("adam", "muon"), "optimiser.method", method, "'adam' or 'muon'")
        _check(self.optimiser.steps >= 0, "optimiser.steps", self.optimiser.steps, "0 or more")
        _check(self.optimiser.rate > 0, "optimiser.rate", self.optimiser.rate, "above 0")
        _check(0 <= self.optimiser.ema < 1, "optimiser.ema", self.optimiser.ema, "in [0, 1)")
        known = ("bf16", "f32", "tf32")
        _check(
            self.optimiser.precision in known,
            "optimiser.precision",
            self.optimiser.precision,
            f"one of {known}",
        )

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Config:
        """From nested dictionaries; a key that no run has is an error, not a silent default."""
        sections = {
            "network": Spec,
            "data": Data,
            "objective": Objective,
            "teacher": Teacher,
            "optimiser": Optimiser,
        }
        parsed: dict[str, Any] = {}
        for key, value in values.items():
            if key in sections:
                parsed[key] = _section(sections[key], key, value)
            elif key in ("start", "seed"):
                parsed[key] = value
            else:
                raise InvalidInput(f"unknown key {key!r} in the configuration: expected {_names(cls)}")
        return cls(**parsed)

    @classmethod
    def read(cls, path: str | Path, changes: Sequence[str] = ()) -> Config:
        """From a TOML file, with some keys set anew, each as "optimiser.rate=2e-4"."""
        try:
            values = tomllib.loads(Path(path).read_text("utf-8"))
        except FileNotFoundError:
            raise InvalidInput(
                f"no configuration at {path}: name one such as configs/edsr-air.toml"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
            raise InvalidInput(f"{path} is not a TOML file: {e}") from None
        for change in changes:
            key, _, value = change.partition("=")
            *sections, name = key.split(".")
            target = values
            for section in sections:
                target = target.setdefault(section, {})
            target[name] = _value(change, value)
        return cls.parse(values)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _value(change: str, text: str) -> Any:
    """A TOML value; what is none, such as the name of a model, is text."""
    if not text:
        raise InvalidInput(f"{change!r} sets nothing: write KEY=VALUE, such as optimiser.rate=2e-4")
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _section(kind: type, name: str, values: Any) -> Any:
    if not isinstance(values, dict):
        raise InvalidInput(f"[{name}] must be a table, but is {values!r}")
    known = {f.name for f in fields(kind)}
    for key in values:
        if key not in known:
            raise InvalidInput(f"unknown key {key!r} in [{name}]: expected {_names(kind)}")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _names(kind: type) -> str:
    return "one of " + ", ".join(f.name for f in fields(kind))


def _check(holds: bool, key: str, value: Any, expected: str) -> None:
    if not holds:
        raise InvalidInput(f"{key} = {value!r} in the configuration: expected {expected}")
