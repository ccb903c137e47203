"""What a page downloads: the file through the same code as `thera upscale`, with all that it carried."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from thera.errors import InvalidInput
from thera.field.psf import FilterName, page_filter
from thera.geo.files import Item, Request, prepare
from thera.geo.upscaling import RasterScaling
from thera.imaging.files import FileOptions, FileScaling
from thera.imaging.formats import format_named
from thera.imaging.sizing import TargetSize
from thera.web.gallery import Entry, Gallery


class Order(BaseModel):
    """What was asked for: a scale or a size, and how."""

    model_config = ConfigDict(extra="forbid")

    model: str
    scale: float | None = None
    width: int | None = None
    height: int | None = None
    fit: tuple[int, int] | None = None  # the height and width of a box that it fills
    filter: FilterName = "gaussian"
    sharpness: float = 1.0
    ensemble: bool = False
    format: str | None = None
    quality: int | None = None  # of formats with a quality; others have no use for it

    @property
    def target(self) -> TargetSize:
        if self.width is not None and self.height is not None:
            return TargetSize(scale=self.scale, size=(self.height, self.width), fit=self.fit)
        return TargetSize(scale=self.scale, width=self.width, height=self.height, fit=self.fit)


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
        try:
            scaling = _prepared(gallery, entry, folder, order, memory)
        except InvalidInput:  # some outputs have to be held whole: then it takes what the program does
            scaling = _prepared(gallery, entry, folder, order, None)
        done, total = 0.0, math.prod(scaling.plan.size)

        def count(pixels: float) -> None:
            nonlocal done
            done += pixels
            progress(done / total)

        scaling.run(count)
    return scaling.output


def _prepared(
    gallery: Gallery, entry: Entry, folder: Path, order: Order, memory: int | None
) -> FileScaling | RasterScaling:
    form = None if order.format is None else format_named(order.format)
    options = gallery.options(page_filter(order.filter, order.sharpness), order.ensemble, memory)
    request = Request(order.target, options, FileOptions(form, order.quality, overwrite=True))
    item = Item(entry.path, folder, f"{Path(entry.name).stem}_{order.target.label}")
    return prepare(item, gallery.model(order.model), request, entry.picture)
