"""From a group of bands to what a network sees, three colours in [0, 1], and back to samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.field.grid import Axis, Box, window_around
from thera.values.alpha import extreme, fill_invalid
from thera.values.bands import Bands, Group
from thera.values.consistency import AROUND, cubic_slack, with_means
from thera.values.places import AtPoints, OnAxes, Places
from thera.values.ranges import MARGIN, NOT_FINITE, Range
from thera.values.samples import Samples
from thera.values.transfer import WHITE, recoded


class Codes(NamedTuple):
    """The transfer functions of a picture's samples, of what a network is shown, and of what is written."""

    stored: int
    shown: int
    written: int


#: Rows of cells whose means are looked at together.
AGREE_ROWS = 64


@dataclass(frozen=True)
class Plane:
    """A group of bands as the source of a `TiledField`: cells are h×w×3 floats in [0, 1].

    `span` holds the sample values that become 0 and 1. Samples may lie beyond them. A network knows no such
    values and would spread them, so the excess is interpolated separately and added to the result.

    Invalid samples within about `reach` of valid ones are filled in from these. Filling works in blocks of
    side 2 to the power of `levels`, so it is the same for every window. Farther away, hidden samples stay as
    they are, and nodata becomes the middle of `span`.
    """

    samples: Samples
    group: Group
    span: Range
    reach: int
    has_nodata: bool = False
    codes: Codes | None = None  # None: the network is shown samples as they are

    @property
    def keeps_flat(self) -> bool:
        """True for pictures, whose flat colours must not change by a level. In other data none would show."""
        return not self.group.alpha and Range.of_type(self.samples.dtype) == self.span

    @property
    def levels(self) -> int:
        return fill_levels(self.reach)

    @property
    def shape(self) -> tuple[int, int]:
        return self.samples.shape

    def cells(self, box: Box) -> NDArray[np.float32]:
        """The pixels of a window as the network sees them."""
        samples, valid = self.samples.read(box, self.group.bands)
        if valid is None:
            values = self.span.normalise(samples)
        else:
            wide = self._around(box)
            samples, valid = self.samples.read(wide, self.group.bands)
            values = self.span.normalise(samples)
            if valid is not None:
                keep = np.isfinite(values) & (not self.has_nodata)
                far = np.where(keep, values, np.float32(0.5))
                values = fill_invalid(np.where(valid, values, np.float32(0)), valid, self.levels, far)
            top, left = box[0] - wide[0], box[1] - wide[1]
            values = values[top : top + box[2] - box[0], left : left + box[3] - box[1]]
        values = self._shown(values)
        if self._exceeds:
            values = np.clip(values, 0, 1)
        if self.group.inks:
            values = 1 - values
        return values if values.shape[2] == 3 else np.repeat(values, 3, axis=2)

    def _shown(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Normalised samples as the network is shown them."""
        return values if self.codes is None else recoded(values, self.codes.stored, self.codes.shown)

    @property
    def _exceeds(self) -> bool:
        """True if samples may lie beyond what the network is shown."""
        if self.codes is not None and self.codes.stored in WHITE and self.codes.stored != self.codes.shown:
            return True  # lights are brighter than white paper
        return not self.group.alpha and Range.of_type(self.samples.dtype) != self.span

    def _excess(self, box: Box) -> NDArray[np.float32] | None:
        """What exceeds black and white in a window as shown to the network, h×w×n; None if nothing does."""
        if not self._exceeds:
            return None
        samples, valid = self.samples.read(box, self.group.bands)
        values = self.span.normalise(samples if valid is None else np.where(valid, samples, self.span.low))
        values = self._shown(values)
        excess = values - np.clip(values, 0, 1)
        if not np.isfinite(excess).all():
            raise InvalidInput(NOT_FINITE)
        return excess if excess.any() else None

    def reaching(self, cells: int) -> Plane:
        """The same plane, with invalid samples filled in as far as a filter reaches."""
        return replace(self, reach=max(self.reach, cells))

    def _around(self, box: Box) -> Box:
        """The window that invalid samples of a box are filled in from: three blocks more on each side."""
        block = 2**self.levels
        top, left = (max(0, low // block - 3) * block for low in box[:2])
        bottom, right = (
            min(n, (-(-high // block) + 3) * block) for n, high in zip(self.shape, box[2:], strict=True)
        )
        return top, left, bottom, right

    def constant(self, box: Box) -> NDArray | None:
        """The alpha of a window if it is the same everywhere; None if not, or if the group is no alpha."""
        if not self.group.alpha:
            return None
        alpha = self.samples.read(box, self.group.bands)[0]
        return alpha[0, 0, 0] if alpha.min() == alpha.max() else None

    def put(self, values: NDArray[np.float32], rows: Axis, cols: Axis, out: NDArray) -> None:
        """Stores n×W'×3 values in the group's bands of `out`, n×W'×bands samples at these output pixels."""
        self._put(values, OnAxes(rows, cols), out)

    def put_at(
        self, values: NDArray[np.float32], points: NDArray[np.float64], footprint: float, out: NDArray
    ) -> None:
        """Stores N×3 values in the group's bands of `out`, N×bands samples at points (N, 2).

        `footprint`: the size of the largest output pixel among them, in input pixels.
        """
        self._put(values, AtPoints(points, footprint), out)

    def _put(self, values: NDArray[np.float32], places: Places, out: NDArray) -> None:
        limits = None
        values = _merged(values, len(self.group.bands))
        if self.group.alpha:
            box = self.alpha_window(places.cells, places.steps)
            alpha = self.samples.read(box, self.group.bands)[0][..., 0]
            limits = places.limits(alpha, box)
        elif (self._exceeds or self.span.local) and values.size:
            box = self.alpha_window(places.cells, places.steps)
            excess = self._excess(box)
            if excess is not None:
                values = values + self._light(places.interpolated(excess, box))
            if self.span.local:
                values = self._near(values, places, box, excess)
        self.store(values, out, limits)

    def _light(self, excess: NDArray[np.float32]) -> NDArray[np.float32]:
        """What is added to the network's values: more ink is less light."""
        return -excess if self.group.inks else excess

    def _near(
        self,
        values: NDArray[np.float32],
        places: Places,
        box: Box,
        excess: NDArray[np.float32] | None,
    ) -> NDArray[np.float32]:
        """Values limited to the range of the cells around them, plus a margin, read from the window `box`."""
        seen = self._with_excess(box, excess)
        reach = tuple(max(1, round(step / 2)) for step in places.steps)
        at = tuple(
            np.clip(cell - start, 0, n - 1)
            for cell, start, n in zip(places.cells, box[:2], seen.shape[:2], strict=True)
        )
        low, high = (extreme(seen, reach, pick)[at] for pick in (np.minimum, np.maximum))
        margin = MARGIN * (high - low)
        return np.clip(values, low - margin, high + margin)

    def _with_excess(self, box: Box, excess: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """The cells of a window, h×w×n, with what exceeds the span."""
        seen = self.cells(box)[..., : len(self.group.bands)]
        return seen if excess is None else seen + self._light(excess)

    def agree(self, out: NDArray, box: Box, exact: bool) -> None:
        """Moves the output pixels in each cell of a box so that their mean is the cell's own sample.

        Unless it has to be `exact`, a mean may differ as much as those of cubic interpolation do around it,
        and pictures are left as they are. `out`: whole cells, all pixels of the box, of all bands.
        """
        if self.group.alpha or not (exact or (self.span.local and self.codes is None)):
            return
        side = out.shape[0] // (box[2] - box[0])
        for top in range(box[0], box[2], AGREE_ROWS):
            part = top, box[1], min(top + AGREE_ROWS, box[2]), box[3]
            self._agree(out[(top - box[0]) * side : (part[2] - box[0]) * side], part, exact)

    def _agree(self, out: NDArray, box: Box, exact: bool) -> None:
        top, left, bottom, right = box
        bands, slack = list(self.group.bands), None
        if not exact:
            H, W = self.shape
            above, below = min(AROUND, top), min(AROUND, H - bottom)
            ahead, behind = min(AROUND, left), min(AROUND, W - right)
            wide = top - above, left - ahead, bottom + below, right + behind
            edges = (AROUND - above, AROUND - below), (AROUND - ahead, AROUND - behind), (0, 0)
            seen = np.pad(self._with_excess(wide, self._excess(wide)), edges, mode="edge")
            factors = out.shape[0] // (bottom - top), out.shape[1] // (right - left)
            slack = cubic_slack(seen, factors) * (self.span.high - self.span.low)
        given, valid = self.samples.read(box, bands)
        before = out[..., bands]
        agreed = with_means(before, given, slack)
        if valid is not None and not valid.all():
            # Nodata and samples that alpha hides are no values to agree with.
            for axis, n in enumerate(before.shape[:2]):
                valid = np.repeat(valid, n // valid.shape[axis], axis)
            agreed = np.where(valid, agreed, before)
        out[..., bands] = agreed

    def alpha_window(self, cells: Sequence[NDArray[np.int64]], steps: Sequence[float]) -> Box:
        """The window that decides about alpha and excess of output pixels in these rows and columns."""
        return window_around(cells, [math.ceil(step) + 1 for step in steps], self.shape)

    def store(
        self, values: NDArray[np.float32], out: NDArray, limits: tuple[NDArray, NDArray] | None = None
    ) -> None:
        """Stores …×3 or …×n values in the group's n bands of `out`. `limits`: lowest and highest samples."""
        bands = self.group.bands
        values = _merged(values, len(bands))
        if self.codes is not None:
            values = recoded(values, self.codes.shown, self.codes.written)
        if self.group.inks:
            values = 1 - values
        if limits is not None:
            low, high = (self.span.normalise(limit) for limit in limits)
            values = np.clip(values, low[..., None], high[..., None])
        # If the output has another type than the input, the span becomes the whole range of that type. Floats
        # stay the same numbers.
        same = out.dtype == self.samples.dtype or out.dtype.kind == self.samples.dtype.kind == "f"
        span = self.span if same else Range.of(np.zeros(1, out.dtype))
        samples = span.restore(values, out.dtype)
        for i, band in enumerate(bands):
            out[..., band] = samples[..., i]


def _merged(values: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The three colours of a network as `count` bands: one band is their mean."""
    if values.shape[-1] == count:
        return values
    # Eight times as fast as `mean` over the last axis.
    return ((values[..., 0] + values[..., 1] + values[..., 2]) / np.float32(3))[..., None]


def with_codes(planes: Sequence[Plane], codes: Codes) -> list[Plane]:
    """Planes whose colours have these transfer functions. Inks and alpha have none."""
    return [p if p.group.alpha or p.group.inks else replace(p, codes=codes) for p in planes]


def fill_levels(halo: int) -> int:
    """How often to halve a picture until one cell is as wide as `halo`, but at least once."""
    return max(1, (halo - 1).bit_length())


def fill_reach(halo: int) -> int:
    """How far around a window samples are read, at most, to fill in its invalid ones."""
    return 4 * 2 ** fill_levels(halo) - 1  # to the edge of a block, and three blocks more


def planes_of(samples: Samples, bands: Bands, spans: Sequence[Range], halo: int) -> list[Plane]:
    """One plane per group, colours before alpha. `halo`: how far the network sees."""
    nodata = any(value is not None for value in bands.nodata)
    return [
        Plane(samples, group, span, halo, nodata) for group, span in zip(bands.groups, spans, strict=True)
    ]
