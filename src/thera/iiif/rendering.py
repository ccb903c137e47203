"""From a request to its image: of the file's own pixels, of averages of them, or of the field."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from thera.field import Gaussian
from thera.field.grid import Axis, axes
from thera.field.needed import reach
from thera.imaging.metadata import Metadata
from thera.imaging.picture import Picture, row_bands
from thera.imaging.writing import encode
from thera.tiled import TiledField
from thera.tiled.plan import frames
from thera.values.planes import Plane

from .blocks import Blocks
from .pictures import ServedPicture
from .reduction import reduced
from .requests import IMAGE_FORMATS, ImageRequest
from .turning import Turn

#: Side of what is rendered at a time, in output pixels; half of it where these cover more than one cell.
FRAME = 512
#: ITU-R BT.601, as JPEG and most programs weigh colours into grey.
LUMA = np.array([0.299, 0.587, 0.114], np.float32)

Region = tuple[float, float, float, float]  # top, left, bottom, right, in the file's pixels
Result = TypeVar("Result")


class Renderer:
    """Makes images of pictures. `painters` do all that is not encoding; `quality` is of JPEG and WebP."""

    def __init__(self, blocks: Blocks, painters: Executor, quality: int) -> None:
        self.blocks, self._painters, self._quality = blocks, painters, quality

    async def image(self, picture: ServedPicture, zoom: int, request: ImageRequest) -> bytes:
        """The file that answers a request for a picture described as `zoom` times as large as it is."""
        left, top, width, height = (side / zoom for side in request.region)
        region = (top, left, top + height, left + width)
        rows, cols = axes(picture.shape, None, request.size[::-1], region)
        if request.angle % 90 == 0:
            samples = await self._upright(picture, rows, cols)
            samples = np.rot90(samples[:, ::-1] if request.mirrored else samples, -round(request.angle / 90))
        else:
            if _small(rows, cols):
                # Turned from the picture at this size, whose field is as small.
                reduced_picture = Picture.of_channels(await self._upright(picture, rows, cols))
                key = (picture.key, region, request.size)  # in the file's own pixels, whatever the zoom
                picture = ServedPicture.of(reduced_picture, key, self.blocks.model.info.halo)
                region = (0.0, 0.0, float(picture.shape[0]), float(picture.shape[1]))
            opaque = not IMAGE_FORMATS[request.format][0].alpha
            samples = await self._turned(picture, Turn.of(request, region), opaque)
        return await self._run(_written, samples, request, self._quality)

    async def _run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._painters, work, *arguments)

    async def _upright(self, picture: ServedPicture, rows: Axis, cols: Axis) -> NDArray[np.uint8]:
        """The samples at the output pixels of two axes, some of them at a time."""
        out = picture.empty(len(rows), len(cols))
        side = FRAME if max(rows.step, cols.step) <= 1 else FRAME // 2
        kappa = self.blocks.model.info.kappa
        for top, left, bottom, right in frames((len(rows), len(cols)), side):
            part, down, along = out[top:bottom, left:right], rows[top:bottom], cols[left:right]
            for plane in picture.planes:
                if _own(down, along):
                    await self._run(_copy, plane, down, along, part)
                elif _small(down, along):
                    await self._run(_reduce, plane, down, along, kappa, part)
                else:
                    field = await self._field(picture, plane, down, along)
                    await self._run(_render, plane, field, down, along, part)
        return out

    async def _field(self, picture: ServedPicture, plane: Plane, rows: Axis, cols: Axis) -> TiledField:
        return await self.blocks.field(picture.key, plane, lambda field: field.needed(rows, cols))

    async def _turned(self, picture: ServedPicture, turn: Turn, opaque: bool) -> NDArray[np.uint8]:
        """The samples of a turned image: transparent around it, or opaque and black."""
        out = np.zeros((*turn.size, (1 if picture.grey else 3) + (not opaque)), np.uint8)
        jacobian = turn.jacobian
        side = FRAME if turn.scale.max() <= 1 else FRAME // 2
        for top, left, bottom, right in frames(turn.size, side):
            points, coverage = await self._run(turn.shown, (top, left, bottom, right), picture.shape)
            if len(points):
                fields = [await self._field_at(picture, plane, points, jacobian) for plane in picture.planes]
                part = out[top:bottom, left:right]
                await self._run(_render_turned, picture, fields, points, jacobian, coverage, part)
        return out

    async def _field_at(
        self,
        picture: ServedPicture,
        plane: Plane,
        points: NDArray[np.float64],
        jacobian: NDArray[np.float64],
    ) -> TiledField:
        return await self.blocks.field(picture.key, plane, lambda field: field.needed_at(points, jacobian))


def _own(rows: Axis, cols: Axis) -> bool:
    """True if the output pixels are the file's own."""
    return all(axis.step == 1 and not np.any(axis.offset) for axis in (rows, cols))


