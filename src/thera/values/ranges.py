"""Value ranges: the sample values that a network sees as 0 and 1."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.values.bands import Bands

#: Samples h×w×bands, and which of them are valid; None if all are.
Window = tuple[NDArray, NDArray[np.bool_] | None]

#: Default percentiles for 0 and 1, so that a few outliers do not darken everything else.
PERCENTILES = (0.5, 99.5)
#: Bits of a number that one pass over the raster decides.
_DIGIT = 16


@dataclass(frozen=True)
class Range:
    """The sample values that the network sees as 0 and 1."""

    low: float
    high: float

    @classmethod
    def of(cls, samples: NDArray) -> "Range":
        """The range of samples: that of the type for unsigned integers of 8 and 16 bits, that of the samples
        for other integers, and for floats 0 to 1, or that of the samples if some lie outside.

        >>> Range.of(np.zeros((2, 2), np.uint8))
        Range(low=0.0, high=255.0)
        >>> Range.of(np.array([[-20.0, 300.0]]))
        Range(low=-20.0, high=300.0)
        """
        return cls.of_type(samples.dtype) or cls.of_extremes(samples.min(), samples.max())

    @classmethod
    def of_type(cls, dtype: np.dtype) -> "Range | None":
        """The range of a sample type; None if it depends on the samples."""
        spans = dtype.kind == "u" and dtype.itemsize <= 2  # in either byte order
        return cls(0.0, float(np.iinfo(dtype).max)) if spans else None

    @classmethod
    def of_extremes(cls, lowest: np.number, highest: np.number) -> "Range":
        """The range of samples whose lowest and highest are these."""
        low, high = float(lowest), float(highest)
        if not (np.isfinite(low) and np.isfinite(high)):
            raise InvalidInput("The image holds NaN or infinite values: replace them before it is scaled.")
        if highest.dtype.kind == "f" and low >= 0 and high <= 1:
            return cls(0.0, 1.0)
        return cls.not_empty(low, high)

    @classmethod
    def not_empty(cls, low: float, high: float) -> "Range":
        return cls(low, high if high > low else low + 1.0)

    def normalise(self, samples: NDArray) -> NDArray[np.float32]:
        """Samples as float32, `low` at 0 and `high` at 1."""
        if samples.dtype.itemsize <= 2 and samples.dtype.kind == "u" and self.low == 0:
            return np.multiply(samples, np.float32(1 / self.high), dtype=np.float32)
        return ((samples.astype(np.float64) - self.low) / (self.high - self.low)).astype(np.float32)

    def restore(self, values: NDArray[np.float32], dtype: np.dtype) -> NDArray:
        """Values as samples of type `dtype`. Integers are rounded and clipped to their type."""
        # float32 has fewer digits than the wide types: 1e9 and 1e9 + 1 are the same in it.
        wide = dtype.itemsize > (4 if dtype.kind == "f" else 2)
        scaled: NDArray = values.astype(np.float64 if wide else np.float32)
        scaled *= self.high - self.low
        scaled += self.low
        if dtype.kind != "f":
            limits = np.iinfo(dtype)
            np.rint(scaled, out=scaled)
            np.clip(scaled, limits.min, limits.max, out=scaled)
        return scaled.astype(dtype, copy=False)


@dataclass(frozen=True)
class Stretch:
    """How to choose the values for 0 and 1: the type's range, percentiles, or the values `low` and `high`.

    Values beyond them are not clipped; the network sees them below 0 or above 1.
    """

    kind: Literal["dtype", "percentile", "given"]
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def parse(cls, text: str) -> "Stretch":
        """`dtype`, `percentile`, LO%:HI% or LO:HI.

        >>> Stretch.parse("2%:98%")
        Stretch(kind='percentile', low=2.0, high=98.0)
        >>> Stretch.parse("-1000:10000")
        Stretch(kind='given', low=-1000.0, high=10000.0)
        """
        if text == "dtype":
            return cls("dtype")
        if text == "percentile":
            return cls("percentile", *PERCENTILES)
        parts = text.split(":")
        percent = all(part.endswith("%") for part in parts)
        try:
            low, high = (float(part.removesuffix("%") if percent else part) for part in parts)
        except ValueError:
            low = high = math.nan
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InvalidInput(
                f"{text!r} is not a range of values: write dtype, percentile, two percentiles like 2%:98%, or"
                " the two values for black and white, like 0:10000."
            )
        if percent and not 0 <= low < high <= 100:
            raise InvalidInput(f"{text!r} are not percentiles: they go from 0% to 100%.")
        return cls("percentile" if percent else "given", low, high)

    @classmethod
    def usual(cls, dtype: np.dtype) -> "Stretch":
        """The default for a sample type: the type's range for bytes, percentiles for all others."""
        return cls("dtype") if dtype == np.uint8 else cls("percentile", *PERCENTILES)


def type_range(dtype: np.dtype) -> Range:
    """The full range of an integer type; 0 to 1 for floats.

    >>> type_range(np.dtype(np.int16))
    Range(low=-32768.0, high=32767.0)
    """
    if dtype.kind == "f":
        return Range(0.0, 1.0)
    limits = np.iinfo(dtype)
    return Range(float(limits.min), float(limits.max))


