"""Mappings from output pixels to points in the input, with the Jacobian at each point.

Positions are (row, column) in pixels from the top left corner; pixel p spans [p, p + 1). A mapping takes a
box of h×w output pixels to the input points of their centres, h×w×2, NaN where there is none, and to their
Jacobians, 2×2 or h×w×2×2. The columns of a Jacobian are the steps of one output pixel down and one along.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.field.grid import Box
from thera.field.warp import projective

MappedPoints = tuple[NDArray[np.float64], NDArray[np.float64]]


class Mapping(Protocol):
    def __call__(self, box: Box) -> MappedPoints:
        """The input points of the pixels of a box, and their Jacobians."""


#: Takes the (height, width) of an input to that of the output, and the mapping between them.
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
    """True if the determinant of a 3×3 matrix is 0, up to rounding.

    It is compared with the sum of the absolute products in it, which scales with it for any size of pixels.

    >>> _singular(np.array([[0, -1, 2e9], [1, 0, 0], [0, 0, 1]]))
    False
    """
    first, second, third = matrix
    added = first * np.roll(second, -1) * np.roll(third, -2)
    taken = first * np.roll(second, -2) * np.roll(third, -1)
    return bool(abs(np.sum(added - taken)) <= 1e-12 * np.sum(np.abs(added) + np.abs(taken)))


class Projective:
    """A homography or an affine map, given as 9 or 6 numbers row by row, with x (right) before y (down).

    It takes the input's (x, y) to the output's, or with `inverse` the output's to the input's.

    >>> half = Projective([0.5, 0, 0, 0, 0.5, 0], (4, 4))
    >>> half((0, 0, 1, 1))[0].tolist(), half((0, 0, 1, 1))[1].tolist()
    ([[[1.0, 1.0]]], [[2.0, 0.0], [0.0, 2.0]])
    """

    def __init__(self, numbers: Sequence[float], size: tuple[int, int], inverse: bool = False) -> None:
        if len(numbers) not in (6, 9):
            raise InvalidInput(
                f"{len(numbers)} numbers are not a matrix: give 6 for an affine map or 9 for a homography."
            )
        if not np.all(np.isfinite(numbers)):
            message = ", ".join(f"{number:g}" for number in numbers)
            raise InvalidInput(f"The matrix {message} is not finite: give finite numbers.")
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

    def __call__(self, box: Box) -> MappedPoints:
        at = centres(box)
        points, jacobian = self._locate(at.reshape(-1, 2))
        shaped = jacobian if jacobian.ndim == 2 else jacobian.reshape(*at.shape, 2)
        return points.reshape(at.shape), shaped
