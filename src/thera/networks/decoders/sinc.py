"""The paper's "+ sinc" baseline: the backbone's own upsampler to ×4, then Lanczos to any size."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from thera.networks.decoders.decoder import WIDTH, Decoder, gather
from thera.networks.network import Points

LOBES = 3


class Sinc(Decoder):
    """EDSR's upsampler (two shuffled convolutions and one to RGB) makes the picture at ×4, which is resized
    with a sinc of three lobes. 297,155 parameters.

    To be trained at ×4 (`data.scales = [4, 4]`): in training the kernel is not stretched.
    """

    point_bytes = 40_000

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Sequential(
            nn.Conv2d(WIDTH, 4 * WIDTH, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Conv2d(WIDTH, 4 * WIDTH, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Conv2d(WIDTH, 3, 3, padding=1),
        )

    def maps(self, features: Tensor, image: Tensor) -> Tensor:
        return self.up(features).float()

    def forward(self, maps: Tensor, points: Points) -> Tensor:
        stretch = torch.ones_like(points.step) if self.training else (4 * points.step).clamp(min=1)
        count = 2 * LOBES if self.training else taps_within(stretch)
        at = 4 * points.at - 0.5  # in pixels of the ×4 picture, from the centre of the first
        first = torch.floor(at - count / 2) + 1
        taps = first[..., None] + torch.arange(count, device=at.device)  # N×Q×2×count
        z = (taps - at[..., None]) / stretch[..., None]
        weight = torch.sinc(z) * torch.sinc(z / LOBES) * (z.abs() < LOBES)
        weight = weight / weight.sum(-1, keepdim=True)
        rows, cols = (mirrored(t.long(), n) for t, n in zip(taps.unbind(-2), maps.shape[2:], strict=True))
        index = rows[..., :, None] * maps.shape[3] + cols[..., None, :]  # N×Q×count×count
        found = gather(maps, index.flatten(1)).view(*index.shape, 3)
        return torch.einsum("nqi,nqj,nqijc->nqc", weight[..., 0, :], weight[..., 1, :], found)


@torch.compiler.disable  # it waits for the device
def taps_within(stretch: Tensor) -> int:
    """How many taps the widest kernel has on an axis."""
    return math.ceil(2 * LOBES * stretch.max().item())


def mirrored(index: Tensor, length: int) -> Tensor:
    """Indices beyond the ends of an axis, reflected into it."""
    index = index % (2 * length)
    return torch.minimum(index, 2 * length - 1 - index)
