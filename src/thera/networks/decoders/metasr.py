"""Meta-SR (Hu et al., CVPR 2019): a perceptron predicts the kernel of every output pixel."""

from __future__ import annotations

import torch
from torch import Tensor

from thera.networks.decoders.decoder import WIDTH, Decoder, gather, linear_in, unfold, within
from thera.networks.network import MLP, Points


class MetaSR(Decoder):
    """A kernel of 3×3×64 → 3, predicted from the output pixel's corner in its cell and its size, is applied
    to the features around that cell. 445,120 parameters.
    """

    point_bytes = 8 * 9 * WIDTH * 3

    def __init__(self) -> None:
        super().__init__()
        self.mlp = MLP(3, 256, 9 * WIDTH * 3)

    def maps(self, features: Tensor, image: Tensor) -> Tensor:
        return unfold(features)

    def forward(self, maps: Tensor, points: Points) -> Tensor:
        corner = points.at - points.step / 2  # the upper left one of the output pixel
        cell = within(torch.floor(corner + 1e-6), maps.shape)
        size = points.step[..., :1].expand(*corner.shape[:2], 1)
        hidden = torch.relu(linear_in(torch.cat([corner - cell, size], -1), self.mlp[0]))  # type: ignore[arg-type]
        kernel = self.mlp[2](hidden).unflatten(-1, (-1, 3))
        features = gather(maps, (cell[..., 0] * maps.shape[3] + cell[..., 1]).long())
        if features.is_cuda:  # a batched product would be a matrix product for each point: slow there
            return (features.unsqueeze(-1).float() * kernel.float()).sum(-2)
        return torch.matmul(features.unsqueeze(-2).to(kernel.dtype), kernel).squeeze(-2)