def _small(rows: Axis, cols: Axis) -> bool:
    """True if an output pixel covers two of the file's or more, along both axes."""
    return min(rows.step, cols.step) >= 2


def _copy(plane: Plane, rows: Axis, cols: Axis, out: NDArray[np.uint8]) -> None:
    box = int(rows.cell[0]), int(cols.cell[0]), int(rows.cell[-1]) + 1, int(cols.cell[-1]) + 1
    plane.store(plane.cells(box), out)


def _reduce(plane: Plane, rows: Axis, cols: Axis, kappa: float, out: NDArray[np.uint8]) -> None:
    beyond = reach(Gaussian(), (rows.step, cols.step), kappa)
    plane.store(reduced(plane.reaching(beyond), rows, cols, kappa), out)


def _render(plane: Plane, field: TiledField, rows: Axis, cols: Axis, out: NDArray[np.uint8]) -> None:
    plane.put(field.render(rows, cols), rows, cols, out)


def _render_turned(
    picture: ServedPicture,
    fields: list[TiledField],
    points: NDArray[np.float64],
    jacobian: NDArray[np.float64],
    coverage: NDArray[np.float32],
    out: NDArray[np.uint8],
) -> None:
    """The samples of a turned image at points, which are where `coverage` is not 0."""
    samples = picture.empty(len(points))
    for plane, field in zip(picture.planes, fields, strict=True):
        footprint = float(np.linalg.norm(jacobian, axis=0).max())
        plane.put_at(field.sample(points, jacobian), points, footprint, samples)
    shown = coverage > 0
    covered = coverage[shown][:, None]
    colours = samples[:, : 1 if picture.grey else 3]
    alpha = samples[:, -1:] / np.float32(255) if picture.alpha else np.ones_like(covered)
    if out.shape[2] == colours.shape[1]:
        values = (colours * alpha + 255 * (1 - alpha)) * covered
    else:
        values = np.concatenate([colours, 255 * alpha * covered], axis=1)
    out[shown] = np.rint(values)


def _written(samples: NDArray[np.uint8], request: ImageRequest, quality: int) -> bytes:
    """Samples in the quality and as the file that a request asks for."""
    form = IMAGE_FORMATS[request.format][0]

    def finished(rows: slice) -> Picture:
        picture = Picture.of_channels(np.ascontiguousarray(samples[rows]))
        if picture.alpha and not form.alpha:
            picture = picture.without_alpha()
        if request.quality in ("gray", "bitonal"):
            picture = _grey(picture, bitonal=request.quality == "bitonal")
        return picture

    file = io.BytesIO()
    layout = replace(finished(slice(0, 1)).layout, height=len(samples))
    bands = (finished(rows).samples for rows in row_bands(samples))
    encode(file, layout, Metadata(), bands, form, quality if form.lossy else None)
    return file.getvalue()


def _grey(picture: Picture, bitonal: bool) -> Picture:
    count = picture.layout.channels - picture.alpha
    grey, rest = picture.samples[..., :count], picture.samples[..., count:]
    if count == 3:
        grey = np.rint(grey @ LUMA)[..., None].astype(np.uint8)
    if bitonal:
        grey = np.where(grey < 128, np.uint8(0), np.uint8(255))
    return Picture.of_channels(np.concatenate([grey, rest], axis=2))
