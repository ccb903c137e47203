"""The size of the output in whole pixels, from what the user asked for."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from thera.errors import InvalidInput
from thera.memory import MOST_PIXELS

#: Inches in the units that paper is measured in.
INCHES = {"cm": 1 / 2.54, "mm": 1 / 25.4, "in": 1.0}
#: Papers by their names, in millimetres.
PAPERS = {
    "a6": (105.0, 148.0),
    "a5": (148.0, 210.0),
    "a4": (210.0, 297.0),
    "a3": (297.0, 420.0),
    "a2": (420.0, 594.0),
    "a1": (594.0, 841.0),
    "a0": (841.0, 1189.0),
    "letter": (215.9, 279.4),
    "legal": (215.9, 355.6),
    "tabloid": (279.4, 431.8),
}
#: Pixels per inch of a print, unless given: what the eye resolves at reading distance.
PRINT_DPI = 300.0


class Paper(NamedTuple):
    """A sheet to print on, of any orientation: its sides, and their unit."""

    width: float
    height: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> "Paper":
        """
        >>> Paper.parse("30x20cm"), Paper.parse("A4")
        (Paper(width=30.0, height=20.0, unit='cm'), Paper(width=210.0, height=297.0, unit='mm'))
        """
        if (named := PAPERS.get(text.strip().lower())) is not None:
            return cls(*named, "mm")
        found = re.fullmatch(r"([\d.]+)\s*[x×]\s*([\d.]+)\s*(cm|mm|in)", text.strip().lower())
        try:
            width, height = (float(side) for side in found.groups()[:2]) if found else (0.0, 0.0)
        except ValueError:
            width = height = 0.0
        if not found or min(width, height) <= 0:
            raise InvalidInput(f"{text!r} is no paper: write it like A4, letter, 30x20cm or 6x4in.")
        return cls(width, height, found[3])

    def pixels(self, dpi: float) -> tuple[float, float]:
        """Its short and long side in pixels."""
        short, long = sorted(side * INCHES[self.unit] * dpi for side in self[:2])
        return short, long


class TargetSize(NamedTuple):
    """The wanted size of an output. Exactly one way to say it is given, not counting `dpi`.

    `size` and `fit` are (height, width). `size` is exact. All others keep the aspect ratio: `fit` is a box
    that the output fills as far as it can, `paper` a sheet that is turned to suit the picture.
    `dpi`: the resolution to write in the file; for `paper` also its pixels per inch.
    """

    scale: float | None = None
    size: Sequence[int] | None = None
    width: int | None = None
    height: int | None = None
    fit: Sequence[int] | None = None
    long_edge: int | None = None
    short_edge: int | None = None
    megapixels: float | None = None
    paper: Paper | None = None
    dpi: float | None = None

    @property
    def resolution(self) -> float | None:
        """The pixels per inch to write in the file; None: those of the input."""
        return self.dpi or (PRINT_DPI if self.paper else None)

    def check(self) -> None:
        """Refuses a size that is not valid.

        >>> TargetSize(scale=2, width=100).check()
        Traceback (most recent call last):
        thera.errors.InvalidInput: Give one of scale, size, width, height, fit, long edge, short edge, \
