"""The objective: the distance between field and image, and the field's total variation and seams at t = 0."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from thera.networks import Thera
from thera.networks.heat import field_values
from thera.networks.spec import STD
from thera.training.config import Objective
from thera.training.data import Batch

EPSILON = 1e-6  # keeps the root differentiable where a patch is flat; an eighth of a grey level
SEAMED = 8  # one patch in so many has its seams looked at


def seams(network: Thera, features: Tensor, image: Tensor) -> Tensor:
    """How far Φ(x, 0) jumps from a cell to the next: the mean over all borders, at one place on each.

    features: N×C×H×W, image: N×3×H×W. The total variation of a field that is whole counts these jumps, too;
    at scales far beyond those of training they are what shows.
    """
    N, _, H, W = image.shape
    x = image.new_full((H, W, 4, 2), 0.5)  # on the bottom, top, right and left border
    x[..., 1, 0] = x[..., 3, 1] = -0.5
    x[..., :2, 1] = (torch.rand(W, device=x.device) - 0.5).view(1, W, 1)
    x[..., 2:, 0] = (torch.rand(H, device=x.device) - 0.5).view(H, 1, 1)
    value, _ = field_values(network, features, x.expand(N, -1, -1, -1, -1).contiguous(), x.new_zeros(N))
    bottom, top, right, left = (value + image.permute(0, 2, 3, 1).unsqueeze(3) / STD).unbind(3)
    jumps = bottom[:, :-1] - top[:, 1:], right[:, :, :-1] - left[:, :, 1:]
    return torch.stack([jump.abs().mean() for jump in jumps]).mean()


def in_four_turns(batch: Batch) -> Batch:
    """The patches, then the same patches a quarter turn on, and so on: 4N."""
    turns, x = range(4), [batch.x]
    for _ in turns[1:]:
        down, across = torch.rot90(x[-1], 1, (1, 2)).unbind(-1)
        x.append(torch.stack([-across, down], dim=-1))
    source = torch.cat([torch.rot90(batch.source, k, (2, 3)) for k in turns])
    target = torch.cat([torch.rot90(batch.target, k, (1, 2)) for k in turns])
    return Batch(source, target, torch.cat(x), batch.t.repeat(4))


def mean_of_turns(error: Tensor) -> Tensor:
    """4N×H×W×… of patches `in_four_turns` → N×H×W×…, each turned back."""
    return sum(torch.rot90(e, -k, (1, 2)) for k, e in enumerate(error.chunk(4))) / 4  # type: ignore[return-value]


def norm(error: Tensor, loss: str) -> Tensor:
    if loss == "l1":
        return error.abs().mean()
    squares = error.square().flatten(1 if loss == "rms" else 0)
    return (squares.mean(-1) + EPSILON).sqrt().mean()


def distance(batch: Batch, value: Tensor, slope: Tensor, config: Objective) -> tuple[Tensor, Tensor]:
    """The loss to minimise, and the L1 distance in image units. value: Φ - I, slope: ∇Φ(x, 0)."""
    pixel = batch.source.permute(0, 2, 3, 1).unsqueeze(3)
    error = value - (batch.target - pixel) / STD
    l1 = norm(error, "l1")
    loss = l1 if config.loss == "l1" else norm(error, config.loss)
    if config.together:
        loss = torch.lerp(loss, norm(mean_of_turns(error), config.loss), config.together)
    if config.tv:
        loss = loss + config.tv * slope.abs().mean()
    return loss, l1.detach() * STD


@cache
def compiled_distance() -> Callable[..., tuple[Tensor, Tensor]]:
    """Two dozen small kernels as four."""
    return torch.compile(distance, dynamic=False)


def objective(network: Thera, batch: Batch, config: Objective) -> tuple[Tensor, Tensor]:
    """The loss to minimise, and the L1 distance in image units."""
    if config.together:
        batch = in_four_turns(batch)
    features = network.features(batch.source)
    value, slope = field_values(network, features, batch.x, batch.t)
    loss, l1 = (compiled_distance() if value.is_cuda else distance)(batch, value, slope, config)
    if config.seam:
        some = -(-len(features) // SEAMED)
        loss = loss + config.seam * seams(network, features[:some], batch.source[:some])
    return loss, l1
