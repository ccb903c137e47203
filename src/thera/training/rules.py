"""What the values of a configuration must be: their types, and the rule of each key."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

from thera.errors import InvalidInput

KERNELS = ("bicubic", "box", "bilinear", "lanczos", "area")  # that can reduce a crop to an input

Rule = tuple[Callable[[Any], bool], str]  # whether a value is right, and what is expected


def _one_of(*known: str) -> Rule:
    return lambda value: value in known, f"one of {', '.join(map(repr, known))}"


def _range(low: float, high: float) -> Rule:
    return lambda v: low <= v[0] <= v[1] <= high, f"two numbers from {low} to {high}, the smaller first"


POSITIVE: Rule = (lambda n: n >= 1, "at least 1")
NOT_NEGATIVE: Rule = (lambda v: v >= 0, "0 or more")
SHARE: Rule = (lambda v: 0 <= v <= 1, "in [0, 1]")
DECAY: Rule = (lambda v: 0 <= v < 1, "in [0, 1)")
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


def check_type(key: str, value: Any, expected: Any) -> None:
    """`expected`: a type, or a tuple of one type, of any length if it has an ellipsis."""
    parts = get_args(expected)
    if parts:
        many = isinstance(value, list | tuple)
        length = "" if Ellipsis in parts else f"{len(parts)} "
        kind = "names" if parts[0] is str else "numbers"
        check(many and (not length or len(value) == len(parts)), key, value, f"a list of {length}{kind}")
        for part in value:
            check_type(key, part, parts[0])
    elif expected is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        check(number and math.isfinite(value), key, value, "a number")
    else:
        words = {int: "a whole number", bool: "true or false", str: "text"}
        check(type(value) is expected, key, value, words[expected])


def check(holds: bool, key: str, value: Any, expected: str) -> None:
    """Refuse the value of a key unless it `holds`. `expected` completes the error."""
    if not holds:
        raise InvalidInput(f"{key} = {value!r} in the configuration: expected {expected}.")
