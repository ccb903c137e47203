"""Mappings from an output's pixels to places in the input, with the Jacobian at each: what a warp is.

Positions are (row, column) in pixels from the top left corner; pixel p spans [p, p + 1). A mapping takes a
box of output pixels, h×w of them, to the places of their centres, h×w×2, NaN for those that have none, and to
the steps of an output pixel there, 2×2 or h×w×2×2: the columns are one pixel down and one pixel along.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.field.grid import Box
from thera.field.warp import projective

Places = tuple[NDArray[np.float64], NDArray[np.float64]]


class Mapping(Protocol):
    def __call__(self, box: Box) -> Places:
        """The places of the pixels of a box, and their Jacobians."""


#: From an input's (height, width) to the output's, and the mapping between them.
View = Callable[[tuple[int, int]], tuple[tuple[int, int], Mapping]]


def centres(box: Box) -> NDArray[np.float64]:
    """The centres of the pixels of a box, h×w×2.

    >>> centres((0, 7, 1, 9)).tolist()
    [[[0.5, 7.5], [0.5, 8.5]]]
    """
    top, left, bottom, right = box
    grid = np.meshgrid(np.arange(top, bottom) + 0.5, np.arange(left, right) + 0.5, indexing="ij")
    return np.stack(grid, axis=-1)


def _singular(matrix: NDArray[np.float64]) -> bool:
    """Whether the determinant of a 3×3 matrix is no more than the rounding of the products that it sums.

    Pixels of another size leave their ratio as it is, and a translation has no part in an affine map's.

    >>> _singular(np.array([[0, -1, 2e9], [1, 0, 0], [0, 0, 1]]))
    False
    """
    first, second, third = matrix
    added = first * np.roll(second, -1) * np.roll(third, -2)
    taken = first * np.roll(second, -2) * np.roll(third, -1)
    return bool(abs(np.sum(added - taken)) <= 1e-12 * np.sum(np.abs(added) + np.abs(taken)))


class Projective:
    """A homography or an affine map, given as 9 or 6 numbers row by row, x (right) before y (down): from the
    input's (x, y) to the output's, or, `inverse`, from the output's to the input's.

    >>> half = Projective([0.5, 0, 0, 0, 0.5, 0], (4, 4))
    >>> half((0, 0, 1, 1))[0].tolist(), half((0, 0, 1, 1))[1].tolist()
    ([[[1.0, 1.0]]], [[2.0, 0.0], [0.0, 2.0]])
    """

    def __init__(self, numbers: Sequence[float], size: tuple[int, int], inverse: bool = False) -> None:
        if len(numbers) not in (6, 9):
            raise InvalidInput(
                f"{len(numbers)} numbers are no matrix: an affine one has 6, a homography 9, row by row."
            )
        if not np.all(np.isfinite(numbers)):
            told = ", ".join(f"{number:g}" for number in numbers)
            raise InvalidInput(f"The matrix {told} is not of finite numbers: give others.")
        rows = [*numbers, 0.0, 0.0, 1.0][:9]
        matrix = np.array(rows, np.float64).reshape(3, 3)
        if _singular(matrix):
            raise InvalidInput(
                "This matrix takes the whole picture to a line or a point: give one of full rank."
            )
        to_input = matrix if inverse else np.linalg.inv(matrix)
        swap = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1]])  # (row, column) is (y, x)
        self.matrix = swap @ to_input @ swap
        self.affine = not self.matrix[2, :2].any()
        self._locate = projective(self.matrix, size)

    def __call__(self, box: Box) -> Places:
        at = centres(box)
        points, jacobian = self._locate(at.reshape(-1, 2))
        shaped = jacobian if jacobian.ndim == 2 else jacobian.reshape(*at.shape, 2)
        return points.reshape(at.shape), shaped
