"""MSIT (Zhu et al., 2024): one local attention on features that are mixed over several scales."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thera.networks.decoders.clit import CELL_BYTES, POINT_BYTES, LocalAttention
from thera.networks.decoders.decoder import WIDTH, Decoder, bilinear
from thera.networks.network import Points

SIDES = (3, 5, 7, 9)


class MultiScale(nn.Module):
    """Convolutions of four sizes, shifted by a cell in four directions and mixed: N×64×H×W → N×64×H×W."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, side, padding=side // 2) for side in SIDES)
        self.expand = nn.Conv2d(len(SIDES) * WIDTH, len(SIDES) * WIDTH, 1)
        self.project = nn.Conv2d(len(SIDES) * WIDTH, WIDTH, 1)

    def forward(self, features: Tensor) -> Tensor:
        shifts = (1, 0), (-1, 0), (0, 1), (0, -1)
        seen = [shifted(conv(features), *by) for conv, by in zip(self.convs, shifts, strict=True)]
        return features + self.project(F.gelu(self.expand(torch.cat(seen, 1))))


def shifted(maps: Tensor, down: int, right: int) -> Tensor:
    """The maps moved by cells, with zeros where nothing comes from."""
    H, W = maps.shape[2:]
    padded = F.pad(maps, (1, 1, 1, 1))
    return padded[:, :, 1 - down : 1 - down + H, 1 - right : 1 - right + W]


class MSIT(Decoder):
    """The local attention of CLIT, once, on features of four scales; it corrects the bilinearly enlarged
    image. 4,620,107 parameters.
    """

    point_bytes, cell_bytes = POINT_BYTES, CELL_BYTES

    def __init__(self) -> None:
        super().__init__()
        self.multi_scale = MultiScale()
        self.attention = LocalAttention()

    def maps(self, features: Tensor, image: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
        return self.attention.maps(self.multi_scale(features)), image

    def forward(self, maps: tuple[tuple[Tensor, Tensor, Tensor], Tensor], points: Points) -> Tensor:
        found, image = maps
        return self.attention(found, points).float() + bilinear(image, points.at)
