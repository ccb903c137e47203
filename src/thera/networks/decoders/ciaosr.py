"""CiaoSR (Cao et al., CVPR 2023): attention among the four cells around a point, and across scales."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thera.networks.decoders.decoder import WIDTH, CellMLP, Decoder, corners, gather, nearest, unfold
from thera.networks.network import MLP, Points

UNFOLDED = 9 * WIDTH
BOTH = UNFOLDED + WIDTH  # with the non-local features
HIDDEN = (256,) * 4


class CrossScale(nn.Module):
    """Every cell attends to all cells of the features at half their size: N×64×H×W → N×64×H×W."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Conv2d(WIDTH, WIDTH // 2, 1), nn.Conv2d(WIDTH, WIDTH // 2, 1)
        self.value = nn.Conv2d(WIDTH, WIDTH, 1)

    def forward(self, features: Tensor) -> Tensor:
        half = F.avg_pool2d(features, 2, ceil_mode=True)
        q, k, v = self.query(features), self.key(half), self.value(half)
        q, k, v = (x.flatten(2).transpose(1, 2).unsqueeze(1) for x in (q, k, v))
        # PyTorch computes the scores of all pairs at once unless queries and keys are as wide as values, and
        # the channels of each cell lie side by side.
        q, k = (F.pad(x, (0, WIDTH // 2)) for x in (q, k))
        q, k, v = (x.contiguous() for x in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, scale=(WIDTH // 2) ** -0.5)[:, 0]
        return attended.transpose(1, 2).unflatten(2, features.shape[2:])


class CiaoSR(Decoder):
    """Two perceptrons of (features, offset, size) re-weight the keys and values of the four cells around a
    point. The point's own features choose among them by a softmax, and a third perceptron makes the colour.
    Values also hold features from attention to the picture at half its size. 1,391,683 parameters.
    """

    point_bytes = 40_000

    def __init__(self) -> None:
        super().__init__()
        self.cross_scale = CrossScale()
        self.key = CellMLP(UNFOLDED, *HIDDEN, UNFOLDED)
        self.value = CellMLP(BOTH, *HIDDEN, BOTH)
        self.colour = MLP(BOTH, *HIDDEN, 3)

    def maps(self, features: Tensor, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        both = torch.cat([unfold(features), self.cross_scale(features).to(features.dtype)], 1)
        return both, self.key.maps(both[:, :UNFOLDED]), self.value.maps(both)

    def forward(self, maps: tuple[Tensor, Tensor, Tensor], points: Points) -> Tensor:
        both, keys, values = maps
        own = gather(both, nearest(points.at, both.shape)[0])[..., :UNFOLDED]
        scores, found = [], []
        for cell, offset, _ in corners(points.at, both.shape):
            local = gather(both, cell)
            key = local[..., :UNFOLDED] * self.key(keys, cell, offset, points.step)
            scores.append((own * key).sum(-1) / UNFOLDED**0.5)
            found.append(local * self.value(values, cell, offset, points.step))
        share = torch.softmax(torch.stack(scores, -1).float(), -1)
        return self.colour((torch.stack(found, -1) * share.unsqueeze(-2)).sum(-1))
