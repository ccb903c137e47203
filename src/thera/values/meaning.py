"""What the samples of an array mean: the options that NumPy, PyTorch, Dask and xarray arrays share."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from thera.errors import InvalidInput
from thera.values.bands import COLOURS, Bands, Group
from thera.values.ranges import Range, Stretch, holds
from thera.values.survey import Rule

#: "dtype", "extent", "percentile" or "2%:98%", (low, high), or such a pair for each band.
ValueRange = str | Stretch | Sequence[float] | Sequence[Sequence[float]]
#: Bands that are seen together: three of them in a sequence, or one.
Groups = Sequence[Hashable | Sequence[Hashable]]
Nodata = float | Sequence[float | None]
AlphaUse = Literal["cover", "data"]


@dataclass(frozen=True)
class Meaning:
    """How samples are to be understood. Every option has a default, None.

    `value_range`: the values that the network sees as black and white. None: 8 and 16-bit unsigned integers
    span their type, other integers what they hold, floats 0 to 1 or what most of them hold. "dtype":
    what the type holds. "extent": what a group holds, but at most 20 times what lies between its 0.5th and
    99.5th percentile. "percentile": from the 0.5th percentile of a group to its 99.5th. "2%:98%": from
    other percentiles. (low, high): these values, for all bands but an alpha. A pair for each band: its own.

    `groups`: which three bands are the parts of a colour, as in [(2, 1, 0)]. All others are seen one by one.
    None: the first three of three or four bands are a colour.

    `alpha`: "cover" if the last band says how far the others cover what is behind, "data" if it is a band
    like others. None: the last of two or four bands covers, unless there are `groups`.

    `nodata`: the value, or one for each band, that stands for no data; NaN stands for all that is no number.
    An output pixel is nodata where the input pixel is in which its centre lies, and nowhere else.
    """

    value_range: ValueRange | None = None
    groups: Groups | None = None
    nodata: Nodata | None = None
    alpha: AlphaUse | None = None

    def named(self, names: Sequence[Hashable]) -> Meaning:
        """The meaning of bands that have names: `groups` uses them, and red, green and blue are a colour."""
        if self.groups is not None:
            return replace(self, groups=_positions(self.groups, list(names)))
        called = [str(name).lower() for name in names]
        colours = [tuple(map(called.index, COLOURS))] if all(called.count(c) == 1 for c in COLOURS) else []
        alpha = self.alpha or ("cover" if "alpha" in called[1:][-1:] else "data")
        return replace(self, groups=colours, alpha=alpha)

    def bands(self, count: int, dtype: np.dtype) -> Bands:
        """What each of `count` bands is."""
        if self.alpha not in (None, "cover", "data"):
            raise InvalidInput(f'alpha={self.alpha!r} was given: expected "cover" or "data".')
        groups: list[tuple[int, ...]] = [(0, 1, 2)] if count in (3, 4) else []
        covers = self.alpha == "cover" or (self.alpha is None and count in (2, 4))
        if self.groups is not None:
            groups = _positions(self.groups, list(range(count)))
            covers = self.alpha == "cover"
        first = [band for group in groups for band in group]
        if covers and (count < 2 or count - 1 in first):
            raise InvalidInput(
                f'alpha="cover" was given, but the last of {count} bands is no alpha: it is part of a colour,'
                " or there is no other band."
            )
        alone = [Group((k,), alpha=covers and k == count - 1) for k in range(count) if k not in first]
        seen = sorted([*map(Group, groups), *alone], key=lambda group: group.bands)
        return Bands(tuple(seen), self._nodata(count, dtype, covers))

    def _nodata(self, count: int, dtype: np.dtype, covers: bool) -> tuple[float | None, ...]:
        given: Any = self.nodata
        if given is None:
            return ()
        values = _listed(given) if np.ndim(given) else [given] * count
        if len(values) != count or not all(value is None or holds(dtype, value) for value in values):
            raise InvalidInput(
                f"nodata={given!r} was given: expected a value of {dtype}, or one (or None) for each of"
                f" {count} bands."
            )
        if covers:
            values[-1] = None  # an alpha is always valid
        return tuple(None if value is None else float(value) for value in values)

    def rule(self, count: int) -> Rule:
        """How the values of `count` bands are seen."""
        given = self.value_range
        if given is None or isinstance(given, Stretch):
            return given
        if isinstance(given, str):
            return Stretch.parse(given)
        try:
            pairs = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            pairs = np.empty(0)
        fits = pairs.shape in ((2,), (count, 2)) and np.isfinite(pairs).all()
        if not fits or (pairs[..., 0] >= pairs[..., 1]).any():
            raise InvalidInput(
                f"value_range={given!r} is no range: give two finite numbers, the lower one first, or such a"
                f" pair for each of the {count} channels."
            )
        if pairs.ndim == 1:
            return Stretch("given", *pairs.tolist())
        return tuple(Range(low, high) for low, high in pairs.tolist())


def check_type(dtype: np.dtype) -> None:
    """Refuses samples that are no numbers of 64 bits at most."""
    if dtype.kind not in "uif" or dtype.itemsize > 8:
        raise InvalidInput(f"An array of {dtype} was given: expected integers or floats of 64 bits at most.")


def check_channels_last(shape: Sequence[int], groups: Groups | None) -> None:
    """Refuses an array that looks like C×H×W, unless `groups` say what its channels are."""
    if len(shape) == 3 and shape[0] < shape[2] and shape[2] > 4 and groups is None:
        raise InvalidInput(
            f"An array of shape {tuple(shape)} was given: channels come last. If they do, say groups=[] (each"
            " is seen by itself), or which of them are a colour."
        )


def flattened(groups: Groups) -> list[Hashable]:
    """All bands of some groups, one after the other.

    >>> flattened([("B04", "B03", "B02"), "B08"])
    ['B04', 'B03', 'B02', 'B08']
    """
    return [band for group in _listed(groups) for band in _listed(group)]


def _listed(one_or_more: object) -> list[Any]:
    listed = isinstance(one_or_more, Sequence | np.ndarray) and not isinstance(one_or_more, str)
    return list(one_or_more) if listed else [one_or_more]  # type: ignore[call-overload]


def _positions(groups: Groups, names: list[Hashable]) -> list[tuple[int, ...]]:
    """Groups of three bands as positions among `names`; single bands are left out."""
    listed = [_listed(group) for group in _listed(groups)]
    every = flattened(groups)
    problem = ""
    for band in every:
        if band not in names:
            problem = f"there is no band {band!r} among {names}"
        elif every.count(band) > 1:
            problem = f"the band {band!r} is there twice"
    if not all(len(group) in (1, 3) for group in listed):
        problem = "a group has one band or three"
    elif listed and not problem and not any(len(group) == 3 for group in listed):
        problem = "none of them is a colour: write one as three bands in brackets, [(0, 1, 2)]"
    if problem:
        raise InvalidInput(f"groups={groups!r} was given, but {problem}.")
    return [tuple(names.index(band) for band in group) for group in listed if len(group) == 3]
