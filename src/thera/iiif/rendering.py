"""From a request to its image: of the file's own pixels, of averages of them, or of the field."""

from __future__ import annotations

import asyncio
import io
import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from operator import methodcaller
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from thera.field import Gaussian
from thera.field.grid import Axis, Box, axes
from thera.field.needed import reach
from thera.imaging.metadata import Metadata
from thera.imaging.picture import Picture, row_bands
from thera.imaging.writing import encode
from thera.tiled import TiledField
from thera.tiled.plan import frames
from thera.values.planes import Plane
from thera.warp.mappings import centres

from .blocks import Blocks
from .pictures import ServedPicture
from .reduction import reduced
from .requests import IMAGE_FORMATS, ImageRequest

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
                if _small(down, along):
                    await self._run(_reduce, plane, down, along, kappa, part)
                    continue
                field = TiledField(self.blocks.model, plane)
                if not field.is_identity(down, along):
                    needed = methodcaller("needed", down, along)
                    field = await self.blocks.field(picture.key, plane, needed)
                await self._run(_render, plane, field, down, along, part)
        return out

    async def _turned(self, picture: ServedPicture, turn: Turn, opaque: bool) -> NDArray[np.uint8]:
        """The samples of a turned image: transparent around it, or opaque and black."""
        out = np.zeros((*turn.size, (1 if picture.grey else 3) + (not opaque)), np.uint8)
        jacobian = turn.jacobian
        side = FRAME if turn.scale.max() <= 1 else FRAME // 2
        for top, left, bottom, right in frames(turn.size, side):
            points, coverage = await self._run(turn.shown, (top, left, bottom, right), picture.shape)
            if len(points):
                needed = methodcaller("needed_at", points, jacobian)
                fields = [await self.blocks.field(picture.key, plane, needed) for plane in picture.planes]
                part = out[top:bottom, left:right]
                await self._run(_render_turned, picture, fields, points, jacobian, coverage, part)
        return out


@dataclass(frozen=True)
class Turn:
    """An image of `size`: a region scaled to `upright`, mirrored if asked, and turned clockwise.

    `place` (2×3) takes a (row, column) in it to the picture before it was turned; `scale` and `corner` take
    that to the file's pixels.
    """

    size: tuple[int, int]
    upright: tuple[int, int]
    place: NDArray[np.float64]
    scale: NDArray[np.float64]
    corner: NDArray[np.float64]

    @classmethod
    def of(cls, request: ImageRequest, region: Region) -> Turn:
        upright, size = request.size[::-1], request.turned_size[::-1]
        angle = math.radians(request.angle)
        cos, sin = math.cos(angle), math.sin(angle)
        # Back by the angle, from (row, column): columns right, rows down, clockwise as one looks at it.
        linear = np.array([[cos, -sin], [sin, cos]])
        if request.mirrored:
            linear[1] = -linear[1]
        shift = np.array(upright) / 2 - linear @ (np.array(size) / 2)
        low, high = np.array(region[:2]), np.array(region[2:])
        return cls(size, upright, np.column_stack([linear, shift]), (high - low) / upright, low)

    @property
    def jacobian(self) -> NDArray[np.float64]:
        """The sides of a pixel, in the file's pixels."""
        return self.scale[:, None] * self.place[:, :2]

    def shown(self, frame: Box, shape: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """Of the pixels of a frame: where those lie in a file of `shape` that show any of it, (N, 2), and how
        much of each of them it covers, (rows, columns), by the distance of its middle from the edges."""
        at = centres(frame) @ self.place[:, :2].T + self.place[:, 2]
        inside = np.minimum(at, np.array(self.upright) - at) + 0.5
        coverage = np.clip(inside, 0, 1).prod(axis=-1).astype(np.float32)
        return np.clip(at[coverage > 0] * self.scale + self.corner, 0, shape), coverage


def _small(rows: Axis, cols: Axis) -> bool:
    """True if an output pixel covers two of the file's or more, along both axes."""
    return min(rows.step, cols.step) >= 2


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
