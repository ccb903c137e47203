"""LIIF (Chen, Liu and Wang, CVPR 2021): one perceptron says the colour at an offset from a cell."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thera.networks.decoders.decoder import WIDTH, Decoder, corners, gather, linear2
from thera.networks.network import MLP, Points

UNFOLDED = 9 * WIDTH


class LIIF(Decoder):
    """A perceptron of (3×3 features of a cell, offset, size of the output pixel), for the four cells around a
    point, blended by the areas of the opposite rectangles. 346,883 parameters.

    The first layer is linear in the features: that part is computed once for each cell, as a convolution.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(UNFOLDED + 4, 256)
        self.mlp = MLP(256, 256, 256, 256, 3)

    def maps(self, features: Tensor, image: Tensor) -> Tensor:
        weight = self.first.weight[:, :UNFOLDED].reshape(-1, WIDTH, 3, 3)
        return F.conv2d(features, weight, self.first.bias, padding=1)

    def forward(self, maps: Tensor, points: Points) -> Tensor:
        by_offset, by_size = self.first.weight[:, UNFOLDED:].split(2, dim=1)
        size = linear2(2 * points.step, by_size)
        colours = 0
        for index, offset, weight in corners(points.at, maps.shape):
            hidden = torch.relu(gather(maps, index) + linear2(offset, by_offset) + size)
            colours = colours + weight[..., None] * self.mlp(hidden).float()
        return colours  # type: ignore[return-value]
