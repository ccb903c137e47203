"""SRNO (Wei and Zhang, CVPR 2023): a neural operator, whose attention integrates over the whole output."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thera.networks.decoders.decoder import WIDTH, Decoder, bilinear, corners, gather
from thera.networks.network import Points

HEADS, HEAD = 16, 16
HIDDEN = HEADS * HEAD


class HeadNorm(nn.Module):
    """Layer normalisation of every head's channels, with a scale and shift for each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(HEADS, HEAD)), nn.Parameter(torch.zeros(HEADS, HEAD))

    def forward(self, x: Tensor) -> Tensor:
        """x: …×heads×head."""
        return F.layer_norm(x.float(), (HEAD,)) * self.weight + self.bias


class Galerkin(nn.Module):
    """Attention without a softmax, q (Kᵀ V) / n: linear in the number n of output pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.norm_k, self.norm_v = HeadNorm(), HeadNorm()
        self.expand, self.project = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        """x: N×Q×256."""
        q, k, v = self.qkv(x).unflatten(-1, (HEADS, 3, HEAD)).unbind(-2)
        k, v = self.norm_k(k), self.norm_v(v)
        integral = torch.einsum("nqhi,nqhj->nhij", k, v) / x.shape[1]
        y = x + torch.einsum("nqhi,nhij->nqhj", q.to(integral.dtype), integral).flatten(-2)
        return x + self.project(F.gelu(self.expand(y)))


class SRNO(Decoder):
    """The features of the four cells around each output pixel, weighted by area, with their offsets and the
    size of the pixel, pass two attentions over all output pixels; the result corrects the bilinearly enlarged
    image. 794,883 parameters.
    """

    together = True

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(4 * (WIDTH + 2) + 2, HIDDEN)
        self.attention = nn.Sequential(Galerkin(), Galerkin())
        self.expand, self.project = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, 3)

    def maps(self, features: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
        return features, image

    def forward(self, maps: tuple[Tensor, Tensor], points: Points) -> Tensor:
        features, image = maps
        found = list(corners(points.at, image.shape))
        near = [gather(features, cell) * weight[..., None] for cell, _, weight in found]
        size = (2 * points.step).expand_as(points.at)
        x = self.attention(self.lift(torch.cat([*(offset for _, offset, _ in found), *near, size], -1)))
        return self.project(F.gelu(self.expand(x))).float() + bilinear(image, points.at)
