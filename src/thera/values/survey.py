"""Surveys: the values that stand for 0 and 1 in each group of bands, of a picture that comes in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.values.bands import Bands, Group
from thera.values.ranges import NOT_FINITE, PERCENTILES, Range, Stretch, type_range

#: Samples h×w×bands, and which of them are valid; None if all are.
Window = tuple[NDArray, NDArray[np.bool_] | None]
#: How values are seen: stretched, each band in a range of its own, or (None) as `Range.of` says.
Rule = Stretch | tuple[Range, ...] | None

#: Bits of a number that one pass decides.
_DIGIT = 16
#: Groups whose percentiles are found together: their histograms take a megabyte each.
_TOGETHER = 256


class Survey:
    """Finds the range of each group of bands, in as many passes over all pieces as it takes.

    In each pass, what `counted` makes of every piece is put together by `combine` ("sum" or "max"), and
    `narrow` is given the result. Pieces may be counted anywhere and combined in any order.
    """

    def __init__(self, bands: Bands, dtype: np.dtype, rule: Rule) -> None:
        self.bands, self.dtype = bands, dtype
        self._groups = [_wanted(group, dtype, rule) for group in bands.groups]
        self._open = [
            (group, wanted)
            for group, wanted in zip(bands.groups, self._groups, strict=True)
            if not isinstance(wanted, Range)
        ]
        self.passes = self._open[0][1].passes if self._open else 0
        self.combine = self._open[0][1].combine if self._open else ""

    @property
    def length(self) -> int:
        """How many numbers `counted` gives."""
        return sum(wanted.length for _, wanted in self._open)

    def counted(self, samples: NDArray, valid: NDArray[np.bool_] | None) -> NDArray:
        """What a piece, h×w×bands samples, adds to this pass: one row of numbers."""
        parts = []
        for group, wanted in self._open:
            numbers = samples[..., list(group.bands)]
            parts.append(wanted.counted(numbers if valid is None else numbers[valid[..., list(group.bands)]]))
        return np.concatenate([part.ravel() for part in parts])

    def narrow(self, counts: NDArray) -> None:
        """Ends a pass, with what all pieces add up to."""
        parts = np.split(counts, len(self._open))
        for (_, wanted), part in zip(self._open, parts, strict=True):
            wanted.narrow(part)

    @property
    def ranges(self) -> list[Range]:
        """The range of each group, after the last pass."""
        return [wanted if isinstance(wanted, Range) else wanted.range for wanted in self._groups]


def find_ranges(
    bands: Bands, dtype: np.dtype, rule: Rule, windows: Callable[[], Iterable[Window]]
) -> list[Range]:
    """The values that stand for 0 and 1 in each group of bands.

    `windows` gives all samples of a picture, h×w×bands at a time, and which are valid (None: all). It is
    called once for each pass.
    """
    if len(bands.groups) > _TOGETHER:
        parts = (bands.groups[i : i + _TOGETHER] for i in range(0, len(bands.groups), _TOGETHER))
        found = (find_ranges(replace(bands, groups=part), dtype, rule, windows) for part in parts)
        return [span for part in found for span in part]
    survey = Survey(bands, dtype, rule)
    for _ in range(survey.passes):
        total = None
        for samples, valid in windows():
            counts = survey.counted(samples, valid)
            if total is None:
                total = counts
            elif survey.combine == "sum":
                total += counts
            else:
                np.maximum(total, counts, out=total)
        assert total is not None, "a picture has pixels"
        survey.narrow(total)
    return survey.ranges


def _wanted(group: Group, dtype: np.dtype, rule: Rule) -> Range | Extremes | Percentiles:
    """The range of a group, or what will find it. An alpha spans its type whatever the others are given."""
    if rule is None:
        return Range.of_type(dtype) or (FloatRange(dtype) if dtype.kind == "f" else Extremes(dtype))
    if isinstance(rule, tuple):
        own = [rule[band] for band in group.bands]
        return Range(min(each.low for each in own), max(each.high for each in own))
    if rule.kind == "dtype" or group.alpha:
        return type_range(dtype)
    if rule.kind == "given":
        return Range(rule.low, rule.high)
    percents = (0.0, *PERCENTILES, 100.0) if rule.kind == "extent" else (rule.low, rule.high)
    return Percentiles(dtype, percents)


class Extremes:
    """The lowest and highest of numbers that come in pieces."""

    passes, length, combine = 1, 2, "max"

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self.range = type_range(dtype)

    @staticmethod
    def counted(numbers: NDArray) -> NDArray[np.float64]:
        """The lowest with its sign changed, and the highest."""
        if not numbers.size:
            return np.array([-np.inf, -np.inf])
        return np.array([-float(numbers.min()), float(numbers.max())])

    def narrow(self, found: NDArray[np.float64]) -> None:
        lowest, highest = -found[0], found[1]
        if lowest != np.inf:  # else there were no numbers
            self.range = Range.of_extremes(lowest, highest, self.dtype)


class Percentiles:
    """Exact percentiles of numbers that come in pieces, in the memory of a few histograms.

    Numbers are decided 16 bits at a time, from the highest: all pieces are counted once for each pass, and
    their counts added.

    >>> wanted = Percentiles(np.dtype(np.float32), (0, 50))
    >>> for _ in range(wanted.passes):
    ...     wanted.narrow(wanted.counted(np.float32([3.5, -1.25])) + wanted.counted(np.float32([7])))
    >>> wanted.values
    [-1.25, 3.5]
    """

    combine = "sum"

    def __init__(self, dtype: np.dtype, percents: tuple[float, ...]) -> None:
        self.dtype = dtype.newbyteorder("=")
        self.percents = percents
        bits = 8 * dtype.itemsize
        self.passes = max(1, bits // _DIGIT)
        self.length = len(percents) * 2**_DIGIT
        self.total = 0
        self._shift = max(0, bits - _DIGIT)
        self._unsigned = np.dtype(f"u{dtype.itemsize}")
        self._known = [0] * len(percents)  # the leading bits of each, as decided so far
        self._ranks: list[int] | None = None  # among the numbers that begin with those bits

    def counted(self, numbers: NDArray) -> NDArray[np.int64]:
        """The histograms of some numbers, one for each percentile."""
        if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
            raise InvalidInput(NOT_FINITE)
        keys = self._keys(numbers.ravel())
        digits = keys >> self._shift
        if self.passes > 1:
            digits &= 2**_DIGIT - 1
        histograms = {}
        for known in set(self._known):
            here = digits
            if self._ranks is not None:
                here = digits[keys >> (self._shift + _DIGIT) == known]
            histograms[known] = np.bincount(here.astype(np.intp), minlength=2**_DIGIT)
        return np.stack([histograms[known] for known in self._known])

    def narrow(self, counts: NDArray[np.int64]) -> None:
        """Ends a pass: decides the next bits, from the sum of all histograms."""
        counts = counts.reshape(len(self.percents), -1)
        if self._ranks is None:
            self.total = int(counts[0].sum())
            self._ranks = [round(p / 100 * max(0, self.total - 1)) for p in self.percents]
        for i, (known, rank) in enumerate(zip(self._known, self._ranks, strict=True)):
            upto = np.cumsum(counts[i])
            digit = min(int(np.searchsorted(upto, rank, side="right")), 2**_DIGIT - 1)
            self._ranks[i] = rank - (int(upto[digit - 1]) if digit else 0)
            self._known[i] = (known << _DIGIT) | digit
        self._shift -= _DIGIT

    @property
    def values(self) -> list[float]:
        """The percentiles, after the last pass."""
        keys = np.array(self._known, np.uint64).astype(self._unsigned)
        sign = self._unsigned.type(1 << (8 * self.dtype.itemsize - 1))
        if self.dtype.kind == "f":
            keys = np.where(keys & sign, keys ^ sign, ~keys)
        elif self.dtype.kind == "i":
            keys = keys ^ sign
        return [float(value) for value in keys.view(self.dtype)]

    @property
    def range(self) -> Range:
        """From one percentile to another, or of all four; what the type spans, if there were no numbers."""
        if not self.total:
            return type_range(self.dtype)
        if len(self.percents) == 4:
            return Range.of_quantiles(*self.values)
        return Range.not_empty(self.values[0], self.values[-1], local=True)

    def _keys(self, numbers: NDArray) -> NDArray:
        """Unsigned integers in the order of the numbers."""
        bits = np.ascontiguousarray(numbers, self.dtype).view(self._unsigned)
        sign = self._unsigned.type(1 << (8 * self.dtype.itemsize - 1))
        if self.dtype.kind == "f":
            return np.where(bits & sign, ~bits, bits | sign)
        return bits ^ sign if self.dtype.kind == "i" else bits


class FloatRange(Percentiles):
    """The range that `Range.of` gives floats, of numbers that come in pieces."""

    def __init__(self, dtype: np.dtype) -> None:
        super().__init__(dtype, (0.0, *PERCENTILES, 100.0))

    @property
    def range(self) -> Range:
        return Range.of_floats(*self.values) if self.total else type_range(self.dtype)