megapixels and print, not scale and width.
        """
        ways = [name for name in self._fields if name != "dpi"]
        given = [name for name in ways if getattr(self, name) is not None]
        if len(given) != 1:
            *first, last = map(_called, ways)
            message = " and ".join(map(_called, given)) or "none of them"
            raise InvalidInput(f"Give one of {', '.join(first)} and {last}, not {message}.")
        (name,) = given
        value = getattr(self, name)
        if name in ("size", "fit"):
            sides = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else ()
            if len(sides) != 2 or not all(map(_whole, sides)):
                message = "×".join(map(str, reversed(sides))) or value
                raise InvalidInput(f"A {name} of {message} makes no image: give two whole numbers from 1 up.")
        elif name in ("scale", "megapixels"):
            if not _positive(value):
                message = f"{value:g}" if isinstance(value, int | float) else repr(value)
                wanted = f"scale of {message}" if name == "scale" else f"size of {message} megapixels"
                raise InvalidInput(f"A {wanted} makes no image: give a number above 0.")
        elif name != "paper" and not _whole(value):
            raise InvalidInput(f"A {_called(name)} of {value} makes no image: give a whole number from 1 up.")
        if self.dpi is not None and not _positive(self.dpi):
            raise InvalidInput(f"A resolution of {self.dpi:g} dpi is none: give a number above 0.")

    def for_image(self, source: tuple[int, int]) -> tuple[int, int]:
        """(height, width) of the output of an image of `source` = (height, width).

        >>> TargetSize(fit=(1080, 1920)).for_image((600, 800))
        (1080, 1440)
        >>> TargetSize(paper=Paper.parse("15x10cm")).for_image((3000, 2000))
        (1772, 1181)
        """
        self.check()
        rows, cols = source
        short, long = sorted(source)
        if self.size is not None:
            target = (int(self.size[0]), int(self.size[1]))
        else:
            sides: list[tuple[float | None, float]] = [
                (self.scale, 1),
                (self.width, cols),
                (self.height, rows),
                (self.long_edge, long),
                (self.short_edge, short),
                (self.megapixels and math.sqrt(1e6 * self.megapixels / (rows * cols)), 1),
            ]
            if self.fit is not None:
                sides = [(self.fit[0], rows), (self.fit[1], cols)]
            if self.paper is not None:
                sides = list(zip(self.paper.pixels(self.resolution or PRINT_DPI), (short, long), strict=True))
            factor = min(wanted / own for wanted, own in sides if wanted is not None)
            if rows * cols * factor * factor > MOST_PIXELS:
                raise _too_large(f"{cols}×{rows} times {factor:g}")
            target = (round(rows * factor), round(cols * factor))
            if self.scale is None:  # a thin strip keeps at least one row or column
                target = (max(1, target[0]), max(1, target[1]))
        if min(target) < 1:
            raise InvalidInput(
                f"A scale of {self.scale:g} leaves no pixel of an image of {cols}×{rows}: use a larger scale."
            )
        if target[0] * target[1] > MOST_PIXELS:
            raise _too_large(f"{target[1]}×{target[0]}")
        return target

    @property
    def label(self) -> str:
        """The size as part of a file name: x2.5, 1920x1080, w1920, fit1920x1080, long3000, 24mp, 30x20cm, a4.

        >>> TargetSize(fit=(1080, 1920)).label
        'fit1920x1080'
        """
        if self.size is not None or self.fit is not None:
            rows, cols = self.size or self.fit or (0, 0)
            return f"{'fit' if self.fit else ''}{cols}x{rows}"
        if self.paper is not None:
            names = {size: name for name, size in PAPERS.items()}
            if self.paper.unit == "mm" and self.paper[:2] in names:
                return names[self.paper[:2]]
            return f"{self.paper.width:g}x{self.paper.height:g}{self.paper.unit}"
        if self.megapixels is not None:
            return f"{self.megapixels:g}mp"
        letters = {"scale": "x", "width": "w", "height": "h", "long_edge": "long", "short_edge": "short"}
        return next(f"{text}{value:g}" for name, text in letters.items() if (value := getattr(self, name)))


def parse_scale(text: str) -> float:
    """A factor as people write it.

    >>> [parse_scale(text) for text in ("4", "4x", "x2.5", "200%")]
    [4.0, 4.0, 2.5, 2.0]
    """
    plain = text.strip().lower().replace("×", "x")
    try:
        if plain.endswith("%"):
            return float(plain[:-1]) / 100
        return float(plain.removesuffix("x") if plain.endswith("x") else plain.removeprefix("x"))
    except ValueError:
        raise InvalidInput(f"{text!r} is no scale: write it like 4, 2.5, 4x or 200%.") from None


def _called(name: str) -> str:
    return {"paper": "print"}.get(name, name.replace("_", " "))


def _positive(value: Any) -> bool:
    try:
        return math.isfinite(value) and value > 0
    except (TypeError, OverflowError):
        return False


def _whole(value: Any) -> bool:
    return _positive(value) and value >= 1 and value == int(value)


def _too_large(what: str) -> InvalidInput:
    return InvalidInput(f"{what} is more than the {MOST_PIXELS:,} pixels that Thera writes: ask for fewer.")
