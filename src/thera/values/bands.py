"""Which bands of a picture form a colour, which one is alpha, and which values are nodata."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COLOURS = ("red", "green", "blue")


@dataclass(frozen=True)
class Group:
    """Bands that a network sees together: three colours, or one band repeated three times.

    `bands` are counted from 0. `alpha`: this band says where the other bands are visible.
    `inks`: samples are amounts of ink; the network sees the light that is left, 1 - ink.
    """

    bands: tuple[int, ...]
    alpha: bool = False
    inks: bool = False

    def __str__(self) -> str:
        numbers = ", ".join(str(band + 1) for band in self.bands)
        return f"band {numbers}" if len(self.bands) == 1 else f"bands {numbers}"


@dataclass(frozen=True)
class Bands:
    """The bands of a picture: their groups, and the nodata value of each band or None.

    >>> Bands.of_colours("rgb", alpha=True).groups
    (Group(bands=(0, 1, 2), alpha=False, inks=False), Group(bands=(3,), alpha=True, inks=False))
    """

    groups: tuple[Group, ...]
    nodata: tuple[float | None, ...] = ()

    @classmethod
    def of_colours(cls, colour: str, alpha: bool, covers: bool = True) -> Bands:
        """The bands of a picture whose colour model is grey, rgb or cmyk. Alpha follows the colours.

        `covers`: alpha says where the colours are visible; otherwise it is an ordinary band.
        """
        groups = [Group((0,))] if colour == "grey" else [Group((0, 1, 2), inks=colour == "cmyk")]
        if colour == "cmyk":
            groups.append(Group((3,), inks=True))
        if alpha:
            groups.append(Group((groups[-1].bands[-1] + 1,), alpha=covers))
        return cls(tuple(groups))

    @classmethod
    def named(cls, names: Sequence[str], nodata: Sequence[float | None] = (), covers: bool = True) -> Bands:
        """Bands by their names: red, green and blue form one group; every other band is a group by itself."""
        rgb: tuple[int, ...] = ()
        if all(names.count(name) == 1 for name in COLOURS):
            rgb = tuple(names.index(name) for name in COLOURS)
        alone = [
            Group((band,), alpha=covers and name == "alpha")
            for band, name in enumerate(names)
            if band not in rgb
        ]
        return cls((Group(rgb), *alone) if rgb else tuple(alone), tuple(nodata))

    @property
    def count(self) -> int:
        return sum(len(group.bands) for group in self.groups)

    @property
    def alpha(self) -> int | None:
        """The band that says where the others are visible."""
        return next((group.bands[0] for group in self.groups if group.alpha), None)

    @property
    def partial(self) -> bool:
        """True if some samples may be invalid: there is an alpha or a nodata value."""
        return self.alpha is not None or any(value is not None for value in self.nodata)

    def valid(
        self, samples: NDArray, bands: Sequence[int], alpha: NDArray | None = None
    ) -> NDArray[np.bool_] | None:
        """Which samples (h×w×n, of these bands) are valid; None if all are.

        Samples are invalid if they are nodata, if they are not finite in a band with a nodata value, or if
        their `alpha` (h×w) is 0. The alpha itself is always valid.
        """
        valid: NDArray[np.bool_] | None = None
        for i, band in enumerate(bands):
            nodata = self.nodata[band] if self.nodata else None
            if nodata is None:
                continue
            if valid is None:
                valid = np.ones(samples.shape, bool)
            if samples.dtype.kind == "f":
                valid[..., i] &= np.isfinite(samples[..., i])
            if not math.isnan(nodata):
                # Files write the nodata value of floats with more digits than a float has.
                mark = samples.dtype.type(nodata) if samples.dtype.kind == "f" else nodata
                valid[..., i] &= samples[..., i] != mark
        if alpha is not None:
            shown = self._shown(alpha, bands)
            valid = shown if valid is None else valid & shown
        return None if valid is None or valid.all() else valid

    def hide(self, valid: NDArray[np.bool_] | None, output: NDArray) -> NDArray[np.bool_]:
        """`valid` (None: all) without what the alpha of an output hides; the output is h×w×bands.

        Soft edges show more than the input's alpha does, so the output's own decides.
        """
        shown = self._shown(output[..., self.alpha], range(self.count))
        return shown if valid is None else valid & shown

    def _shown(self, alpha: NDArray, bands: Sequence[int]) -> NDArray[np.bool_]:
        """Which samples of these bands an alpha (h×w) shows. The alpha itself is always seen."""
        return (alpha > 0)[..., None] | (np.array(bands) == self.alpha)