class Percentiles:
    """Exact percentiles of numbers that come in pieces, in the memory of a few histograms.

    Numbers are decided 16 bits at a time, from the highest: all pieces are counted once for each pass.

    >>> wanted = Percentiles(np.dtype(np.float32), (0, 50))
    >>> for _ in range(wanted.passes):
    ...     wanted.count(np.float32([3.5, -1.25, 7])), wanted.narrow()
    (None, None)
    (None, None)
    >>> wanted.values
    [-1.25, 3.5]
    """

    def __init__(self, dtype: np.dtype, percents: tuple[float, ...]) -> None:
        self.dtype = dtype
        self.percents = percents
        bits = 8 * dtype.itemsize
        self.passes = max(1, bits // _DIGIT)
        self._shift = max(0, bits - _DIGIT)
        self._unsigned = np.dtype(f"u{dtype.itemsize}")
        self._known = [0] * len(percents)  # the leading bits of each, as decided so far
        self._ranks: list[int] | None = None  # among the numbers that begin with those bits
        self.total = 0
        self._counts: dict[int, NDArray[np.int64]] = {}

    def count(self, numbers: NDArray) -> None:
        """Counts numbers, all of them finite."""
        keys = self._keys(numbers.ravel())
        digits = keys >> self._shift
        if self.passes > 1:
            digits &= 2**_DIGIT - 1
        for known in set(self._known):
            here = digits
            if self._ranks is not None:
                here = digits[keys >> (self._shift + _DIGIT) == known]
            counts = np.bincount(here.astype(np.intp), minlength=2**_DIGIT)
            self._counts[known] = self._counts.get(known, 0) + counts

    def narrow(self) -> None:
        """Ends a pass: decides the next bits."""
        if self._ranks is None:
            self.total = int(self._counts[0].sum()) if self._counts else 0
            self._ranks = [round(p / 100 * max(0, self.total - 1)) for p in self.percents]
        for i, (known, rank) in enumerate(zip(self._known, self._ranks, strict=True)):
            upto = np.cumsum(self._counts.get(known, np.zeros(2**_DIGIT, np.int64)))
            digit = min(int(np.searchsorted(upto, rank, side="right")), 2**_DIGIT - 1)
            self._ranks[i] = rank - (int(upto[digit - 1]) if digit else 0)
            self._known[i] = (known << _DIGIT) | digit
        self._counts = {}
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

    def _keys(self, numbers: NDArray) -> NDArray:
        """Unsigned integers in the order of the numbers."""
        bits = np.ascontiguousarray(numbers).view(self._unsigned)
        sign = self._unsigned.type(1 << (8 * self.dtype.itemsize - 1))
        if self.dtype.kind == "f":
            return np.where(bits & sign, ~bits, bits | sign)
        return bits ^ sign if self.dtype.kind == "i" else bits


def find_ranges(
    bands: Bands, dtype: np.dtype, stretch: Stretch, windows: Callable[[], Iterable[Window]]
) -> list[Range]:
    """The values that stand for 0 and 1 in each group of bands.

    `windows` gives all samples of a picture, h×w×bands at a time, and which are valid (None: all). It is
    called once for each pass that percentiles take. An alpha always spans its type.
    """
    whole, groups = type_range(dtype), bands.groups
    if stretch.kind == "given":
        return [whole if group.alpha else Range(stretch.low, stretch.high) for group in groups]
    if stretch.kind == "dtype":
        return [whole] * len(groups)
    wanted = [Percentiles(dtype, (stretch.low, stretch.high)) for _ in groups]
    for _ in range(wanted[0].passes):
        for samples, valid in windows():
            for group, percentiles in zip(groups, wanted, strict=True):
                index = list(group.bands)
                values = samples[..., index]
                percentiles.count(values if valid is None else values[valid[..., index]])
        for percentiles in wanted:
            percentiles.narrow()
    return [
        whole if group.alpha or not percentiles.total else Range.not_empty(*percentiles.values)
        for group, percentiles in zip(groups, wanted, strict=True)
    ]


def marked(samples: NDArray, valid: NDArray[np.bool_], nodata: float) -> NDArray:
    """The samples with `nodata` where they are not valid, and only there.

    A valid sample that happens to equal `nodata` becomes the next value.

    >>> marked(np.uint8([0, 7, 9]), np.array([True, True, False]), 0)
    array([1, 7, 0], dtype=uint8)
    """
    dtype = samples.dtype
    mark = dtype.type(nodata)
    if dtype.kind == "f":
        beside = np.nextafter(mark, dtype.type(0) if mark else dtype.type(1))
    else:
        beside = dtype.type(int(mark) + (1 if mark < np.iinfo(dtype).max else -1))
    return np.where(valid, np.where(samples == mark, beside, samples), mark)


def depth_name(dtype: np.dtype) -> str:
    """A readable name of a sample type.

    >>> depth_name(np.dtype(np.uint16)), depth_name(np.dtype(np.float32))
    ('16-bit', '32-bit float')
    """
    kind = {"u": "", "i": " signed", "f": " float"}[dtype.kind]
    return f"{8 * dtype.itemsize}-bit{kind}"
