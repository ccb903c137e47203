"""The heat field as training sees it: values at scattered points, and the gradient at t = 0."""

from __future__ import annotations

import torch
from torch import Tensor


def heat_field(
    amplitude: Tensor, phase: Tensor, components: Tensor, kappa: Tensor, x: Tensor, t: Tensor
) -> tuple[Tensor, Tensor]:
    """Φ(x, t) - I and ∇Φ(x, 0).

    amplitude: …×3×c, phase: …×c, components: 2×c or …×2×c, x: …×2, t: …
    Returns …×3 and …×3×2. The argument w·x + φ reaches ±25 radians: it is float32 whatever the rest is.
    """
    w1, w2 = components.float().unbind(-2)
    z = w1 * x[..., :1] + w2 * x[..., 1:] + phase.float()
    decay = torch.exp(-(w1 * w1 + w2 * w2) * kappa * t[..., None])
    amplitude = amplitude.float()
    value = (amplitude * (torch.sin(z) * decay)[..., None, :]).sum(-1)
    slope = amplitude * torch.cos(z)[..., None, :]
    return value, torch.stack([(slope * w[..., None, :]).sum(-1) for w in (w1, w2)], dim=-1)


def relu_field(amplitude: Tensor, phase: Tensor, components: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The paper's ablation: the same perceptron with a ReLU, which knows no scale."""
    w1, w2 = components.float().unbind(-2)
    z = w1 * x[..., :1] + w2 * x[..., 1:] + phase.float()
    amplitude = amplitude.float()
    value = (amplitude * torch.relu(z)[..., None, :]).sum(-1)
    slope = amplitude * (z > 0)[..., None, :]
    return value, torch.stack([(slope * w[..., None, :]).sum(-1) for w in (w1, w2)], dim=-1)
