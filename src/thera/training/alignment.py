"""A spatial transformer that aligns pairs of pictures while a network learns from them.

Two shots of a scene never match to a fraction of a pixel: the camera moved, the lens zoomed. A small network
looks at a patch and at its targets, and moves the positions at which the field is read: a shift, a scale for
each axis, a rotation and a shear. Only training needs it; what it learns is not part of the model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from thera.networks import Thera
from thera.networks.heat import field_parameters, heat_field

if TYPE_CHECKING:
    from thera.training.data import Batch

FARTHEST = 2.0  # shift, in input pixels
STRONGEST = 0.05  # rotation (radians), shear, and logarithm of a scale


class Aligner(nn.Module):
    """A patch, its targets and its scale → six numbers: about 10,000 parameters.

    >>> sum(p.numel() for p in Aligner().parameters())
    10156
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Sequential(
            nn.Conv2d(6, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(24, 24, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.last = nn.Linear(4 * 24 + 1, 6)
        nn.init.zeros_(self.last.weight)  # begins with the identity
        nn.init.zeros_(self.last.bias)

    def forward(self, batch: Batch) -> Tensor:
        """N×2×3: where positions (row, column) from a patch's centre are read, in input pixels."""
        target = batch.target.mean(3).permute(0, 3, 1, 2)
        with torch.autocast(target.device.type, enabled=False):
            seen = self.seen(torch.cat([batch.source - 0.5, target - batch.source], 1))
            return affine(self.last(torch.cat([seen, -0.5 * batch.t.log()[:, None]], 1)))


def affine(numbers: Tensor) -> Tensor:
    """N×2×3 maps: rotation · shear · scale, then a shift. numbers: N×6, of any size; 0 is the identity.

    >>> affine(torch.zeros(1, 6))
    tensor([[[1., 0., 0.],
             [0., 1., 0.]]])
    """
    bounded = torch.tanh(numbers)
    shift = FARTHEST * bounded[:, :2]
    log_down, log_across, angle, shear = (STRONGEST * bounded[:, 2:]).unbind(1)
    cos, sin, down, across = angle.cos(), angle.sin(), log_down.exp(), log_across.exp()
    first = torch.stack([cos * down, (cos * shear - sin) * across], 1)
    second = torch.stack([sin * down, (sin * shear + cos) * across], 1)
    return torch.cat([torch.stack([first, second], 1), shift[..., None]], 2)


def aligned_pairs(
    network: Thera, features: Tensor, batch: Batch, aligner: Aligner
) -> tuple[Batch, Tensor, Tensor]:
    """`aligned`, where only the pairs of a batch are moved; pictures are read where they are."""
    if batch.paired is None:
        return aligned(network, features, batch, aligner(batch))
    pairs, pictures = batch.part(slice(batch.paired)), batch.part(slice(batch.paired, None))
    moved, *fields = aligned(network, features[: batch.paired], pairs, aligner(pairs))
    still = network.field(features[batch.paired :], pictures.source, pictures.x, pictures.t)
    value, slope = (torch.cat(both) for both in zip(fields, still, strict=True))
    return replace(batch, target=torch.cat([moved.target, pictures.target])), value, slope


def aligned(network: Thera, features: Tensor, batch: Batch, moved: Tensor) -> tuple[Batch, Tensor, Tensor]:
    """The field where `moved` (N×2×3) says, with the batch that its values belong to: their colours are
    counted from the pixels of the cells that they are now read in.

    The blur follows the area of an output pixel. That its shape changes, too, is left out: by 5 % at most.
    It is the plain form of the field on every device, because the kernels have no gradients for positions.
    """
    N, P, _, q, _ = batch.x.shape
    cell = torch.arange(P, device=batch.x.device, dtype=torch.float32) + 0.5
    centre = torch.stack(torch.meshgrid(cell, cell, indexing="ij"), -1)[None, :, :, None]  # 1×P×P×1×2
    y, z = (centre + batch.x - P / 2).flatten(1, 3).unbind(-1)  # N×(P·P·q), rows and columns
    # Written out: a matrix product would be rounded to 16 bits.
    first, second = (tuple(row[..., None].unbind(1)) for row in moved.unbind(1))
    position = torch.stack([m[0] * y + m[1] * z + m[2] for m in (first, second)], -1) + P / 2
    own = position.detach().floor().clamp(0, P - 1)  # the cell that a position lies in
    index = (own[..., 0] * P + own[..., 1]).long()[:, None]
    read, pixel = (v.flatten(2).gather(2, index.expand(-1, v.shape[1], -1)) for v in (features, batch.source))
    t = batch.t * (first[0] * second[1] - first[1] * second[0])[:, 0]
    amplitude, phase, components = field_parameters(network, read.unsqueeze(2))  # N×1×(P·P·q)×…
    x = (position - own - 0.5).unsqueeze(1)
    t = t.view(-1, 1, 1)
    value, slope = heat_field(amplitude, phase, components, network.kappa, x, t, network.spec.filter)
    before = batch.source.permute(0, 2, 3, 1).unsqueeze(3)
    target = batch.target - pixel.transpose(1, 2).reshape(N, P, P, q, 3) + before
    return replace(batch, target=target), value.view(N, P, P, q, 3), slope.view(N, P, P, q, 3, 2)
