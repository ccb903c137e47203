"""From a request to its image: of the file's own pixels, of averages of them, or of the field."""

from __future__ import annotations

import asyncio
import io
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from thera.field import Filter, Gaussian, HeatField
from thera.field.grid import Axis, axes, sample_axis
from thera.field.render import bands
from thera.imaging.metadata import Metadata
from thera.imaging.picture import Picture
from thera.imaging.writing import encode
from thera.values.alpha import AlphaLimits
from thera.values.planes import Plane

from .blocks import Blocks, Box
from .reduction import reduced
from .requests import IMAGE_FORMATS, Request
from .source import Source
from .turning import Turn

#: Output pixels a side of what is rendered at a time, so that blocks come and go, and bytes to do it in.
TILE, RENDER_MEMORY = 512, 64 << 20
#: ITU-R BT.601, as JPEG and most programs weigh colours into grey.
LUMA = np.array([0.299, 0.587, 0.114], np.float32)

Region = tuple[float, float, float, float]  # top, left, bottom, right, in the file's pixels
Result = TypeVar("Result")


@dataclass(frozen=True)
class View:
    """A part of a source at a size: the centres of its output pixels, and the filter they see through."""

    source: Source
    rows: Axis
    cols: Axis
    psf: Filter

    @property
    def own(self) -> bool:
        """Whether the output pixels are the file's own."""
        return all(axis.step == 1 and not np.any(axis.offset) for axis in (self.rows, self.cols))

    @property
    def small(self) -> bool:
        """Whether an output pixel covers two of the file's or more, along both axes."""
        return min(self.rows.step, self.cols.step) >= 2

    def tiles(self) -> Iterator[tuple[slice, slice, View]]:
        for top in range(0, len(self.rows), TILE):
            for left in range(0, len(self.cols), TILE):
                down, along = slice(top, top + TILE), slice(left, left + TILE)
                yield down, along, replace(self, rows=self.rows[down], cols=self.cols[along])

    def box(self, kappa: float) -> Box:
        """The cells that its output pixels are read from."""
        down, along = (
            sample_axis(axis, cells, self.psf, kappa, order=0).axis.cell
            for axis, cells in zip((self.rows, self.cols), self.source.shape, strict=True)
        )
        return int(down.min()), int(along.min()), int(down.max()) + 1, int(along.max()) + 1


class Renderer:
    """Makes images of sources. `painters` do all that is not encoding; `quality` is that of JPEG and WebP."""

    def __init__(self, blocks: Blocks, painters: Executor, quality: int) -> None:
        self.blocks, self._painters, self._quality = blocks, painters, quality

    async def image(self, source: Source, zoom: int, request: Request) -> bytes:
        """The file that answers a request for a source described as `zoom` times as large as it is."""
        left, top, width, height = (side / zoom for side in request.region)
        region = (top, left, top + height, left + width)
        view = self._view(source, region, request.size)
        if request.angle % 90 == 0:
            samples = await self._upright(view)
            samples = np.rot90(samples[:, ::-1] if request.mirrored else samples, -round(request.angle / 90))
        else:
            if view.small:
                # Turned from the picture at this size, whose field is as small.
                picture = Picture.of_channels(await self._upright(view))
                source = await self._run(Source.of, picture, (source.key, request.region, request.size))
                region = (0.0, 0.0, float(source.shape[0]), float(source.shape[1]))
            opaque = not IMAGE_FORMATS[request.format][0].alpha
            samples = await self._turned(source, Turn.of(request, region), opaque)
        return await self._run(_written, samples, request, self._quality)

    async def _run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._painters, work, *arguments)

    def _view(self, source: Source, region: Region, size: tuple[int, int]) -> View:
        width, height = size
        rows, cols = axes(source.shape, None, (height, width), region)
        psf: Filter = Gaussian()
        if max(rows.step, cols.step) <= 1:  # a published model has a filter of its own, for enlarging
            whole = [round(n / axis.step) for n, axis in zip(source.shape, (rows, cols), strict=True)]
            psf = self.blocks.model.psf(source.shape, whole)
        return View(source, rows, cols, psf)

    async def _upright(self, view: View) -> NDArray[np.uint8]:
        """The samples of a view, tile by tile: as many channels as the source has."""
        source, kappa = view.source, self.blocks.head.kappa
        out = np.empty((len(view.rows), len(view.cols), source.channels), np.uint8)
        for down, along, tile in view.tiles():
            fields: list[HeatField] = []
            box = (0, 0, *source.shape)
            if not (tile.own or tile.small):
                box = tile.box(kappa)
                fields = [await self.blocks.crop(source.key, plane, box) for plane in source.planes]
            await self._run(_paint, tile, fields, box, kappa, out[down, along])
        return out

    async def _turned(self, source: Source, turn: Turn, opaque: bool) -> NDArray[np.uint8]:
        """The samples of a turned view, with an alpha that ends where it does, or opaque and black around."""
        out = np.zeros((*turn.size, (1 if source.grey else 3) + (not opaque)), np.uint8)
        for top in range(0, turn.size[0], TILE):
            for left in range(0, turn.size[1], TILE):
                part = out[top : top + TILE, left : left + TILE]
                tile = turn.tile(top, left, *part.shape[:2])
                box = tile.box(source.shape)
                if box is not None:
                    fields = [await self.blocks.crop(source.key, plane, box) for plane in source.planes]
                    await self._run(_paint_turned, source, tile, fields, box, part)
        return out


