"""The protocol of a decoder, and what several of them share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thera.networks.network import MLP, Points

WIDTH = 64  # channels of a backbone's features


class Decoder(nn.Module):
    """From a backbone's features to colours, in units of the normalised image.

    Offsets are in cells times two, as in the published codes: [-1, 1] across a cell.
    """

    point_bytes = 12_000  # of working memory for each point
    cell_bytes = 0  # and for each cell with points in it, where points of a cell share work
    together = False  # whether a colour depends on all points that are asked for

    def maps(self, features: Tensor, image: Tensor) -> Any:
        """What does not depend on the points, from features (N×64×H×W) and the normalised image (N×3×H×W)."""
        return features

    def forward(self, maps: Any, points: Points) -> Tensor:
        """N×Q×3."""
        raise NotImplementedError


class Corner(NamedTuple):
    """One of the four cells around each point."""

    cell: Tensor  # N×Q, row · W + column
    offset: Tensor  # N×Q×2, the point from the centre of the cell, in cells times two
    weight: Tensor  # N×Q, the area of the opposite rectangle: the four sum to 1


def within(cell: Tensor, shape: torch.Size | tuple[int, int]) -> Tensor:
    """Cells (…×2) clamped to a picture of this shape.

    The bounds are plain numbers, because a CUDA graph cannot read tensors on the host.
    """
    return torch.stack([cell[..., 0].clamp(0, shape[-2] - 1), cell[..., 1].clamp(0, shape[-1] - 1)], -1)


def corners(at: Tensor, shape: torch.Size | tuple[int, int]) -> Iterator[Corner]:
    """The four cells whose centres surround each point; at the border of the picture a cell stands twice."""
    low = torch.floor(at - 0.5 + 1e-6)
    cells = [within(cell, shape) for cell in (low, low + 1)]
    offsets = [2 * (at - cell - 0.5) for cell in cells]
    near, far = (offset.abs() + 1e-9 for offset in offsets)
    shares = far / (near + far), near / (near + far)
    for i in (0, 1):
        for j in (0, 1):
            index = cells[i][..., 0] * shape[-1] + cells[j][..., 1]
            offset = torch.stack([offsets[i][..., 0], offsets[j][..., 1]], -1)
            yield Corner(index.long(), offset, shares[i][..., 0] * shares[j][..., 1])


def nearest(at: Tensor, shape: torch.Size | tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The index of the cell that each point lies in (N×Q), and its offset there, in cells times two."""
    cell = within(torch.floor(at), shape)
    return (cell[..., 0] * shape[-1] + cell[..., 1]).long(), 2 * (at - cell - 0.5)


def gather(maps: Tensor, index: Tensor) -> Tensor:
    """N×Q×C: the values of N×C×H×W maps in the cells of `index` (N×Q).

    In training they pass through float32, so that gradients of points in the same cell are summed up in it.
    """
    N, C, H, W = maps.shape
    first = torch.arange(N, device=index.device)[:, None] * (H * W)
    cells = table(maps).float() if maps.requires_grad else table(maps)
    return cells.index_select(0, (index + first).flatten()).view(N, -1, C).to(maps.dtype)


def table(maps: Tensor) -> Tensor:
    """N×C×H×W maps with a row for each cell, N·H·W×C: no copy where the channels lie side by side."""
    return maps.permute(0, 2, 3, 1).reshape(-1, maps.shape[1])


def unfold(maps: Tensor) -> Tensor:
    """N×9C×H×W: each cell's 3×3 surroundings, zeros outside; channel by channel, then row by row."""
    return F.unfold(maps, 3, padding=1).unflatten(2, maps.shape[2:])


def linear_in(x: Tensor, layer: nn.Linear) -> Tensor:
    """`layer` of a few numbers, in float32 whatever autocast says: positions need it."""
    with torch.autocast(x.device.type, enabled=False):
        return layer(x.float())


def linear2(x: Tensor, weight: Tensor) -> Tensor:
    """x (…×2) times the transposed weight (C×2), in float32 whatever autocast says: positions need it."""
    return x[..., :1] * weight[:, 0].float() + x[..., 1:] * weight[:, 1].float()


def bilinear(image: Tensor, at: Tensor) -> Tensor:
    """N×Q×C: the bilinearly enlarged image at points, with its border pixels continued."""
    grid = torch.stack([2 * at[..., 1] / image.shape[3] - 1, 2 * at[..., 0] / image.shape[2] - 1], -1)
    sampled = F.grid_sample(image.float(), grid[:, None], padding_mode="border", align_corners=False)
    return sampled[:, :, 0].transpose(1, 2)


class CellMLP(nn.Module):
    """A perceptron of (maps of a cell, offset, size of the output pixel).

    The first layer is linear in the maps: that part is computed once for each cell, not for each point.
    """

    def __init__(self, channels: int, hidden: int, *widths: int) -> None:
        super().__init__()
        self.first = nn.Linear(channels + 4, hidden)
        self.mlp = MLP(hidden, *widths)

    def maps(self, cells: Tensor) -> Tensor:
        """N×C×H×W → N×hidden×H×W."""
        return F.conv2d(cells, self.first.weight[:, :-4, None, None], self.first.bias)

    def forward(self, maps: Tensor, cell: Tensor, offset: Tensor, step: Tensor) -> Tensor:
        by_offset, by_size = self.first.weight[:, -4:].split(2, dim=1)
        hidden = gather(maps, cell) + linear2(offset, by_offset) + linear2(2 * step, by_size)
        return self.mlp(torch.relu(hidden))
