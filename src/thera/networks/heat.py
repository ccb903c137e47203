"""The heat field as training sees it: values at scattered points, and the gradient at t = 0."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from thera.kernels.available import TRITON, matmul_dtype

if TYPE_CHECKING:
    from thera.networks.thera import Thera

LN2 = math.log(2)
KERNEL_COMPONENTS = 32  # the kernels take multiples of this number of components


def gain(rho: Tensor, filter: str) -> Tensor:
    """How much of the amplitude of a frequency w passes, at ρ = |w|²κt.

    At ρ = ln 2 the paper's Gaussian passes half of the amplitude, a Butterworth filter of order 2 half of the
    power, and the ideal low-pass nothing beyond.
    """
    if filter == "butterworth":
        return torch.rsqrt(1 + (rho / LN2) ** 2)
    return (rho <= LN2).to(rho.dtype) if filter == "ideal" else torch.exp(-rho)


def heat_field(
    amplitude: Tensor,
    phase: Tensor,
    components: Tensor,
    kappa: Tensor,
    x: Tensor,
    t: Tensor,
    filter: str = "gaussian",
) -> tuple[Tensor, Tensor]:
    """Φ(x, t) - I and ∇Φ(x, 0).

    amplitude: …×3×c, phase: …×c, components: 2×c or …×2×c, x: …×2, t: …
    Returns …×3 and …×3×2. The argument w·x + φ reaches ±25 radians, so it is always float32.
    """
    w1, w2 = components.float().unbind(-2)
    z = w1 * x[..., :1] + w2 * x[..., 1:] + phase.float()
    decay = gain((w1 * w1 + w2 * w2) * kappa * t[..., None], filter)
    return _weighted_sums(amplitude.float(), torch.sin(z) * decay, torch.cos(z), w1, w2)


def relu_field(amplitude: Tensor, phase: Tensor, components: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """An ablation of the paper: the same perceptron with a ReLU, whose values do not depend on t."""
    w1, w2 = components.float().unbind(-2)
    z = w1 * x[..., :1] + w2 * x[..., 1:] + phase.float()
    return _weighted_sums(amplitude.float(), torch.relu(z), z > 0, w1, w2)


def _weighted_sums(
    amplitude: Tensor, value: Tensor, slope: Tensor, w1: Tensor, w2: Tensor
) -> tuple[Tensor, Tensor]:
    """Σ a·value and its gradient Σ a·slope·w over the components, for all channels."""
    along = amplitude * slope[..., None, :]
    gradient = torch.stack([(along * w[..., None, :]).sum(-1) for w in (w1, w2)], dim=-1)
    return (amplitude * value[..., None, :]).sum(-1), gradient


def field_parameters(network: Thera, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Amplitudes (…×3×c), phases (…×c) and components (2×c, or …×2×c where predicted).

    features: N×C×H×W. Phases are angles of several turns, so they are computed in float32 in any case.
    """
    c = network.spec.components
    f = features.permute(0, 2, 3, 1)
    weight, bias = network.head.weight, network.head.bias
    # Stored as (c, 3), read as (3, c): sums over the components then read consecutive memory.
    w_amplitude = weight[: 3 * c].view(c, 3, -1).transpose(0, 1).reshape(3 * c, -1)
    amplitude = F.linear(f, w_amplitude, bias[: 3 * c].view(c, 3).T.flatten())
    with torch.autocast(f.device.type, enabled=False):
        angles = F.linear(f.float(), weight[3 * c :], bias[3 * c :])
    components = network.components
    if network.spec.predicted_components:
        components = angles[..., c:].unflatten(-1, (2, c))
    return amplitude.unflatten(-1, (3, c)), angles[..., :c], components


def field_values(network: Thera, features: Tensor, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Φ - I and ∇Φ(x, 0) at q points in every cell. features: N×C×H×W, x: N×H×W×q×2, t: N.

    Returns N×H×W×q×3 and N×H×W×q×3×2.
    """
    spec = network.spec
    plain = spec.predicted_components or spec.activation == "relu"
    if TRITON and x.is_cuda and not plain and spec.components % KERNEL_COMPONENTS == 0:
        from thera.kernels.field import Fields

        rows, head = features.permute(0, 2, 3, 1), network.head
        trained = rows, head.weight, head.bias, network.components, network.kappa
        return Fields.apply(*trained, x, t, matmul_dtype(rows), spec.filter)
    amplitude, phase, components = field_parameters(network, features)
    amplitude, phase = amplitude.unsqueeze(3), phase.unsqueeze(3)  # the q points of a cell share them
    if spec.predicted_components:
        components = components.unsqueeze(3)
    if spec.activation == "relu":
        return relu_field(amplitude, phase, components, x)
    return heat_field(amplitude, phase, components, network.kappa, x, t.view(-1, 1, 1, 1), spec.filter)
