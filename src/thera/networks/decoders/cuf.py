"""CUF (Vasconcelos et al., CVPR 2023): a depthwise kernel, continuous in position and scale."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thera.networks.decoders.decoder import WIDTH, Decoder, gather, nearest, unfold
from thera.networks.network import MLP, Points

HIDDEN = 256
WAVES = 8  # cosines of each of the five numbers, which lie in [0, 1]


class CUF(Decoder):
    """Features of 256 channels are enlarged by depthwise 3×3 kernels, which a perceptron of 32 channels
    predicts from the scale, the output pixel's place in its cell and the kernel's position. 1×1 layers
    follow. 291,939 parameters.

    The authors published no code: widths other than the 32 channels are chosen to reach the stated 0.30 M.
    """

    point_bytes = 12 * 9 * HIDDEN

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Conv2d(WIDTH, HIDDEN, 3, padding=1)
        self.kernel = MLP(5 * WAVES, 32, 32, 32, HIDDEN)
        self.layers = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(2))
        self.project = nn.Linear(HIDDEN, 3)
        places = torch.arange(3) / 2
        grid = torch.stack(torch.meshgrid(places, places, indexing="ij"), -1).view(9, 2)
        self.register_buffer("places", grid, persistent=False)

    def maps(self, features: Tensor, image: Tensor) -> Tensor:
        return unfold(self.widen(features))

    def forward(self, maps: Tensor, points: Points) -> Tensor:
        cell, offset = nearest(points.at, maps.shape)
        size = points.step[..., :1].expand(*offset.shape[:2], 1)
        about = torch.cat([size, (offset + 1) / 2], -1).unsqueeze(-2).expand(-1, -1, 9, -1)
        about = torch.cat([about, self.places.expand(*about.shape[:2], 9, 2)], -1)  # type: ignore[operator]
        waves = torch.cos(math.pi * about[..., None] * torch.arange(1, WAVES + 1, device=about.device))
        kernel = self.kernel(waves.flatten(-2))  # N×Q×9×256
        x = (gather(maps, cell).unflatten(-1, (HIDDEN, 9)).transpose(-1, -2) * kernel).sum(-2)
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.project(x)
