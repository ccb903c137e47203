"""Mappings from output pixels to points in the input, with the Jacobian at each point.

Positions are (row, column) in pixels from the top left corner; pixel p spans [p, p + 1). A mapping takes a
box of h×w output pixels to the input points of their centres, h×w×2, NaN where there is none, and to their
Jacobians, 2×2 or h×w×2×2. The columns of a Jacobian are the steps of one output pixel down and one along.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

    def misses(self, box: Box, shape: tuple[int, int]) -> bool:
        """True if the corners of a box show that none of it lies in an input of `shape`.

        Straight lines stay straight. So if all corners have points, those of the box lie between them.
        """
        top, left, bottom, right = box
        corners = [(row + 0.5, col + 0.5) for row in (top, bottom - 1) for col in (left, right - 1)]
        points, _ = self._locate(np.array(corners))
        beside = (points < 0).all(axis=0) | (points > np.array(shape)).all(axis=0)
        return bool(beside.any() or np.isnan(points).all())


@dataclass(frozen=True)
class Lens:
    """Undoes lens distortion, by the model of Brown and Conrady: maps pixels of the undistorted picture to
    positions in the distorted one.

    In units of the focal length from the principal point, with r² = x² + y²:

        x' = x (1 + k₁r² + k₂r⁴ + k₃r⁶) + 2p₁xy + p₂(r² + 2x²)
        y' = y (1 + k₁r² + k₂r⁴ + k₃r⁶) + p₁(r² + 2y²) + 2p₂xy

    `camera`: fx, fy, cx, cy in pixels, (cx, cy) from the top left corner of the picture.
    `distortion`: k₁, k₂, p₁, p₂ and optionally k₃, in OpenCV's order.

    >>> Lens((100, 100, 2, 1.5), (-0.1, 0, 0, 0))((1, 0, 2, 1))[0].round(4).tolist()
    [[[1.5, 0.5]]]
    """

    camera: Sequence[float]
    distortion: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.camera) != 4 or not np.all(np.isfinite(self.camera)) or min(self.camera[:2]) <= 0:
            raise InvalidInput(
                "A camera is four finite numbers: two focal lengths above 0 and the principal point, in"
                " pixels."
            )
        if len(self.distortion) not in (4, 5) or not np.all(np.isfinite(self.distortion)):
            raise InvalidInput("A lens is four or five finite numbers: k1, k2, p1, p2 and optionally k3.")

    def __call__(self, box: Box) -> MappedPoints:
        fx, fy, cx, cy = self.camera
        k1, k2, p1, p2, k3 = (*self.distortion, 0.0)[:5]
        at = centres(box)
        x, y = (at[..., 1] - cx) / fx, (at[..., 0] - cy) / fy
        r2 = x * x + y * y
        radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
        slope = 2 * (k1 + r2 * (2 * k2 + r2 * 3 * k3))  # 2 d(radial)/d(r²)
        xx = radial + x * x * slope + 2 * p1 * y + 6 * p2 * x
        xy = x * y * slope + 2 * p1 * x + 2 * p2 * y
        yy = radial + y * y * slope + 6 * p1 * y + 2 * p2 * x
        column = cx + fx * (x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x))
        row = cy + fy * (y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y)
        points = np.stack([row, column], axis=-1)
        jacobian = np.stack(
            [np.stack([yy, xy * fy / fx], axis=-1), np.stack([xy * fx / fy, xx], axis=-1)], axis=-2
        )
        # Far from the centre the polynomial may turn back and repeat a part of the picture. Drop such points.
        points[(xx * yy - xy * xy <= 0) | (xx + yy <= 0)] = np.nan
        return points, jacobian
