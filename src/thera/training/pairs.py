"""Training on pairs of pictures: patches of the low one are inputs, pixels of the high one targets.

A share of each batch can be of ordinary pictures. Pairs of one camera are all blurred alike; a network that
sees nothing else does not learn to look at how sharp its input is, and overdoes sharp ones.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from thera.evaluation.pairs import PicturePair
from thera.training.config import Data
from thera.training.data import Batch, Crops, Sampler, oriented, turned_offsets

PAIRS, PICTURES = "pairs ", "pictures "  # whose random numbers


class PairSampler(Sampler):
    """Draws patches of low pictures, and target pixels of the high ones in their cells."""

    def __init__(self, pairs: list[PicturePair], config: Data, device: torch.device | str = "cpu") -> None:
        with_weights = [np.concatenate([pair.low, pair.weight[..., None]], axis=2) for pair in pairs]
        super().__init__([pair.low for pair in pairs], config, device)
        self.pixels = _flat(with_weights, device)  # the weight is a fourth channel
        self.fine = _flat([pair.high for pair in pairs], device)
        sizes = torch.tensor([pair.high.shape[:2] for pair in pairs])
        areas = sizes.prod(1)
        self.fine_size, self.fine_first = sizes.to(device), (areas.cumsum(0) - areas).to(device)
        self.ratio = torch.tensor([pair.ratio for pair in pairs], dtype=torch.float64, device=device)
        self.shift = torch.tensor([pair.shift for pair in pairs], dtype=torch.float64, device=device)

    def build(self, u: dict[str, Tensor]) -> Batch:
        P = self.config.patch
        which = torch.searchsorted(self.share, u["image"]).clamp_(max=len(self.share) - 1)
        room = torch.stack([self.height[which], self.width[which]], 1) - P
        corner = (u["corner"] * (room + 1)).long()
        cell = torch.arange(P, device=self.device) + corner[..., None]  # N×2×P
        at = self.first[which].view(-1, 1, 1) + cell[:, 0, :, None] * self.width[which].view(-1, 1, 1)
        low = self.pixels[at + cell[:, 1, None, :]]  # N×P×P×4
        grid = torch.stack(
            [cell[:, 0, :, None].expand(-1, -1, P), cell[:, 1, None, :].expand(-1, P, -1)], -1
        ).double()[:, :, :, None]  # N×P×P×1×2
        ratio, shift, size = (t[which].view(-1, 1, 1, 1, 2) for t in (self.ratio, self.shift, self.fine_size))
        first, after = (torch.ceil((grid + k + shift) * ratio - 0.5) for k in (0, 1))
        pixel = torch.minimum(first + torch.floor(u["target"].double() * (after - first)), after - 1)
        inside = ((pixel >= 0) & (pixel < size)).all(-1)
        pixel = torch.minimum(pixel.clamp(min=0), size - 1)
        x = ((pixel + 0.5) / ratio - shift - grid - 0.5).float().clamp(-0.5, 0.5)
        row, column = pixel.long().unbind(-1)
        start = self.fine_first[which].view(-1, 1, 1, 1)
        target = self.fine[start + row * self.fine_size[which][:, 1].view(-1, 1, 1, 1) + column]
        weight = low[..., 3:] / 255 * inside  # N×P×P×q
        t = 1 / self.ratio[which].prod(1).float()
        # In one of eight orientations, as the patches of single pictures.
        side = torch.full_like(which, P)
        begin, down, across = oriented(u["turn"], side, side)
        order = Crops(begin + torch.arange(len(which), device=self.device) * P * P, down, across, side)
        cells = order.indices(P)
        low, target, x, weight = (v.flatten(0, 2)[cells] for v in (low, target, x, weight))
        source = low[..., :3].permute(0, 3, 1, 2) / 255
        return Batch(source, target / 255, turned_offsets(x, u["turn"]), t, weight=weight[..., None])


class MixedSampler:
    """Batches that are pairs first, and then patches of ordinary pictures, all of which count in full."""

    def __init__(self, pairs: PairSampler, pictures: Sampler) -> None:
        self.pairs, self.pictures, self.device = pairs, pictures, pairs.device
        self.count, self.area = pairs.count + pictures.count, pairs.area + pictures.area
        self.config = pairs.config

    def draw(self, n: int) -> dict[str, Tensor]:
        """The random numbers of both parts for n samples, one after the other."""
        paired = self.config.pairs_in(n)
        pairs, pictures = self.pairs.draw(paired), self.pictures.draw(n - paired)
        return _prefixed(PAIRS, pairs) | _prefixed(PICTURES, pictures)

    def build(self, u: dict[str, Tensor]) -> Batch:
        pairs, pictures = self.pairs.build(_without(PAIRS, u)), self.pictures.build(_without(PICTURES, u))
        assert pairs.weight is not None
        return Batch(
            torch.cat([pairs.source, pictures.source]),
            torch.cat([pairs.target, pictures.target]),
            torch.cat([pairs.x, pictures.x]),
            torch.cat([pairs.t, pictures.t]),
            weight=torch.cat([pairs.weight, torch.ones_like(pictures.target[..., :1])]),
            paired=len(pairs.t),
        )


def _prefixed(prefix: str, u: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + key: numbers for key, numbers in u.items()}


def _without(prefix: str, u: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): numbers for key, numbers in u.items() if key.startswith(prefix)}


def _flat(images: list[np.ndarray], device: torch.device | str) -> Tensor:
    return torch.cat([torch.from_numpy(image.reshape(-1, image.shape[2])).to(device) for image in images])
