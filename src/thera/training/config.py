"""What a training run is, in one small TOML file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

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
    together: float = 0.0  # of the loss: asked of the mean over four quarter turns, which is the ensemble
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
    """A short warm-up, the full rate for the share `hold` of the steps, then cosine decay to zero."""

    method: str = "adam"  # or "muon" for the layers' matrices and Adam for the rest, at the same rate
    steps: int = 0  # 0: as many as `--minutes` allow
    rate: float = 5e-4
    betas: tuple[float, float] = (0.9, 0.99)
    warmup: int = 500
    hold: float = 0.0  # a run stopped before the decay begins can be trained on without loss
    clip: float = 10.0  # largest gradient norm; 0: none
    kappa: float = KAPPA  # where κ starts: the paper's theory; it settles near 0.03
    kappa_rate: float = 0.1  # of the rate; 0: κ stays fixed
    ema: float = 0.999
    precision: str = "bf16"  # of the networks on a GPU; the field is always float32
    drop_path: float = 0.1  # how often Pro's last branches are left out of a step, its first never; 0: none


Rule = tuple[Callable[[Any], bool], str]


def _one_of(*known: str) -> Rule:
    return lambda value: value in known, f"one of {', '.join(map(repr, known))}"


POSITIVE: Rule = (lambda n: n >= 1, "at least 1")
NOT_NEGATIVE: Rule = (lambda v: v >= 0, "0 or more")
SHARE: Rule = (lambda v: 0 <= v <= 1, "in [0, 1]")
DECAY: Rule = (lambda v: 0 <= v < 1, "in [0, 1)")
#: What values must be, beyond their types.
RULES: dict[str, Rule] = {
    "data.patch": POSITIVE,
    "data.batch": POSITIVE,
    "data.scales": (lambda s: 1 <= s[0] <= s[1], "two numbers from 1 up, the smaller first"),
    "data.spread": _one_of("uniform", "log"),
    "data.targets": POSITIVE,
    "data.resized": (lambda sizes: all(0 < s <= 1 for s in sizes), "sizes in (0, 1]"),
    "data.soft": (lambda soft: all(s > 0 for s in soft), "deviations above 0, in pixels"),
    "data.detail": NOT_NEGATIVE,
    "objective.loss": _one_of("l1", "rms", "mse"),
    "objective.together": SHARE,
    "objective.tv": NOT_NEGATIVE,
    "objective.seam": NOT_NEGATIVE,
    "teacher.share": SHARE,
    "teacher.kept": POSITIVE,
    "teacher.reuse": POSITIVE,
    "optimiser.method": _one_of("adam", "muon"),
    "optimiser.steps": NOT_NEGATIVE,
    "optimiser.rate": (lambda rate: rate > 0, "above 0"),
    "optimiser.betas": (lambda betas: all(0 <= b < 1 for b in betas), "two numbers in [0, 1)"),
    "optimiser.warmup": NOT_NEGATIVE,
    "optimiser.hold": DECAY,
    "optimiser.clip": NOT_NEGATIVE,
    "optimiser.kappa": NOT_NEGATIVE,
    "optimiser.kappa_rate": NOT_NEGATIVE,
    "optimiser.ema": DECAY,
    "optimiser.precision": _one_of("bf16", "f32", "tf32"),
    "optimiser.drop_path": DECAY,
}


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
        values = self.flat()
        for key, (holds, expected) in RULES.items():
            _check(holds(values[key]), key, values[key], expected)

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
                _check_type(key, value, {"start": str, "seed": int}[key])
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
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as e:
            raise InvalidInput(f"{path} is not a TOML file: {e}") from None
        for change in changes:
            key, _, value = change.partition("=")
            *sections, name = key.split(".")
            target = values
            for section in sections:
                target = target.setdefault(section, {})
                if not isinstance(target, dict):
                    raise InvalidInput(f"{change!r} sets a part of {section}, which is a value of its own")
            target[name] = _value(change, value)
        return cls.parse(values)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def flat(self) -> dict[str, Any]:
        """All values by their keys, as `--set` names them.

        >>> Config().flat()["data.batch"]
        64
        """
        values = self.to_dict()
        sections = {key: values.pop(key) for key in list(values) if isinstance(values[key], dict)}
        return values | {f"{s}.{key}": v for s, section in sections.items() for key, v in section.items()}


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
    types = get_type_hints(kind)
    for key, value in values.items():
        if key not in types:
            raise InvalidInput(f"unknown key {key!r} in [{name}]: expected {_names(kind)}")
        _check_type(f"{name}.{key}", value, types[key])
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _check_type(key: str, value: Any, expected: Any) -> None:
    """`expected`: a type, or a tuple of numbers, as many as are named or, with an ellipsis, any."""
    parts = get_args(expected)
    if parts:
        many = isinstance(value, list | tuple)
        length = "" if Ellipsis in parts else f"{len(parts)} "
        _check(many and (not length or len(value) == len(parts)), key, value, f"a list of {length}numbers")
        for part in value:
            _check_type(key, part, parts[0])
    elif expected is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        _check(number and math.isfinite(value), key, value, "a number")
    else:
        words = {int: "a whole number", bool: "true or false", str: "text"}
        _check(type(value) is expected, key, value, words[expected])


def _names(kind: type) -> str:
    return "one of " + ", ".join(f.name for f in fields(kind))


def _check(holds: bool, key: str, value: Any, expected: str) -> None:
    if not holds:
        raise InvalidInput(f"{key} = {value!r} in the configuration: expected {expected}")
