"""Undoes lens distortion, by the model of Brown and Conrady."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thera.errors import InvalidInput
from thera.field.grid import Box
from thera.warp.mappings import MappedPoints, centres


@dataclass(frozen=True)
class Lens:
    """Maps the pixels of the undistorted picture to their positions in the distorted one.

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
