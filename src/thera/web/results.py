"""What a page downloads: the file through the same code as `thera upscale`, with all that it carried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from thera.errors import InvalidInput
from thera.field import Filter
from thera.imaging.files import holds, prepare_file
from thera.imaging.filters import filter_of
from thera.imaging.formats import FORMATS, format_named
from thera.imaging.picture import Picture
from thera.imaging.sizing import TargetSize
from thera.models import Model

FilterName = Literal["gaussian", "box", "butterworth", "ideal", "none"]


def look(filter: FilterName, sharpness: float) -> Filter | None:
    """The filter that a page's words mean; None is the model's own, a Gaussian without seams."""
    return filter_of(None if filter == "gaussian" else filter, sharpness)


class Order(BaseModel):
    """What was asked for: a scale or a size, and how."""

    model_config = ConfigDict(extra="forbid")

    model: str
    scale: float | None = None
    width: int | None = None
    height: int | None = None
    filter: FilterName = "gaussian"
    sharpness: float = 1.0
    ensemble: bool = False
    format: str | None = None
    quality: int | None = None  # of JPEG, WebP and AVIF; as in the program, others have no use for it

    @property
    def wish(self) -> TargetSize:
        if self.width is not None and self.height is not None:
            return TargetSize(scale=self.scale, size=(self.height, self.width))
        return TargetSize(scale=self.scale, width=self.width, height=self.height)

    def check(self, shape: tuple[int, int]) -> None:
        """Refuses what `thera upscale` would of a picture of `shape`, before any work."""
        self.wish.for_image(shape)
        if self.quality is not None and not 1 <= self.quality <= 100:
            raise InvalidInput(f"A quality of {self.quality} is none: give a number from 1 to 100.")

    @property
    def label(self) -> str:
        """What the file's name says: x2.5, 1920x1080, w1920, h1080."""
        if self.scale is not None:
            return f"x{self.scale:g}"
        if self.width is not None and self.height is not None:
            return f"{self.width}x{self.height}"
        return f"w{self.width}" if self.width is not None else f"h{self.height}"


def scale_file(
    source: Path, name: str, folder: Path, model: Model, order: Order, progress: Callable[[float], object]
) -> Path:
    """Scales `source`, which its owner calls `name`, into `folder`; gives the path of the result."""
    form = None if order.format is None else format_named(order.format)
    suffix = Path(name).suffix

    def output(picture: Picture) -> Path:
        """The input's own ending if its format holds the picture as it is, else PNG's or TIFF's."""
        ending = ".png" if holds(FORMATS["png"], picture) else ".tif"
        for each in FORMATS.values():
            if suffix.lower() in each.suffixes and holds(each, picture):
                ending = suffix
        return folder / f"{Path(name).stem}_{order.label}{form.suffix if form else ending}"

    job = prepare_file(
        source,
        output,
        model,
        order.wish,
        form=form,
        quality=order.quality,
        ensemble=order.ensemble,
        psf=look(order.filter, order.sharpness),
        overwrite=True,
    )
    total, done = job.scaling.layout.height * job.scaling.layout.width, 0

    def count(pixels: int) -> None:
        nonlocal done
        done += pixels
        progress(done / total)

    job.run(count)
    return job.output