def _paint(view: View, fields: list[HeatField], box: Box, kappa: float, out: NDArray[np.uint8]) -> None:
    """The samples of a view, of the fields of the cells of a box where it needs them."""
    rows, cols = view.rows, view.cols
    for i, plane in enumerate(view.source.planes):
        if view.own:
            values = plane.cells(rows.cell[0], cols.cell[0], rows.cell[-1] + 1, cols.cell[-1] + 1)
            plane.put(values, rows, cols, out)
        elif view.small:
            values = reduced(plane.cells, view.source.shape, rows, cols, view.psf, kappa)
            plane.put(values, rows, cols, out)
        else:
            inside = _shifted(rows, box[0]), _shifted(cols, box[1])
            values = np.empty((*out.shape[:2], 3), np.float32)
            for start, band in bands(fields[i], *inside, view.psf, (0, 0), RENDER_MEMORY):
                values[start : start + len(band)] = band
            if plane is view.source.alpha:
                plane, rows, cols = _limited(plane, rows, cols)
            plane.put(values, rows, cols, out)


def _limited(alpha: Plane, rows: Axis, cols: Axis) -> tuple[Plane, Axis, Axis]:
    """An alpha that stays empty or full where it was, around the output pixels of two axes."""
    ranges = []
    for axis, cells in zip((rows, cols), alpha.samples.shape, strict=False):
        margin = math.ceil(axis.step) + 1
        ranges.append((max(0, int(axis.cell[0]) - margin), min(cells, int(axis.cell[-1]) + 1 + margin)))
    (top, bottom), (left, right) = ranges
    around = alpha.samples[top:bottom, left:right, alpha.channels.start]
    limits = AlphaLimits(around, (len(around) / rows.step, around.shape[1] / cols.step))
    plane = Plane(alpha.samples, alpha.channels, alpha.span, limits=limits)
    return plane, _shifted(rows, top), _shifted(cols, left)


def _shifted(axis: Axis, origin: int) -> Axis:
    """An axis counted from another cell."""
    return Axis(axis.cell - origin, axis.offset, axis.step)


def _paint_turned(
    source: Source, turn: Turn, fields: list[HeatField], box: Box, out: NDArray[np.uint8]
) -> None:
    """The samples of a turned view, of the fields of the cells of a box: `HeatField.warp` where it shows."""
    coverage = turn.coverage()
    shown = coverage > 0
    at, jacobian = turn.points(box)[shown], turn.jacobian

    def seen(field: HeatField) -> NDArray[np.float32]:
        return np.clip(field.sample(at, jacobian=jacobian, memory=RENDER_MEMORY), 0, 1)

    colours, alpha = seen(fields[0]), np.ones((len(at), 1), np.float32)
    if source.grey:
        colours = colours.mean(axis=1, keepdims=True)
    if source.alpha is not None:
        around = source.alpha.cells(*box)[..., 0]
        limits = AlphaLimits(around, np.divide(around.shape, np.linalg.norm(jacobian, axis=1))).near(at)
        alpha = np.clip(seen(fields[1]).mean(axis=1), *limits)[:, None]
    covered = coverage[shown][:, None]
    if out.shape[2] == colours.shape[1]:
        values = (colours * alpha + 1 - alpha) * covered
    else:
        values = np.concatenate([colours, alpha * covered], axis=1)
    out[shown] = np.rint(values * 255)


def _written(samples: NDArray[np.uint8], request: Request, quality: int) -> bytes:
    """Samples in the quality and as the file that a request asks for."""
    form = IMAGE_FORMATS[request.format][0]
    picture = Picture.of_channels(np.ascontiguousarray(samples))
    if picture.alpha and not form.alpha:
        picture = picture.without_alpha()
    if request.quality in ("gray", "bitonal"):
        picture = _grey(picture, bitonal=request.quality == "bitonal")
    file = io.BytesIO()
    encode(file, picture.layout, Metadata(), [picture.samples], form, quality if form.lossy else None)
    return file.getvalue()


def _grey(picture: Picture, bitonal: bool) -> Picture:
    count = picture.layout.channels - picture.alpha
    grey, rest = picture.samples[..., :count], picture.samples[..., count:]
    if count == 3:
        grey = np.rint(grey @ LUMA)[..., None].astype(np.uint8)
    if bitonal:
        grey = np.where(grey < 128, np.uint8(0), np.uint8(255))
    return Picture.of_channels(np.concatenate([grey, rest], axis=2))
