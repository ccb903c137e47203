"""CLIT (Chen et al., CVPR 2023): local attention of every output pixel, in a cascade of three."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thera.networks.decoders.decoder import WIDTH, Decoder, bilinear, gather, linear2, table, within
from thera.networks.network import MLP, Points

HEADS, HIDDEN = 8, 256
RADIUS = 3  # cells: attention sees 7×7
AREA = (2 * RADIUS + 1) ** 2
WAVES = 10  # octaves of the sinusoids of an offset
CELL_BYTES = 500_000  # of working memory: 49 keys and values, and what the perceptron reads of them
POINT_BYTES = 120_000  # the same for a point: 49 hidden layers of the perceptron of offsets, if all differ


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
        return self.by_point(maps, points) if torch.is_grad_enabled() else self.by_cell(maps, points)

    def by_point(self, maps: tuple[Tensor, Tensor, Tensor], points: Points) -> Tensor:
        """The equations, for training, where most points have a cell of their own, and for derivatives."""
        query, key, value = maps
        cells, index, inside = self.around(torch.floor(points.at), query.shape)
        k, v = (gather(x, index.flatten(1)).view(*inside.shape, HEADS, -1) for x in (key, value))
        q = bilinear(query, points.at).unflatten(-1, (HEADS, -1)).to(k.dtype)
        # Not a batched product: it would be a matrix product for each point, which is slow on GPUs.
        scores = (q.unsqueeze(-3) * k).sum(-1, dtype=torch.float32) / (HIDDEN / HEADS) ** 0.5
        scores = scores + self.position(sinusoids(points.at.unsqueeze(-2) - cells - 0.5)).float()
        share = torch.softmax(scores.masked_fill(~inside.unsqueeze(-1), -math.inf), dim=-2)
        weighted = (share.unsqueeze(-1).to(v.dtype) * v).flatten(-3)
        return self.read(F.linear(weighted, self.first.weight[:, :-2].to(v.dtype)), points.step)

    def by_cell(self, maps: tuple[Tensor, Tensor, Tensor], points: Points) -> Tensor:
        """The same with less work where points of one cell follow each other.

        The perceptron's first layer is linear in the values, so its products with them are computed once for
        all points in a cell: 3.2 million, and after that a hundred thousand for each point.
        """
        query, key, value = maps
        N, Q = points.at.shape[:2]
        at = points.at.flatten(0, 1)
        first, member = runs(torch.floor(points.at))  # G, and G×P points of each run
        cells, index, inside = self.around(torch.floor(at[first]), query.shape)  # G×49
        index = index + (first // Q)[:, None] * (query.shape[2] * query.shape[3])
        k, v = (table(x)[index].unflatten(-1, (HEADS, -1)) for x in (key, value))  # G×49×8×32
        q = bilinear(query, points.at).flatten(0, 1)[member].unflatten(-1, (HEADS, -1)).to(k.dtype)
        scores = torch.einsum("gphd,gjhd->gpjh", q / (HIDDEN / HEADS) ** 0.5, k).float()
        offsets, which = distinct(at[member] - cells[:, AREA // 2, None])
        bias = self.position(sinusoids(offsets[:, None] - self.window - 0.5)).float()  # type: ignore[operator]
        scores = (scores + bias[which]).masked_fill(~inside[:, None, :, None], -math.inf)
        share = torch.softmax(scores, dim=-2).to(v.dtype).flatten(-2)  # G×P×392
        weight = self.first.weight[:, :-2].to(v.dtype).view(HIDDEN, AREA * HEADS, -1)
        seen = torch.bmm(v.flatten(1, 2).transpose(0, 1), weight.permute(1, 2, 0))  # 392×G×256
        hidden = torch.bmm(share, seen.transpose(0, 1))
        found = hidden.new_empty(N * Q, HIDDEN)
        found[member.flatten()] = hidden.flatten(0, 1)
        return self.read(found.view(N, Q, HIDDEN), points.step)

    def around(self, cell: Tensor, shape: torch.Size) -> tuple[Tensor, Tensor, Tensor]:
        """The 7×7 cells around each (…×49×2), their indices in maps of this shape, and which are inside."""
        cells = cell.unsqueeze(-2) + self.window  # type: ignore[operator]
        nearest = within(cells, shape)
        index = (nearest[..., 0] * shape[3] + nearest[..., 1]).long()
        return cells, index, (nearest == cells).all(-1)

    def read(self, seen: Tensor, step: Tensor) -> Tensor:
        """The perceptron from where its first layer has read the values: N×Q×256 → N×Q×3."""
        hidden = seen + self.first.bias.to(seen.dtype) + linear2(2 * step, self.first.weight[:, -2:])
        return self.mlp(torch.relu(hidden))


def runs(cells: Tensor) -> tuple[Tensor, Tensor]:
    """Runs of points in the same cell: the first point of each (G), and all of its points (G×P).

    Runs are cut at twice their mean length, and shorter ones repeat their last point, so that G·P is at most
    three times the number of points. cells: N×Q×2, those of the points in order; indices are of N·Q points.
    """
    starts = torch.ones(cells.shape[:2], dtype=torch.bool, device=cells.device)
    starts[:, 1:] = (cells[:, 1:] != cells[:, :-1]).any(-1)
    starts = starts.flatten()
    point = torch.arange(len(starts), device=cells.device)
    longest = -(-2 * len(starts) // int(starts.sum()))
    place = point - torch.where(starts, point, 0).cummax(0).values  # in its cell
    first = (place % longest == 0).nonzero().flatten()
    count = torch.diff(first, append=first.new_tensor([len(starts)]))
    return first, first[:, None] + torch.minimum(point[: int(count.max())], count[:, None] - 1)


def distinct(offsets: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct ones of …×2 offsets, and for each offset its index among them.

    At whole-number scales they are few. Two float32 are compared as one int64, which is faster than as rows.
    """
    found, index = torch.unique(offsets.contiguous().view(torch.int64), return_inverse=True)
    return found.view(-1, 1).view(torch.float32), index.squeeze(-1)


def sinusoids(offset: Tensor) -> Tensor:
    """cos and sin of 2ᵏ·offset for ten k, of offsets of some cells brought into [-1, 1]: …×2 → …×40."""
    angles = math.pi * (offset / (RADIUS + 1))[..., None] * 2.0 ** torch.arange(WAVES, device=offset.device)
    return torch.cat([torch.cos(angles), torch.sin(angles)], -1).flatten(-2)


class CLIT(Decoder):
    """Three local attentions, for output pixels four times as large, twice as large, and as they are: each
    corrects the one before, the first the bilinearly enlarged image. 11,597,601 parameters.
    """

    point_bytes, cell_bytes = POINT_BYTES, CELL_BYTES

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
