"""Windows of a raster: its samples with what is valid of them, and its bands as a network sees them."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError
from thera.field.grid import Box
from thera.imaging.tiling import Source
from thera.values.alpha import continued
from thera.values.bands import Group
from thera.values.ranges import Percentiles, Range, Stretch, type_range

from .raster import Raster, gdal, opened, sentence
from .upright import stored, upright


@contextmanager
def reading(raster: Raster) -> Iterator["Reader"]:
    """The raster's file, open."""
    with gdal(), opened(raster.path) as dataset:
        yield Reader(raster, dataset)


def ranges(raster: Raster, stretch: Stretch) -> list[Range]:
    """The values that stand for 0 and 1 in each group of bands, from as many passes as they take."""
    whole = type_range(raster.dtype)
    groups = raster.groups
    if stretch.kind == "given":
        return [whole if group.alpha else Range(stretch.low, stretch.high) for group in groups]
    if stretch.kind == "dtype":
        return [whole] * len(groups)
    wanted = [Percentiles(raster.dtype, (stretch.low, stretch.high)) for _ in groups]
    with reading(raster) as reader:
        for _ in range(wanted[0].passes):
            for box in raster.windows():
                samples, valid = reader.read(box)
                for group, percentiles in zip(groups, wanted, strict=True):
                    index = [band - 1 for band in group.bands]
                    percentiles.count(samples[..., index][valid[..., index]])
            for percentiles in wanted:
                percentiles.narrow()
    return [
        whole if group.alpha or not percentiles.total else _not_empty(*percentiles.values)
        for group, percentiles in zip(groups, wanted, strict=True)
    ]


def _not_empty(low: float, high: float) -> Range:
    return Range(low, high if high > low else low + 1.0)


class Reader:
    """A raster that is open."""

    def __init__(self, raster: Raster, dataset: Any) -> None:
        self.raster = raster
        self._dataset = dataset

    def read(self, box: Box, bands: tuple[int, ...] | None = None) -> tuple[NDArray, NDArray[np.bool_]]:
        """Samples h×w×n of a window, and which of them are valid.

        Nodata is not, nor what is no finite number, nor what the raster's mask hides or its alpha, where it
        is 0; the alpha itself always is.
        """
        bands = bands or tuple(range(1, self.raster.count + 1))
        samples = np.moveaxis(self._read(box, list(bands)), 0, -1)
        valid = np.isfinite(samples) if samples.dtype.kind == "f" else np.ones(samples.shape, bool)
        for i, band in enumerate(bands):
            nodata = self.raster.nodata[band - 1]
            if nodata is not None and not math.isnan(nodata):
                # A float's nodata is written with more digits than it has.
                mark = samples.dtype.type(nodata) if samples.dtype.kind == "f" else nodata
                valid[..., i] &= samples[..., i] != mark
        shown = self._shown(box)
        if shown is not None:
            valid &= shown[..., None] | (np.array(bands) == self.raster.alpha)
        return samples, valid

    def _shown(self, box: Box) -> NDArray[np.bool_] | None:
        """Where the mask or the alpha shows anything."""
        if self.raster.alpha is not None:
            return self._read(box, [self.raster.alpha])[0] > 0
        if self.raster.masked:
            return self._window(self._dataset.read_masks, box, 1) > 0
        return None

    def _read(self, box: Box, bands: list[int]) -> NDArray:
        return self._window(self._dataset.read, box, bands)

    def _window(self, read: Any, box: Box, bands: int | list[int]) -> NDArray:
        import rasterio

        orientation = self.raster.orientation
        top, left, bottom, right = stored(box, self.raster.shape, orientation)
        try:
            samples: NDArray = read(bands, window=((top, bottom), (left, right)))
        except rasterio.errors.RasterioError as error:
            raise ImageFileError(
                f"{self.raster.path} is damaged or cut short ({sentence(error)})."
            ) from error
        return upright(samples, orientation)

    def source(self, group: Group, span: Range, levels: int) -> Source:
        """The cells of a group, h×w×3 floats, `span` at 0 and 1, continued where they are not valid.

        What stands in for an invalid cell depends on the cells around it, out to three blocks of 2 to the
        power of `levels`, and on nothing else: not on the window it is read in.
        """
        H, W = self.raster.shape
        block = 2**levels

        def cells(top: int, left: int, bottom: int, right: int) -> NDArray[np.float32]:
            samples, valid = self.read((top, left, bottom, right), group.bands)
            part = slice(None), slice(None)
            if not valid.all():
                above, before = (max(0, low // block - 3) * block for low in (top, left))
                below, behind = (
                    min(n, (-(-high // block) + 3) * block) for n, high in ((H, bottom), (W, right))
                )
                samples, valid = self.read((above, before, below, behind), group.bands)
                part = slice(top - above, bottom - above), slice(left - before, right - before)
            values = span.normalise(np.where(valid, samples, samples.dtype.type(0)))
            values = continued(values, valid, levels)[part]
            return values if values.shape[2] == 3 else np.repeat(values, 3, axis=2)

        return cells
