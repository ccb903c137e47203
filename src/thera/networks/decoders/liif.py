"""LIIF (Chen, Liu and Wang, CVPR 2021): one perceptron says the colour at an offset from a cell."""

from __future__ import annotations

from torch import Tensor

from thera.networks.decoders.decoder import WIDTH, CellMLP, Decoder, corners, unfold
from thera.networks.network import Points


class LIIF(Decoder):
    """A perceptron of (3×3 features of a cell, offset, size of the output pixel), for the four cells around a
    point, blended by the areas of the opposite rectangles. 346,883 parameters.
    """

    def __init__(self) -> None:
        super().__init__()
        self.perceptron = CellMLP(9 * WIDTH, 256, 256, 256, 256, 3)

    def maps(self, features: Tensor, image: Tensor) -> Tensor:
        return self.perceptron.maps(unfold(features))

    def forward(self, maps: Tensor, points: Points) -> Tensor:
        colours = 0
        for cell, offset, weight in corners(points.at, maps.shape):
            colours = colours + weight[..., None] * self.perceptron(maps, cell, offset, points.step).float()
        return colours  # type: ignore[return-value]
