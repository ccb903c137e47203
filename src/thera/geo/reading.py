"""Windows of a raster: its samples, and which of them are valid."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError
from thera.field.grid import Box
from thera.imaging.metadata import FROM_BOTTOM, FROM_RIGHT, SIDEWAYS
from thera.imaging.picture import turned
from thera.imaging.quiet import quiet
from thera.values.ranges import Range, Stretch
from thera.values.survey import Window, find_ranges

from .raster import Raster, environment, first_line, gdal, opened


@contextmanager
def open_reader(raster: Raster) -> Iterator["Reader"]:
    """A reader of the raster's file."""
    with gdal(), opened(raster.path) as dataset:
        yield Reader(raster, dataset)


def ranges(raster: Raster, stretch: Stretch | None) -> list[Range]:
    """The range of each group of bands; None stands for the usual stretch of the sample type."""

    def windows() -> Iterator[Window]:
        every = range(raster.count)
        with open_reader(raster) as reader:
            for box in raster.windows():
                yield reader.read(box, every)

    return find_ranges(raster.bands, raster.dtype, stretch or Stretch.usual(raster.dtype), windows)


def stored(box: Box, shape: tuple[int, int], orientation: int) -> Box:
    """The box in the file that holds the box (top, left, bottom, right) of an upright raster of `shape`.

    >>> stored((0, 0, 2, 5), (48, 40), 6)
    (35, 0, 40, 2)
    """
    top, left, bottom, right = box
    if orientation in FROM_BOTTOM:
        top, bottom = shape[0] - bottom, shape[0] - top
    if orientation in FROM_RIGHT:
        left, right = shape[1] - right, shape[1] - left
    return (left, top, right, bottom) if orientation in SIDEWAYS else (top, left, bottom, right)


class Ahead:
    """`Samples` of a raster: a window that was read before, and what lies beyond it from the reader."""

    def __init__(
        self, reader: "Reader", window: Box, samples: NDArray, valid: NDArray[np.bool_] | None
    ) -> None:
        self.shape, self.dtype = reader.shape, reader.dtype
        self._reader, self._window, self._samples, self._valid = reader, window, samples, valid

    def read(self, box: Box, bands: Sequence[int]) -> Window:
        top, left = box[0] - self._window[0], box[1] - self._window[1]
        if min(top, left) < 0 or box[2] > self._window[2] or box[3] > self._window[3]:
            return self._reader.read(box, bands)
        part = slice(top, top + box[2] - box[0]), slice(left, left + box[3] - box[1]), list(bands)
        valid = None if self._valid is None else self._valid[part]
        return self._samples[part], None if valid is None or valid.all() else valid


class ReadAhead:
    """Reads a window in a thread of its own, which has the file open for itself."""

    def __init__(self, raster: Raster) -> None:
        self._raster = raster
        self._thread = ThreadPoolExecutor(1)
        self._open: ExitStack | None = None
        self._asked: Future[tuple[Box, NDArray, NDArray[np.bool_] | None]] | None = None

    def ask(self, window: Box | None) -> None:
        """Begins to read a window."""
        self._asked = None if window is None else self._thread.submit(self._read, window)

    def take(self) -> tuple[Box, NDArray, NDArray[np.bool_] | None] | None:
        """What was asked for, once it is read."""
        asked, self._asked = self._asked, None
        return None if asked is None else asked.result()

    def _read(self, window: Box) -> tuple[Box, NDArray, NDArray[np.bool_] | None]:
        if self._open is None:
            self._open = ExitStack()
            self._open.enter_context(environment())
            self._reader = Reader(self._raster, self._open.enter_context(opened(self._raster.path)))
        return window, *self._reader.read(window, range(self._raster.count))

    def close(self) -> None:
        self._thread.submit(self._shut).result()  # GDAL's environment belongs to that thread
        self._thread.shutdown()

    def _shut(self) -> None:
        if self._open is not None:
            self._open.close()


@contextmanager
def reading_ahead(raster: Raster) -> Iterator[ReadAhead]:
    """A thread that reads windows of a raster before they are needed."""
    ahead = ReadAhead(raster)
    try:
        yield ahead
    finally:
        ahead.close()


class Reader:
    """An open raster: `Samples` that are read in windows."""

    def __init__(self, raster: Raster, dataset: Any) -> None:
        self.raster, self.shape, self.dtype = raster, raster.shape, raster.dtype
        self._dataset = dataset

    def read(self, box: Box, bands: Sequence[int]) -> Window:
        """Samples h×w×n of some bands in a window, and which of them are valid; None if all are.

        Samples are invalid if they are nodata or not finite, or if the raster's mask or an alpha of 0 hides
        them. The alpha itself is always valid.
        """
        samples = self._window(self._dataset.read, box, bands)
        alpha = None
        if self.raster.bands.alpha is not None:
            alpha = self._window(self._dataset.read, box, [self.raster.bands.alpha])[..., 0]
        valid = self.raster.bands.valid(samples, bands, alpha)
        if alpha is None and self.raster.masked:
            shown = self._window(self._dataset.read_masks, box, bands) > 0
            valid = shown if valid is None else valid & shown
        return samples, None if valid is None or valid.all() else valid

    def _window(self, read: Any, box: Box, bands: Sequence[int]) -> NDArray:
        import rasterio

        orientation = self.raster.orientation
        top, left, bottom, right = stored(box, self.raster.shape, orientation)
        try:
            numbers = [self.raster.stored[band] + 1 for band in bands]
            with quiet():
                samples = read(numbers, window=((top, bottom), (left, right)))
        except rasterio.errors.RasterioError as error:
            virtual = self._dataset.driver == "VRT"
            what = "refers to what cannot be read" if virtual else "cannot be read, and may be damaged"
            raise ImageFileError(f"{self.raster.path} {what} ({first_line(error)}).") from error
        return turned(np.moveaxis(samples, 0, -1), orientation)
