"""Pictures at half their size or less, from their pixels alone.

An output pixel that covers two input pixels or more averages over whole cells, and what a field adds within
them averages out: against the field's own rendering it leaves 1/255 (root mean square) at half size, 0.2/255
at a quarter. So nothing has to be encoded to see a picture whole. The filter is the field's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thera.field import Gaussian
from thera.field.grid import Axis, Taps, sample_axis
from thera.tiled import Source

#: Output pixels along a side of what is averaged at a time: a product with few zeros in its matrix.
PIECE = 16
#: Input pixels that are read at a time.
BAND_PIXELS = 1 << 20

Weights = tuple[int, NDArray[np.float32]]  # the first cell, and (output pixels, cells from there on)


def reduced(source: Source, rows: Axis, cols: Axis, kappa: float) -> NDArray[np.float32]:
    """A picture at the output pixels of two axes, (rows, columns, 3)."""
    H, W = source.shape
    down, along = _weights(rows, H, kappa), _weights(cols, W, kappa)
    left = along[0][0]
    right = max(first + matrix.shape[1] for first, matrix in along)
    bands = []
    for top, matrix in down:
        values = _averaged(source, top, matrix, left, right)
        parts = ((across, values[:, at - left : at - left + across.shape[1]]) for at, across in along)
        bands.append(np.concatenate([np.matmul(across, part) for across, part in parts], axis=1))
    return np.concatenate(bands)


def _averaged(
    source: Source, top: int, matrix: NDArray[np.float32], left: int, right: int
) -> NDArray[np.float32]:
    """The rows of cells from `top` on, averaged by a matrix, some of them at a time."""
    count, height = max(1, BAND_PIXELS // (right - left)), matrix.shape[1]
    total = np.zeros((len(matrix), 3 * (right - left)), np.float32)
    for start in range(0, height, count):
        stop = min(start + count, height)
        cells = source.cells((top + start, left, top + stop, right))
        total += matrix[:, start:stop] @ cells.reshape(stop - start, -1)
    return total.reshape(len(matrix), -1, 3)


def _weights(axis: Axis, cells: int, kappa: float) -> list[Weights]:
    """By which weights each output pixel averages the cells of an axis, some output pixels at a time."""
    way, found = sample_axis(axis, cells, Gaussian(), kappa, order=0), []
    for start in range(0, len(axis), PIECE):
        part = way.band(start, min(start + PIECE, len(axis)))
        assert isinstance(part.taps, Taps), "an output pixel averages several cells"
        index = part.axis.cell[part.taps.index]
        first = int(index.min())
        matrix = np.zeros((len(index), int(index.max()) + 1 - first), np.float32)
        np.add.at(matrix, (np.arange(len(index))[:, None], index - first), part.taps.weight)
        found.append((first, matrix))
    return found
