"""What can be asked of a raster: which part of it is scaled, and how it is read and written."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thera.errors import InvalidInput
from thera.imaging.sizing import TargetSize
from thera.values.ranges import Stretch

from .raster import Raster


class Choice(NamedTuple):
    """Which part of a raster is scaled.

    `bands`: groups of the bands to write, counted from 0: one band, or three that are scaled as a colour.
    `bounds`: west, south, east, north in the units of the raster's coordinate system.
    `resolution`: the side of output pixels in these units, instead of a target size.
    """

    bands: tuple[tuple[int, ...], ...] | None = None
    bounds: tuple[float, ...] | None = None
    resolution: float | None = None

    @staticmethod
    def parse_bands(text: str) -> tuple[tuple[int, ...], ...]:
        """Groups of bands, from text that counts from 1: commas within a colour, + between groups.

        >>> Choice.parse_bands("4,3,2+8")
        ((3, 2, 1), (7,))
        """
        try:
            groups = tuple(tuple(int(word) - 1 for word in part.split(",")) for part in text.split("+"))
        except ValueError:
            groups = ()
        every = [band for group in groups for band in group]
        if not groups or not {len(group) for group in groups} <= {1, 3} or min(every) < 0:
            raise InvalidInput(
                f"{text!r} are no bands: write their numbers from 1, with + between them, and three that are"
                " a colour with commas, like 4,3,2+8."
            )
        if len(set(every)) < len(every):
            raise InvalidInput(f"{text!r} has a band twice: write each once.")
        return groups

    def size(self, raster: Raster, target: TargetSize) -> tuple[int, int]:
        """The (height, width) of the whole raster at that resolution, or as `target` says."""
        if self.resolution is None:
            return target.for_image(raster.shape)
        if not (math.isfinite(self.resolution) and self.resolution > 0):
            raise InvalidInput(f"A resolution of {self.resolution:g} makes no raster: give a number above 0.")
        check_placed(raster, "--resolution")
        a, b, _, d, e, _ = tuple(raster.transform)[:6]
        lengths = np.multiply(raster.shape, (math.hypot(b, e), math.hypot(a, d)))
        size = [max(1, round(length / self.resolution)) for length in lengths.tolist()]
        return TargetSize(size=size).for_image(raster.shape)


ALL = Choice()


def check_placed(raster: Raster, option: str) -> None:
    """Refuses a raster without a geotransform."""
    if raster.transform.is_identity:
        raise InvalidInput(f"{option} needs a geotransform, and {raster.path} has none: leave it out.")


@dataclass(frozen=True)
class RasterOptions:
    """How rasters are read and written.

    `stretch`: how to choose the values for 0 and 1; by default `Stretch.usual` of the sample type.
    `alpha`: "cover" if an alpha band says where the others are valid, "data" if it is an ordinary band.
    `strip`: drop the tags, but not the georeference, nodata and the bands' names.
    `resume`: keep finished frames beside the output until it is complete, and go on where a run ended.
    """

    stretch: Stretch | None = None
    cog: bool = False
    overwrite: bool = False
    strip: bool = False
    alpha: Literal["cover", "data"] = "cover"
    choice: Choice = ALL
    resume: bool = False
