"""The size of the output in whole pixels, from what the user asked for."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from thera.errors import InvalidInput
from thera.field.grid import MOST_PIXELS


class TargetSize(NamedTuple):
    """The wanted size of an output. Exactly one of the five is given.

    `size` and `fit` are (height, width). `size` is exact; `fit` is the box that the output fills as far as
    the input's aspect ratio allows. `width` or `height` alone keep the aspect ratio.
    """

    scale: float | None = None
    size: Sequence[int] | None = None
    width: int | None = None
    height: int | None = None
    fit: Sequence[int] | None = None

    def check(self) -> None:
        """Refuses a size that is not valid.

        >>> TargetSize(scale=2, width=100).check()
        Traceback (most recent call last):
        thera.errors.InvalidInput: Give one of scale, size, width, height and fit, not scale and width.
        """
        given = {name: value for name, value in self._asdict().items() if value is not None}
        if len(given) != 1:
            message = " and ".join(given) or "none of them"
            raise InvalidInput(f"Give one of scale, size, width, height and fit, not {message}.")
        (name, value), *_ = given.items()
        if name == "scale":
            if not (_finite(value) and value > 0):
                message = f"{value:g}" if isinstance(value, int | float) else repr(value)
                raise InvalidInput(f"A scale of {message} makes no image: give a number above 0.")
        elif name in ("width", "height"):
            if not _whole(value):
                raise InvalidInput(f"A {name} of {value} makes no image: give a whole number from 1 up.")
        elif np.shape(value) != (2,) or not all(map(_whole, value)):
            message = "×".join(map(str, reversed(value))) if np.ndim(value) else value
            raise InvalidInput(f"A {name} of {message} makes no image: give two whole numbers from 1 up.")

    def for_image(self, source: tuple[int, int]) -> tuple[int, int]:
        """(height, width) of the output of an image of `source` = (height, width).

        >>> TargetSize(fit=(1080, 1920)).for_image((600, 800))
        (1080, 1440)
        >>> TargetSize(width=1000).for_image((600, 800))
        (750, 1000)
        """
        self.check()
        rows, cols = source
        if self.size is not None:
            target = (int(self.size[0]), int(self.size[1]))
        else:
            if self.scale is not None:
                factor = float(self.scale)
            elif self.width is not None:
                factor = self.width / cols
            elif self.height is not None:
                factor = self.height / rows
            else:
                assert self.fit is not None
                factor = min(self.fit[0] / rows, self.fit[1] / cols)
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
        """The size as part of a file name: x2.5, 1920x1080, w1920, h1080, fit1920x1080.

        >>> TargetSize(fit=(1080, 1920)).label
        'fit1920x1080'
        """
        if self.scale is not None:
            return f"x{self.scale:g}"
        if self.width is not None:
            return f"w{self.width}"
        if self.height is not None:
            return f"h{self.height}"
        rows, cols = self.size or self.fit or (0, 0)
        return f"{'fit' if self.fit else ''}{cols}x{rows}"


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except (TypeError, OverflowError):
        return False


def _whole(value: Any) -> bool:
    return _finite(value) and value >= 1 and value == int(value)


def _too_large(what: str) -> InvalidInput:
    return InvalidInput(f"{what} is more than the {MOST_PIXELS:,} pixels that Thera writes: ask for fewer.")
