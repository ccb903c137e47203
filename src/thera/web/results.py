"""What a page downloads: the file through the same code as `thera upscale`, with all that it carried."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from thera.errors import InvalidInput
from thera.field import Gaussian
from thera.field.psf import FilterName, page_filter
from thera.geo.files import Item, Job, Request, prepare
from thera.imaging.files import FileOptions
from thera.imaging.formats import format_named
from thera.imaging.sizing import Paper, TargetSize
from thera.warp.mappings import Mapping, Projective
from thera.warp.pictures import WarpedPicture, prepare_warped_picture
from thera.web.gallery import Entry, Gallery

Output = TypeVar("Output")


class Order(BaseModel):
    """What was asked for: a scale or a size, and how."""

    model_config = ConfigDict(extra="forbid")

    model: str
    scale: float | None = None
    width: int | None = None
    height: int | None = None
    fit: tuple[int, int] | None = None  # the height and width of a box that it fills
    paper: str | None = None  # that it is printed on, such as 30x20cm
    dpi: float | None = None
    filter: FilterName = "gaussian"
    sharpness: float = 1.0
    ensemble: bool = False
    format: str | None = None
    quality: int | None = None  # of formats with a quality; others have no use for it

    @property
    def target(self) -> TargetSize:
        paper = None if self.paper is None else Paper.parse(self.paper)
        rest = TargetSize(self.scale, fit=self.fit, paper=paper, dpi=self.dpi)
        if self.width is not None and self.height is not None:
            return rest._replace(size=(self.height, self.width))
        return rest._replace(width=self.width, height=self.height)


def check_order(gallery: Gallery, entry: Entry, order: Order) -> str:
    """Refuses what `thera upscale` would, before any work; gives the name of the file that it makes."""
    gallery.known(order.model)
    order.target.for_image(entry.shape)
    if order.quality is not None and not 1 <= order.quality <= 100:
        raise InvalidInput(f"A quality of {order.quality} is none: give a number from 1 to 100.")
    return _prepared(gallery, entry, gallery.folder, order, None).output.name


def write_result(
    gallery: Gallery, entry: Entry, folder: Path, order: Order, progress: Callable[[float], object]
) -> Path:
    """Writes a picture, scaled as ordered, into `folder`; gives the path of the file."""
    with gallery.room_for(entry) as memory:
        scaling = _within(memory, partial(_prepared, gallery, entry, folder, order))
        scaling.run(_shares(math.prod(scaling.plan.size), progress))
    return scaling.output


class ViewOrder(BaseModel):
    """What is seen on a page: `mapping` takes a (row, column) of an image of `size` to the picture's."""

    model_config = ConfigDict(extra="ignore")

    model: str
    mapping: tuple[tuple[float, float, float], tuple[float, float, float], tuple[float, float, float]]
    size: tuple[int, int]
    filter: FilterName = "gaussian"
    sharpness: float = 1.0


def write_view(
    gallery: Gallery, entry: Entry, folder: Path, order: ViewOrder, progress: Callable[[float], object]
) -> Path:
    """Writes what is seen as a PNG, transparent beside the picture; gives the path of the file."""
    with gallery.room_for(entry) as memory:
        warped = _within(memory, partial(_prepared_view, gallery, entry, folder, order))
        warped.run(_shares(math.prod(order.size), progress))
    return warped.output


def check_view(gallery: Gallery, entry: Entry, order: ViewOrder) -> str:
    """Refuses a view that cannot be made, before any work; gives the name of the file that it makes."""
    return _prepared_view(gallery, entry, gallery.folder, order, None).output.name


def _prepared_view(
    gallery: Gallery, entry: Entry, folder: Path, order: ViewOrder, memory: int | None
) -> WarpedPicture:
    swap = np.eye(3)[[1, 0, 2]]  # (row, column) is (y, x)
    numbers = (swap @ np.array(order.mapping) @ swap).ravel().tolist()
    options = gallery.options(page_filter(order.filter, order.sharpness) or Gaussian(), memory=memory)
    output = folder / f"{Path(entry.name).stem}_view.png"

    def view(shape: tuple[int, int]) -> tuple[tuple[int, int], Mapping]:
        return order.size, Projective(numbers, order.size, inverse=True)

    model = gallery.model(gallery.known(order.model))
    shown = entry.shown.picture()
    return prepare_warped_picture(
        entry.path, output, model, view, options, outside="transparent", picture=shown
    )


def _prepared(gallery: Gallery, entry: Entry, folder: Path, order: Order, memory: int | None) -> Job:
    form = None if order.format is None else format_named(order.format)
    options = gallery.options(page_filter(order.filter, order.sharpness), order.ensemble, memory)
    request = Request(order.target, options, FileOptions(form, order.quality, overwrite=True))
    item = Item(entry.path, folder, f"{Path(entry.name).stem}_{order.target.label}")
    model = gallery.model(order.model)
    return prepare(item, lambda: model, request, entry.picture)


def _within(memory: int, prepared: Callable[[int | None], Output]) -> Output:
    """An output that takes `memory`. Some have to be held whole: they take what the program does, by which
    orders were checked."""
    try:
        return prepared(memory)
    except InvalidInput:
        return prepared(None)


def _shares(total: float, progress: Callable[[float], object]) -> Callable[[float], None]:
    """Reports pixels that were done as the share of all of them."""
    done = 0.0

    def count(pixels: float) -> None:
        nonlocal done
        done += pixels
        progress(done / total)

    return count
