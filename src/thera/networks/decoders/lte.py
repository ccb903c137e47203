"""LTE (Lee and Jin, CVPR 2022): a perceptron of the features' estimated Fourier components."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from thera.networks.decoders.decoder import WIDTH, Decoder, bilinear, corners, gather, linear2
from thera.networks.network import MLP, Points


class LTE(Decoder):
    """One convolution gives 256 coefficients of a cell, another 128 frequencies; the phases are linear in the
    size of the output pixel. A perceptron of coefficient × [cos, sin] π(frequency · offset + phase) is
    blended over four cells as in LIIF, and corrects the bilinearly enlarged image. 493,827 parameters.
    """

    def __init__(self) -> None:
        super().__init__()
        self.coefficient = nn.Conv2d(WIDTH, 256, 3, padding=1)
        self.frequency = nn.Conv2d(WIDTH, 256, 3, padding=1)
        self.phase = nn.Linear(2, 128, bias=False)
        self.mlp = MLP(256, 256, 256, 256, 3)

    def maps(self, features: Tensor, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.coefficient(features), self.frequency(features), image

    def forward(self, maps: tuple[Tensor, Tensor, Tensor], points: Points) -> Tensor:
        coefficient, frequency, image = maps
        phase = linear2(2 * points.step, self.phase.weight)
        colours = bilinear(image, points.at)
        for cell, offset, weight in corners(points.at, image.shape):
            w = gather(frequency, cell).float().unflatten(-1, (128, 2))
            z = math.pi * ((w * offset.unsqueeze(-2)).sum(-1) + phase)
            waves = torch.cat([torch.cos(z), torch.sin(z)], -1)
            colours = colours + weight[..., None] * self.mlp(gather(coefficient, cell) * waves).float()
        return colours
