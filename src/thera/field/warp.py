"""Mappings from output positions to input positions, and their Jacobians."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np

from thera.errors import InvalidInput
from thera.field.psf import to_numpy

if TYPE_CHECKING:
    from thera.field.heatfield import HeatField

Array = Any
Mapping = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
# The step of finite differences: far above rounding, and exact to 1e-6 for mappings smooth over a pixel.
DIFFERENCE = 1e-3


def as_mapping(mapping: Any, size: tuple[int, int], field: HeatField) -> Mapping:
    """Takes output points (N, 2) to input points (N, 2), NaN if there is none, and the Jacobian, (2, 2) or
    (N, 2, 2)."""
    if callable(mapping):
        return lambda points: _call(mapping, points, field)
    return projective(mapping, size)


def projective(mapping: Any, size: tuple[int, int]) -> Mapping:
    """The mapping of a 3×3 homography or a 2×3 affine matrix, for an output of `size` = (H', W')."""
    try:
        matrix = to_numpy(mapping).astype(np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.shape == (2, 3):
        matrix = np.concatenate([matrix, [[0.0, 0.0, 1.0]]])
    if matrix.shape != (3, 3) or not np.all(np.isfinite(matrix)):
        raise InvalidInput(
            "This mapping cannot be used; give a 3×3 homography or a 2×3 affine matrix of finite numbers, or "
            "a function of points (N, 2), each taking output (row, column) to input (row, column)."
        )
    if np.linalg.matrix_rank(matrix[:, :2]) < 2:
        raise InvalidInput("This mapping takes the whole plane to a line; give a matrix of full rank.")
    # The visible side of the horizon is the one that holds the middle of the output.
    if matrix[2] @ [size[0] / 2, size[1] / 2, 1] < 0:
        matrix = -matrix
    return lambda points: _project(matrix, points)


def _project(matrix: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """u = (Ax + b) / (g·x + d) and J = (A - u gᵀ) / (g·x + d)."""
    linear = points @ matrix[:, :2].T + matrix[:, 2]
    depth = linear[:, 2:]
    if not np.any(matrix[2, :2]):
        return linear[:, :2] / depth, matrix[:2, :2] / matrix[2, 2]
    depth = np.where(depth > 0, depth, np.nan)  # nothing is visible on the horizon or beyond
    u = linear[:, :2] / depth
    return u, (matrix[:2, :2] - u[:, :, None] * matrix[2, :2]) / depth[:, :, None]


def _call(
    function: Callable[[Array], Array], points: np.ndarray, field: HeatField
) -> tuple[np.ndarray, np.ndarray]:
    """A user's function and its Jacobian: by autograd for torch functions, else by differences."""
    if array_api_compat.is_torch_array(field.pixels):
        xp = field.namespace
        with xp.enable_grad():
            given = xp.asarray(points, device=field.device).requires_grad_()
            found = _checked(function(given), given)
            if getattr(found, "requires_grad", False):
                rows = []
                for axis in range(2):
                    given.grad = None
                    found[:, axis].sum().backward(retain_graph=True, inputs=[given])
                    rows.append(given.grad)
                return to_numpy(found).astype(np.float64), to_numpy(xp.stack(rows, axis=1))

    def call(at: np.ndarray) -> np.ndarray:
        given = field.namespace.asarray(at, device=field.device)
        return to_numpy(_checked(function(given), given)).astype(np.float64)

    columns = []
    for axis in np.eye(2) * DIFFERENCE:
        columns.append((call(points + axis) - call(points - axis)) / (2 * DIFFERENCE))
    return call(points), np.stack(columns, axis=-1)


def _checked(found: Array, given: Array) -> Array:
    if tuple(getattr(found, "shape", ())) != tuple(given.shape):
        raise InvalidInput(
            f"The mapping gave {getattr(found, 'shape', found)!r} for points of shape {tuple(given.shape)}; "
            "it must give as many points of the same shape."
        )
    return found
