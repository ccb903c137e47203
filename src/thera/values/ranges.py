"""Value ranges: the sample values that a network sees as 0 and 1."""

import math
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput

#: What is said of values that cannot be scaled.
NOT_FINITE = (
    "The image holds NaN or infinite values: replace them before it is scaled, or say that they are no data"
    " (nodata=nan in Python, --range percentile for a TIFF)."
)
#: Default percentiles for 0 and 1.
PERCENTILES = (0.5, 99.5)
#: Outliers may widen a range to this many times what lies between those percentiles. A network works as well
#: with a twentieth of the contrast; with a hundredth it does not.
WIDEST = 20.0
#: How far results may leave the range of the 3×3 input pixels around them, as a part of that range. Over 38
#: real rasters, a quarter lowered the error of 2×2 means by 7 % and left the fewest above GDAL's cubic.
MARGIN = 0.25


@dataclass(frozen=True)
class Range:
    """The sample values that the network sees as 0 and 1.

    `local`: results stay near the input pixels around them, as far as `MARGIN` allows.
    """

    low: float
    high: float
    local: bool = field(default=False, repr=False, compare=False)

    @classmethod
    def of(cls, samples: NDArray) -> "Range":
        """The range of samples: that of the type for unsigned integers of 8 and 16 bits, that of the samples
        for other integers, and what `of_floats` says for floats.

        >>> Range.of(np.zeros((2, 2), np.uint8))
        Range(low=0.0, high=255.0)
        >>> Range.of(np.array([[-20.0, 300.0]]))
        Range(low=-20.0, high=300.0)
        """
        known = cls.of_type(samples.dtype)
        if known is not None:
            return known
        low, high = float(samples.min()), float(samples.max())
        if samples.dtype.kind != "f" or (low >= 0 and high <= 1) or not np.isfinite(high - low):
            return cls.of_extremes(low, high, samples.dtype)
        ranks = [round(p / 100 * (samples.size - 1)) for p in PERCENTILES]
        middle = np.partition(samples, ranks, axis=None)[ranks]
        return cls.of_floats(low, float(middle[0]), float(middle[1]), high)

    @classmethod
    def of_type(cls, dtype: np.dtype) -> "Range | None":
        """The range of a sample type; None if it depends on the samples."""
        spans = dtype.kind == "u" and dtype.itemsize <= 2  # in either byte order
        return cls(0.0, float(np.iinfo(dtype).max)) if spans else None

    @classmethod
    def of_extremes(cls, lowest: float, highest: float, dtype: np.dtype) -> "Range":
        """The range of samples of a type whose lowest and highest are these."""
        low, high = float(lowest), float(highest)
        if not (np.isfinite(low) and np.isfinite(high)):
            raise InvalidInput(NOT_FINITE)
        if dtype.kind == "f" and low >= 0 and high <= 1:
            return cls(0.0, 1.0)
        return cls.not_empty(low, high)

    @classmethod
    def of_floats(cls, lowest: float, lower: float, upper: float, highest: float) -> "Range":
        """The range of floats with these extremes and `PERCENTILES`: 0 to 1 if that holds all but a few
        highlights, otherwise what they hold. Outliers do not count: those that lie farther from the
        percentiles than these from each other.

        >>> Range.of_floats(0.0, 0.1, 0.9, 200.0), Range.of_floats(-5.0, 0.0, 60.0, 70.0)
        (Range(low=0.0, high=1.0), Range(low=-5.0, high=70.0))
        """
        if not (np.isfinite(lowest) and np.isfinite(highest)):
            raise InvalidInput(NOT_FINITE)
        if lowest >= 0 and upper <= 1:
            return cls(0.0, 1.0)
        spread = upper - lower
        low = lowest if lower - lowest <= spread else lower
        return cls.not_empty(low, highest if highest - upper <= spread else upper)

    @classmethod
    def not_empty(cls, low: float, high: float, local: bool = False) -> "Range":
        """From `low` to `high`, or to the next number that differs enough if both are the same."""
        return cls(low, high if high > low else low + max(1.0, abs(low) / 2**20), local)

    @classmethod
    def of_quantiles(cls, lowest: float, low: float, high: float, highest: float) -> "Range":
        """From the lowest to the highest of some samples, less if they are far from most of them.

        `low` and `high` are the percentiles between which most samples lie.

        >>> Range.of_quantiles(-2000, 0, 100, 130)
        Range(low=-950.0, high=130)
        """
        if low < high:
            middle, reach = (low + high) / 2, WIDEST / 2 * (high - low)
            lowest, highest = max(lowest, middle - reach), min(highest, middle + reach)
        return cls.not_empty(lowest, highest, local=True)

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
    """How to choose the values for 0 and 1: the type's range, that of the samples (`Range.of_quantiles`),
    percentiles, or the values `low` and `high`.

    Values beyond them are not clipped; the network sees them below 0 or above 1.
    """

    kind: Literal["dtype", "extent", "percentile", "given"]
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def parse(cls, text: str) -> "Stretch":
        """`dtype`, `extent`, `percentile`, LO%:HI% or LO:HI.

        >>> Stretch.parse("2%:98%")
        Stretch(kind='percentile', low=2.0, high=98.0)
        >>> Stretch.parse("-1000:10000")
        Stretch(kind='given', low=-1000.0, high=10000.0)
        """
        if text == "dtype":
            return cls("dtype")
        if text == "extent":
            return cls("extent")
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
                f"{text!r} is not a range of values: write dtype, extent, percentile, two percentiles like"
                " 2%:98%, or the two values for black and white, like 0:10000."
            )
        if percent and not 0 <= low < high <= 100:
            raise InvalidInput(f"{text!r} are not percentiles: they go from 0% to 100%.")
        return cls("percentile" if percent else "given", low, high)

    @classmethod
    def usual(cls, dtype: np.dtype) -> "Stretch":
        """The default for a sample type: the type's range for bytes, that of the samples for all others."""
        return cls("dtype" if dtype == np.uint8 else "extent")


def type_range(dtype: np.dtype) -> Range:
    """The full range of an integer type; 0 to 1 for floats.

    >>> type_range(np.dtype(np.int16))
    Range(low=-32768.0, high=32767.0)
    """
    if dtype.kind == "f":
        return Range(0.0, 1.0)
    limits = np.iinfo(dtype)
    return Range(float(limits.min), float(limits.max))


def holds(dtype: np.dtype, value: object) -> bool:
    """True if a sample of this type can have that value.

    >>> holds(np.dtype(np.uint8), -1), holds(np.dtype(np.float32), float("nan"))
    (False, True)
    """
    if not isinstance(value, Real) or dtype.kind == "f":
        return isinstance(value, Real)
    limits, number = np.iinfo(dtype), float(value)
    return limits.min <= number <= limits.max and number.is_integer()


def marked(samples: NDArray, valid: NDArray[np.bool_] | bool, nodata: float) -> NDArray:
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
