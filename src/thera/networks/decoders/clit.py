"""CLIT (Chen et al., CVPR 2023): local attention of every output pixel, in a cascade of three."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from thera.networks.decoders.decoder import WIDTH, Decoder, bilinear, gather, linear2, within
from thera.networks.network import MLP, Points

HEADS, HIDDEN = 8, 256
RADIUS = 3  # cells: attention sees 7×7
AREA = (2 * RADIUS + 1) ** 2
WAVES = 10  # octaves of the sinusoids of an offset


class LocalAttention(nn.Module):
    """An output pixel attends to the 7×7 cells around it; a perceptron reads their weighted values, side by
    side, and the size of the pixel. 3,865,867 parameters.
    """

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Conv2d(WIDTH, HIDDEN, 3, padding=1) for _ in range(3))
        self.position = MLP(4 * WAVES, HIDDEN, HEADS)
        self.first = nn.Linear(AREA * HIDDEN + 2, HIDDEN)
        self.mlp = MLP(HIDDEN, HIDDEN, HIDDEN, HIDDEN, 3)
        side = torch.arange(-RADIUS, RADIUS + 1)
        window = torch.stack(torch.meshgrid(side, side, indexing="ij"), -1).view(AREA, 2)
        self.register_buffer("window", window, persistent=False)

    def maps(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.query(features), self.key(features), self.value(features)

    def forward(self, maps: tuple[Tensor, Tensor, Tensor], points: Points) -> Tensor:
        query, key, value = maps
        cells = torch.floor(points.at).unsqueeze(-2) + self.window  # type: ignore[operator]
        nearest = within(cells, query.shape)
        inside = (nearest == cells).all(-1)  # N×Q×49
        index = (nearest[..., 0] * query.shape[3] + nearest[..., 1]).long().flatten(1)
        k, v = (gather(x, index).view(*inside.shape, HEADS, -1) for x in (key, value))
        q = bilinear(query, points.at).unflatten(-1, (HEADS, -1)).to(k.dtype)
        # Not a batched product: it would be a matrix product for each point, which is slow on GPUs.
        scores = (q.unsqueeze(-3) * k).sum(-1, dtype=torch.float32) / (HIDDEN / HEADS) ** 0.5
        scores = scores + self.position(sinusoids(points.at.unsqueeze(-2) - cells - 0.5)).float()
        share = torch.softmax(scores.masked_fill(~inside.unsqueeze(-1), -math.inf), dim=-2)
        weighted = (share.unsqueeze(-1).to(v.dtype) * v).flatten(-3)
        hidden = nn.functional.linear(
            weighted, self.first.weight[:, :-2].to(v.dtype), self.first.bias.to(v.dtype)
        )
        return self.mlp(torch.relu(hidden + linear2(2 * points.step, self.first.weight[:, -2:])))


def sinusoids(offset: Tensor) -> Tensor:
    """cos and sin of 2ᵏ·offset for ten k, of offsets of some cells brought into [-1, 1]: …×2 → …×40."""
    angles = math.pi * (offset / (RADIUS + 1))[..., None] * 2.0 ** torch.arange(WAVES, device=offset.device)
    return torch.cat([torch.cos(angles), torch.sin(angles)], -1).flatten(-2)


class CLIT(Decoder):
    """Three local attentions, for output pixels four times as large, twice as large, and as they are: each
    corrects the one before, the first the bilinearly enlarged image. 11,597,601 parameters.
    """

    point_bytes = 400_000

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(LocalAttention() for _ in range(3))

    def maps(self, features: Tensor, image: Tensor) -> tuple[list, Tensor]:
        return [stage.maps(features) for stage in self.stages], image  # type: ignore[operator]

    def forward(self, maps: tuple[list, Tensor], points: Points) -> Tensor:
        found, image = maps
        colours = bilinear(image, points.at)
        for stage, its, coarser in zip(self.stages, found, (4, 2, 1), strict=True):
            colours = colours + stage(its, Points(points.at, coarser * points.step)).float()
        return colours
