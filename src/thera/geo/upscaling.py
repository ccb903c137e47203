"""Rasters to another size: frame by frame of the output, each from the window of the input that it needs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError, InvalidInput
from thera.field import Filter
from thera.field.grid import Axis, Box
from thera.imaging.files import check_output
from thera.imaging.formats import FORMATS, Format, format_of
from thera.imaging.sizing import TargetSize
from thera.imaging.tiling import Plan, make_plan, scaled_rows
from thera.memory import default_memory
from thera.models import Model
from thera.values.alpha import AlphaLimits
from thera.values.bands import Group
from thera.values.ranges import Range, Stretch, depth_name

from .frames import TILE, Frame, fill_levels, frames
from .raster import CACHE, Raster, describe
from .reading import Reader, ranges, reading
from .writing import Place, check_room, writing

#: A frame that encodes this many times the pixels of the best one is taken if it needs less memory.
GOOD_ENOUGH = 1.05
#: The longest side of a frame, in tiles.
MOST_TILES = 8


@dataclass(frozen=True)
class RasterScaling:
    """A raster that is about to be scaled into a file: described, planned and checked."""

    model: Model
    raster: Raster
    spans: list[Range]  # what stands for 0 and 1 in each of the raster's groups
    place: Place
    output: Path
    frame: int
    memory: int
    ensemble: bool
    psf: Filter | None
    cog: bool
    strip: bool

    @property
    def size(self) -> tuple[int, int]:
        return self.place.size

    @property
    def form(self) -> Format:
        return FORMATS["tiff"]

    @property
    def depth(self) -> str:
        return depth_name(self.raster.dtype)

    @property
    def tiles(self) -> int:
        return self.plan.tiles * len(list(frames(self.size, self.frame)))

    @property
    def notes(self) -> tuple[str, ...]:
        """Which values the network saw as black and white."""
        return tuple(
            f"{group}: {span.low:g} to {span.high:g} stand for black and white"
            for group, span in zip(self.raster.groups, self.spans, strict=True)
            if not group.alpha
        )

    @property
    def plan(self) -> Plan:
        """How a frame in the middle is computed: the most that one takes."""
        top, left = (max(0, N - self.frame) // 2 for N in self.size)
        bottom, right = (min(start + self.frame, N) for start, N in zip((top, left), self.size, strict=True))
        return self._plan((top, left, bottom, right))

    def _plan(self, box: Box) -> Plan:
        """How the output pixels of a box are computed."""
        raster = self.raster
        down, along = (slice(int(axis.cell[0]), int(axis.cell[-1]) + 1) for axis in self._axes(box))
        pixels = (box[2] - box[0]) * (box[3] - box[1])
        cells = (down.stop - down.start) * (along.stop - along.start)
        # Samples and which are valid, of the frame and of its cells; floats while invalid ones are continued.
        held = 2 * (pixels + cells) * raster.count * (raster.dtype.itemsize + 1) + 64 * cells + CACHE
        return make_plan(
            self.model.info,
            raster.shape,
            self.size,
            fields=4 if self.ensemble else 1,
            psf=self.model.psf(raster.shape, self.size) if self.psf is None else self.psf,
            memory=self.memory,
            held=held,
            part=(down, along),
            good_enough=GOOD_ENOUGH,
        )

    def _axes(self, box: Box) -> list[Axis]:
        """Where the output pixels of a box lie, down and along."""
        sides = zip(self.raster.shape, self.size, box[:2], box[2:], strict=True)
        return [Axis.whole(n, N, start, stop) for n, N, start, stop in sides]

    def run(self, progress: Callable[[int], object] = lambda pixels: None) -> None:
        """Writes the output, whole or not at all."""
        with (
            reading(self.raster) as reader,
            writing(self.output, self.raster, self.place, cog=self.cog, strip=self.strip) as written,
        ):
            for box in frames(self.size, self.frame):
                frame = self._frame(reader, box, progress)
                written.write(frame.finished(), box, frame.mask)

    def _frame(self, reader: Reader, box: Box, progress: Callable[[int], object]) -> Frame:
        rows, cols = self._axes(box)
        # An output pixel is valid where the input pixel is in whose cell its centre lies.
        top, left = int(rows.cell[0]), int(cols.cell[0])
        _, valid = reader.read((top, left, int(rows.cell[-1]) + 1, int(cols.cell[-1]) + 1))
        frame = Frame(self.raster, valid[np.ix_(rows.cell - top, cols.cell - left)])
        area, groups = len(rows) * len(cols), self.raster.groups
        for i, (group, span) in enumerate(zip(groups, self.spans, strict=True)):
            part = frame.extent(group)
            if part is not None:
                down, along = part
                inner = (box[0] + down.start, box[1] + along.start, box[0] + down.stop, box[1] + along.stop)
                compute = self._alpha if group.alpha else self._values
                frame.put(group, span, compute(reader, group, span, inner), part)
            progress(area * (i + 1) // len(groups) - area * i // len(groups))
        return frame

    def _values(self, reader: Reader, group: Group, span: Range, box: Box) -> NDArray[np.float32]:
        """The pixels of a box, h×w×3."""
        plan = self._plan(box)
        source = reader.source(group, span, fill_levels(self.model))
        bands = list(scaled_rows(self.model, [source], plan, ensemble=self.ensemble, psf=self.psf))
        rows = np.concatenate([axis.centre for axis, _, _ in bands])
        # The cells at a frame's edges hold pixels of its neighbours, too.
        first = [
            int(np.searchsorted(centres, axis.centre[0] - axis.step / 2))
            for centres, axis in zip((rows, bands[0][1].centre), self._axes(box), strict=True)
        ]
        pixels = np.concatenate([values for _, _, (values,) in bands])
        return pixels[first[0] : first[0] + box[2] - box[0], first[1] : first[1] + box[3] - box[1]]

    def _alpha(self, reader: Reader, group: Group, span: Range, box: Box) -> NDArray[np.float32]:
        """An alpha stays within what it is around each pixel, and costs nothing where that is one value."""
        plan = self._plan(box)
        rows, cols = self._axes(box)
        around = plan.reach + 1
        top, left = (max(0, cuts[0] - around) for cuts in (plan.rows, plan.cols))
        bottom, right = (
            min(n, cuts[-1] + around)
            for n, cuts in zip(self.raster.shape, (plan.rows, plan.cols), strict=True)
        )
        samples, _ = reader.read((top, left, bottom, right), group.bands)
        alpha = span.normalise(samples[..., 0])
        if alpha.min() == alpha.max():
            return np.broadcast_to(alpha[:1, :1, None], (len(rows), len(cols), 3))
        inside = (Axis(a.cell - low, a.offset, a.step) for a, low in ((rows, top), (cols, left)))
        size = [n / axis.step for n, axis in zip(alpha.shape, (rows, cols), strict=True)]
        low, high = AlphaLimits(alpha, size).at(*inside)
        return np.clip(self._values(reader, group, span, box), low[..., None], high[..., None])


def prepare_raster(
    source: Path,
    output: Path,
    model: Model,
    wish: TargetSize,
    *,
    stretch: Stretch | None = None,
    ensemble: bool = False,
    psf: Filter | None = None,
    memory: int | None = None,
    overwrite: bool = False,
    strip: bool = False,
    alpha: Literal["cover", "data"] = "cover",
    cog: bool = False,
) -> RasterScaling:
    """Describes `source` and checks all that scaling it to the GeoTIFF `output` needs.

    `stretch`: which values stand for 0 and 1; what `Stretch.usual` says of the sample type unless given.
    `alpha`: whether an alpha band says where the others are valid, or is a band like them.
    `strip`: leave tags behind; the place on the ground, nodata and the bands' names are kept all the same.
    """
    check_raster_output(source, output, overwrite)
    raster = replace(describe(source), covers=alpha == "cover")
    size = wish.for_image(raster.shape)
    check_room(output, raster.count * raster.dtype.itemsize, size, cog)
    scaling = RasterScaling(
        model=model,
        raster=raster,
        spans=[],
        place=Place.scaled(raster, size),
        output=output,
        frame=TILE,
        memory=default_memory() if memory is None else memory,
        ensemble=ensemble,
        psf=psf,
        cog=cog,
        strip=strip,
    )
    scaling = replace(scaling, frame=_best_frame(scaling))
    return replace(scaling, spans=ranges(raster, stretch or Stretch.usual(raster.dtype)))


def check_raster_output(source: Path, output: Path, overwrite: bool) -> None:
    if format_of(output) is not FORMATS["tiff"]:
        raise ImageFileError(f"A raster is written as GeoTIFF: end the output {output.name!r} in .tif.")
    check_output(source, output, overwrite)


def _best_frame(scaling: RasterScaling) -> int:
    """The side of the frames that makes the least overlap within the memory there is."""
    plans: dict[int, Plan] = {}
    for tiles in range(1, MOST_TILES + 1):
        try:
            plans[tiles * TILE] = replace(scaling, frame=tiles * TILE).plan
        except InvalidInput:
            if not plans:
                raise
            break
        if tiles * TILE >= max(scaling.size):
            break
    best = min(plan.overlap for plan in plans.values())
    frugal = (side for side, plan in plans.items() if plan.overlap <= GOOD_ENOUGH * best)
    return min(frugal, key=lambda side: plans[side].memory)
