"""The configuration of a training run: one small TOML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from thera.errors import InvalidInput
from thera.networks.spec import KAPPA, Spec
from thera.training.rules import RULES, check, check_type
from thera.training.toml_files import changed, read_toml


@dataclass(frozen=True)
class Data:
    """Each sample draws a scale r; a (patch·r)² crop is reduced to a patch² input by antialiased bicubic."""

    patch: int = 48
    batch: int = 64
    scales: tuple[float, float] = (1.2, 4.0)
    spread: str = "uniform"  # how r is distributed; "log": as many from ×1.5 to ×3 as from ×3 to ×6
    targets: int = 1  # supervised pixels per input pixel
    places: str = "cells"  # as many targets in every cell; or "anywhere", as the paper draws them
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
    noise_level: tuple[float, float] = (0.5, 12.0)  # deviation, of 255; small ones are drawn more often
    white: float = 0.0  # probability that the noise of neighbours is independent; the same for channels
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


#: Keys that earlier versions stored in checkpoints, and their present names; "" for removed keys.
FORMER_KEYS = {
    ("data", "detail"): "",
    ("objective", "seam"): "",
    ("objective", "together"): "ensemble_weight",
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
            check(holds(values[key]), key, values[key], expected)
        self._check_combinations(values)

    def _check_combinations(self, values: dict[str, Any]) -> None:
        """Refuse values that exclude each other."""
        d = self.data
        if d.places == "anywhere":
            beside = 'with data.places = "anywhere"'
            for key in ("teacher.model", "objective.align", "objective.ensemble_weight"):
                check(not values[key], key, values[key], f"nothing {beside}")
            check(d.targets == 1, "data.targets", d.targets, f"1 {beside}")
        if d.paired < 1:
            beside, part = "with data.paired below 1", 0 < d.pairs_in(d.batch) < d.batch
            check(part, "data.paired", d.paired, f"a part of the {d.batch} patches of a batch")
            check(d.places == "cells", "data.places", d.places, f'"cells" {beside}')
            both = self.objective.align and self.objective.ensemble_weight
            check(not both, "objective.ensemble_weight", both, f"0 {beside} and objective.align = true")

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
                check_type(key, value, int if key == "seed" else str)
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


def _section(kind: type, name: str, values: Any) -> Any:
    if not isinstance(values, dict):
        raise InvalidInput(f"[{name}] must be a table, but is {values!r}.")
    types = get_type_hints(kind)
    for key, value in values.items():
        if key not in types:
            raise InvalidInput(f"Unknown key {key!r} in [{name}]: expected {_names(kind)}.")
        check_type(f"{name}.{key}", value, types[key])
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _names(kind: type) -> str:
    return "one of " + ", ".join(f.name for f in fields(kind))
