"""The objective: the distance between field and image, and the field's total variation at t = 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from thera.networks import Network, Thera
from thera.networks.network import at_cells
from thera.networks.spec import STD
from thera.training.alignment import Aligner, aligned_pairs
from thera.training.config import Objective
from thera.training.data import Batch

EPSILON = 1e-6  # keeps the root differentiable where the error is 0; its root is an eighth of a grey level


def four_rotations(batch: Batch) -> Batch:
    """4N patches: the batch rotated by 0, 1, 2 and 3 quarter turns."""
    turns, x = range(4), [batch.x]
    for _ in turns[1:]:
        down, across = torch.rot90(x[-1], 1, (1, 2)).unbind(-1)
        x.append(torch.stack([-across, down], dim=-1))
    source = torch.cat([torch.rot90(batch.source, k, (2, 3)) for k in turns])
    target = torch.cat([torch.rot90(batch.target, k, (1, 2)) for k in turns])
    weight = None
    if batch.weight is not None:
        weight = torch.cat([torch.rot90(batch.weight, k, (1, 2)) for k in turns])
    return Batch(source, target, torch.cat(x), batch.t.repeat(4), weight=weight)


def ensemble_mean(values: Tensor) -> Tensor:
    """N×H×W×… mean over the rotations, from the 4N×H×W×… values (or errors) of `four_rotations`."""
    return sum(torch.rot90(v, -k, (1, 2)) for k, v in enumerate(values.chunk(4))) / 4  # type: ignore[return-value]


def norm(error: Tensor, loss: str) -> Tensor:
    if loss == "l1":
        return error.abs().mean()
    squares = error.square().flatten(1 if loss == "rms" else 0)
    return (squares.mean(-1) + EPSILON).sqrt().mean()


def distance(batch: Batch, value: Tensor, slope: Tensor | None, config: Objective) -> tuple[Tensor, Tensor]:
    """The loss to minimise, and the L1 distance in image units. value: Φ - I, slope: ∇Φ(x, 0) if known."""
    pixel = batch.source.permute(0, 2, 3, 1).unsqueeze(3)
    error = value - (batch.target - pixel) / STD
    if batch.weight is not None:
        error = error * batch.weight
    l1 = norm(error, "l1")
    loss = l1 if config.loss == "l1" else norm(error, config.loss)
    if config.ensemble_weight:
        loss = torch.lerp(loss, norm(ensemble_mean(error), config.loss), config.ensemble_weight)
    if config.tv and slope is not None:
        loss = loss + config.tv * slope.abs().mean()
    return loss, l1.detach() * STD


@cache
def compiled_distance() -> Callable[..., tuple[Tensor, Tensor]]:
    """`distance` compiled: four kernels instead of two dozen."""
    return torch.compile(distance, dynamic=False)


def objective(
    network: Network, batch: Batch, config: Objective, aligner: Aligner | None = None
) -> tuple[Tensor, Tensor]:
    """The loss to minimise, and the L1 distance in image units."""
    if config.ensemble_weight:
        batch = four_rotations(batch)
    features = network.features(batch.source)
    slope: Tensor | None
    if batch.cell is not None:
        value, slope = network.scattered_field(features, batch.source, batch.cell, batch.x, batch.t)
        batch = replace(batch, source=at_cells(batch.source, batch.cell), cell=None)
        return distance(batch, value, slope, config)
    if aligner is not None and isinstance(network, Thera):
        batch, value, slope = aligned_pairs(network, features, batch, aligner)
    else:
        value, slope = network.field(features, batch.source, batch.x, batch.t)
    return (compiled_distance() if value.is_cuda else distance)(batch, value, slope, config)
