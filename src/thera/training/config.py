"""The configuration of a training run: one small TOML file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from thera.errors import InvalidInput
from thera.networks.spec import KAPPA, Spec

KERNELS = ("bicubic", "box", "bilinear", "lanczos", "area")  # that can reduce a crop to an input


@dataclass(frozen=True)
class Data:
    """Each sample draws a scale r; a (patch·r)² crop is reduced to a patch² input by antialiased bicubic."""

    patch: int = 48
    batch: int = 64
    scales: tuple[float, float] = (1.2, 4.0)
    spread: str = "uniform"  # how r is distributed; "log": as many from ×1.5 to ×3 as from ×3 to ×6
    targets: int = 1  # supervised pixels per input pixel
    places: str = (
        "cells"  # targets lie in every cell, which varies less; or "anywhere", as the paper draws them
    )
    shrink: tuple[float, float] = (0.0, 1.0)  # share of crops read larger by up to this factor, then reduced
    resized: tuple[float, ...] = ()  # add copies of every image, resized by these factors
    soft: tuple[float, ...] = ()  # add copies blurred by Gaussians with these standard deviations, in pixels
    paired: float = 1.0  # with --pairs: share of each batch that they make up; --data makes up the rest

    def pairs_in(self, batch: int) -> int:
        """How many patches of a batch of this size come from pairs, where there are any."""
        return round(self.paired * batch)

    @property
    def crops(self) -> tuple[int, int]:
        """The sides of the smallest and the largest crop, in pixels."""
        low, high = (round(self.patch * scale) for scale in self.scales)
        return low, high


@dataclass(frozen=True)
class Degradation:
    """What is done to the inputs, not to the targets: see `degradation.py`. By default, nothing.

    `blur`, `noise`, `sharpen` and `jpeg` are the probabilities of each; they are drawn independently.
    """

    clean: float = 0.0  # share of the inputs that stay as they are
    kernels: tuple[str, ...] = ("bicubic",)  # of the downscaling, drawn equally often
    blur: float = 0.0
    blur_sigma: tuple[float, float] = (0.3, 1.2)  # of a Gaussian's wider axis, in input pixels
    discs: float = 0.2  # share of blurs that are discs, with a radius of twice that
    noise: float = 0.0
    noise_level: tuple[float, float] = (
        0.5,
        12.0,
    )  # standard deviation, of 255; small ones are drawn more often
    white: float = 0.0  # share of noise whose pixels are independent; of as many others the channels are
    sharpen: float = 0.0
    sharpen_amount: tuple[float, float] = (0.2, 1.2)
    jpeg: float = 0.0
    jpeg_quality: tuple[int, int] = (30, 98)  # as libjpeg counts it
    jpeg_420: float = 0.6  # share with chroma of half the resolution
    jpeg_twice: float = 0.0  # share of those that are coded once more, on another grid

    @property
    def on(self) -> bool:
        return any((self.blur, self.noise, self.sharpen, self.jpeg)) or self.kernels != ("bicubic",)


@dataclass(frozen=True)
class Initial:
    """How the fields of a Thera network start, where no weights are taken from `start`."""

    bank: float = 0.0  # the largest |w|, in units of π; 0: the variant's own, see `networks/thera.py`
    head: str = "small"  # amplitudes near 0 and phases anywhere; or "lecun": as any layer, with biases of 0


@dataclass(frozen=True)
class Objective:
    """loss + tv · E|∇Φ(x, 0)|, in units of image / 0.5."""

    loss: str = "l1"  # or a root mean square: "rms" over each patch, "mse" over the whole batch
    ensemble_weight: float = 0.0  # weight of the ensemble term in the loss; single passes have the rest
    tv: float = 1e-4
    align: bool = False  # with --pairs: a small network moves the targets of each pair, see `alignment.py`


@dataclass(frozen=True)
class Teacher:
    """A better model whose fields replace the images as targets: see `distillation.py`."""

    model: str = ""  # a shipped model or a file; empty: the images are the targets
    share: float = 1.0  # weight of the teacher in a target; the image has the rest
    ensemble: bool = False  # targets are the teacher's mean over four rotations, at four times its cost
    kept: int = 1000  # how many of the teacher's batches are stored and drawn from
    reuse: int = 4  # the teacher computes one new batch every so many steps


@dataclass(frozen=True)
class Optimiser:
    """A short warm-up, the full rate while it is held, then cosine decay to zero."""

    method: str = "adam"  # or "muon": Muon for the layers' matrices, Adam for the rest, at the same rate
    steps: int = 0  # 0: as many as `--minutes` allows
    rate: float = 5e-4
    betas: tuple[float, float] = (0.9, 0.99)
    warmup: int = 500
    hold: float = 0.0  # share of the steps at the full rate; stopped before its decay, a run can be extended
    clip: float = 10.0  # largest gradient norm; 0: no clipping
    kappa: float = KAPPA  # initial κ: the default is the paper's theory; training settles near 0.03
    kappa_rate: float = 0.1  # κ's learning rate as a fraction of `rate`; 0: κ is fixed
    ema: float = 0.999  # decay of the averaged weights
    weight_decay: float = 0.0  # of Adam, decoupled from the gradient (AdamW)
    precision: str = "bf16"  # of the networks on a GPU; the field is always float32
    drop_path: float = 0.1  # probability of skipping Pro's last branch, falling to 0 at its first


Rule = tuple[Callable[[Any], bool], str]


def _one_of(*known: str) -> Rule:
    return lambda value: value in known, f"one of {', '.join(map(repr, known))}"


def _range(low: float, high: float) -> Rule:
    return lambda v: low <= v[0] <= v[1] <= high, f"two numbers from {low} to {high}, the smaller first"


POSITIVE: Rule = (lambda n: n >= 1, "at least 1")
NOT_NEGATIVE: Rule = (lambda v: v >= 0, "0 or more")
SHARE: Rule = (lambda v: 0 <= v <= 1, "in [0, 1]")
DECAY: Rule = (lambda v: 0 <= v < 1, "in [0, 1)")
#: Keys that earlier versions stored in checkpoints, and their present names; "" for removed keys.
FORMER_KEYS = {
    ("data", "detail"): "",
    ("objective", "seam"): "",
    ("objective", "together"): "ensemble_weight",
}
#: What is required of values, beyond their types.
RULES: dict[str, Rule] = {
    "data.patch": POSITIVE,
    "data.batch": POSITIVE,
    "data.scales": (lambda s: 1 <= s[0] <= s[1], "two numbers from 1 up, the smaller first"),
    "data.spread": _one_of("uniform", "log"),
    "data.targets": POSITIVE,
    "data.places": _one_of("cells", "anywhere"),
    "data.shrink": (lambda s: 0 <= s[0] <= 1 <= s[1], "a share in [0, 1] and a factor from 1 up"),
    "data.resized": (lambda sizes: all(0 < s <= 1 for s in sizes), "sizes in (0, 1]"),
    "data.soft": (lambda soft: all(s > 0 for s in soft), "deviations above 0, in pixels"),
    "data.paired": (lambda share: 0 < share <= 1, "a share above 0, up to 1"),
    "degradation.clean": SHARE,
    "degradation.kernels": (lambda k: k and set(k) <= set(KERNELS), f"some of {', '.join(KERNELS)}"),
    "degradation.blur": SHARE,
    "degradation.blur_sigma": _range(0.1, 1.3),
    "degradation.discs": SHARE,
    "degradation.noise": SHARE,
    "degradation.noise_level": _range(0, 64),
    "degradation.white": DECAY,
    "degradation.sharpen": SHARE,
    "degradation.sharpen_amount": _range(0, 4),
    "degradation.jpeg": SHARE,
    "degradation.jpeg_quality": _range(1, 100),
    "degradation.jpeg_420": SHARE,
    "degradation.jpeg_twice": SHARE,
    "initial.bank": NOT_NEGATIVE,
    "initial.head": _one_of("small", "lecun"),
    "objective.loss": _one_of("l1", "rms", "mse"),
    "objective.ensemble_weight": SHARE,
    "objective.tv": NOT_NEGATIVE,
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
    "optimiser.weight_decay": NOT_NEGATIVE,
    "optimiser.precision": _one_of("bf16", "f32", "tf32"),
    "optimiser.drop_path": DECAY,
}


@dataclass(frozen=True)
class Config:
    """A training run: the network, its initial weights, the data, the objective and the optimiser.

    >>> Config.parse({"network": {"variant": "plus"}, "data": {"batch": 16}}).network.name
    'edsr-plus'
    """

    network: Spec = field(default_factory=Spec)
    name: str = ""  # of the model that the weights become; empty: that of its network
    start: str = ""  # a shipped model or a file: every weight that fits is taken from it; empty: random
    start_part: str = ""  # take only weights whose names begin with this, such as "backbone"
    seed: int = 0
    initial: Initial = field(default_factory=Initial)
    data: Data = field(default_factory=Data)
    degradation: Degradation = field(default_factory=Degradation)
    objective: Objective = field(default_factory=Objective)
    teacher: Teacher = field(default_factory=Teacher)
    optimiser: Optimiser = field(default_factory=Optimiser)

    def __post_init__(self) -> None:
        values = self.flat()
        for key, (holds, expected) in RULES.items():
            _check(holds(values[key]), key, values[key], expected)
        if self.data.places == "anywhere":
            for key in ("teacher.model", "objective.align", "objective.ensemble_weight"):
                _check(not values[key], key, values[key], 'nothing with data.places = "anywhere"')
            _check(
                self.data.targets == 1, "data.targets", self.data.targets, '1 with data.places = "anywhere"'
            )
        if self.data.paired < 1:
            d, rest = self.data, "with data.paired below 1"
            _check(
                0 < d.pairs_in(d.batch) < d.batch,
                "data.paired",
                d.paired,
                f"a part of the {d.batch} patches of a batch",
            )
            _check(d.places == "cells", "data.places", d.places, f'"cells" {rest}')
            both = self.objective.align and self.objective.ensemble_weight
            _check(not both, "objective.ensemble_weight", both, f"0 {rest} and objective.align = true")

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Config:
        """From nested dictionaries. An unknown key is an error."""
        sections = {
            "network": Spec,
            "initial": Initial,
            "data": Data,
            "degradation": Degradation,
            "objective": Objective,
            "teacher": Teacher,
            "optimiser": Optimiser,
        }
        parsed: dict[str, Any] = {}
        for key, value in values.items():
            if key in sections:
                parsed[key] = _section(sections[key], key, value)
            elif key in ("name", "start", "start_part", "seed"):
                _check_type(key, value, int if key == "seed" else str)
                parsed[key] = value
            else:
                raise InvalidInput(f"Unknown key {key!r} in the configuration: expected {_names(cls)}.")
        return cls(**parsed)

    @classmethod
    def stored(cls, values: dict[str, Any]) -> Config:
        """From what `to_dict` gave, in this version or an earlier one. Removed keys must have been 0."""
        values = {key: dict(value) if isinstance(value, dict) else value for key, value in values.items()}
        for (section, key), name in FORMER_KEYS.items():
            value = values.get(section, {}).pop(key, 0)
            if value:
                values[section][name or key] = value
        return cls.parse(values)

    @classmethod
    def read(cls, path: str | Path, changes: Sequence[str] = ()) -> Config:
        """From a TOML file. `changes` set some of its keys, each as "optimiser.rate=2e-4"."""
        return cls.parse(changed(read_toml(path), changes))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def differences(self, stored: dict[str, Any]) -> list[str]:
        """How these values differ from stored ones: "data.batch = 8, not 16"."""
        begun, given = Config.stored(stored), self.flat()
        return [f"{k} = {given[k]!r}, not {v!r}" for k, v in begun.flat().items() if given[k] != v]

    def check_unchanged(self, stored: dict[str, Any], changes: Sequence[str] = ()) -> None:
        """Refuse to continue a run that was begun with other values. `changes`: other differences found."""
        if found := [*self.differences(stored), *changes]:
            raise InvalidInput(
                f"A run continues as it was begun, and is now given {'; '.join(found)}: name another --out."
            )

    def flat(self) -> dict[str, Any]:
        """All values by the keys that `--set` takes.

        >>> Config().flat()["data.batch"]
        64
        """
        values = self.to_dict()
        sections = {key: values.pop(key) for key in list(values) if isinstance(values[key], dict)}
        return values | {f"{s}.{key}": v for s, section in sections.items() for key, v in section.items()}


def read_toml(path: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise InvalidInput(f"No configuration at {path}: name one such as configs/edsr-air.toml.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as e:
        raise InvalidInput(f"{path} is not a TOML file: {e}.") from None


def changed(values: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """`values` after "section.key=value" changes, in place."""
    for change in changes:
        key, _, value = change.partition("=")
        *sections, name = key.split(".")
        target = values
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise InvalidInput(f"{change!r} sets a key of {section}, which is a single value.")
        target[name] = _value(change, value)
    return values


def _value(change: str, text: str) -> Any:
    """`text` as a TOML value. What is not TOML, such as a model's name, is a string."""
    if not text:
        raise InvalidInput(f"{change!r} sets nothing: write KEY=VALUE, such as optimiser.rate=2e-4.")
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _section(kind: type, name: str, values: Any) -> Any:
    if not isinstance(values, dict):
        raise InvalidInput(f"[{name}] must be a table, but is {values!r}.")
    types = get_type_hints(kind)
    for key, value in values.items():
        if key not in types:
            raise InvalidInput(f"Unknown key {key!r} in [{name}]: expected {_names(kind)}.")
        _check_type(f"{name}.{key}", value, types[key])
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _check_type(key: str, value: Any, expected: Any) -> None:
    """`expected`: a type, or a tuple of one type, of any length if it has an ellipsis."""
    parts = get_args(expected)
    if parts:
        many = isinstance(value, list | tuple)
        length = "" if Ellipsis in parts else f"{len(parts)} "
        kind = "names" if parts[0] is str else "numbers"
        _check(many and (not length or len(value) == len(parts)), key, value, f"a list of {length}{kind}")
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
        raise InvalidInput(f"{key} = {value!r} in the configuration: expected {expected}.")
