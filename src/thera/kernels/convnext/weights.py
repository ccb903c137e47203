"""The parameters of a ConvNeXt block in the form its kernels read, and their gradients.

The norm's weight γ and bias β are folded into the first matrix: w₁(γu + β) + b₁ = (w₁γ)u + (w₁β + b₁).
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Folded(NamedTuple):
    """What the kernels read. The two matrices have the dtype of the products, the rest is float32."""

    taps: Tensor  # 9×d
    w1: Tensor  # 4d×d
    b1: Tensor  # 4d
    w2: Tensor  # d×4d


def fold(
    depthwise: Tensor, gamma: Tensor, beta: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, operand: torch.dtype
) -> Folded:
    """depthwise: d×1×3×3; gamma, beta: of the norm; operand: the dtype of matrix products."""
    depthwise, gamma, beta, wide, b1 = (t.float() for t in (depthwise, gamma, beta, w1, b1))
    taps, b1 = depthwise.flatten(1).T.contiguous(), (wide * beta).sum(1) + b1
    return Folded(taps, (wide * gamma).to(operand), b1, w2.to(operand, copy=True).contiguous())


def unfold(
    sums: Tensor, gtaps: Tensor, gamma: Tensor, beta: Tensor, w1: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """∂depthwise (d×1×3×3), ∂γ, ∂β and ∂w₁ in float32.

    sums: the gradients of the folded w₁, w₂ and b₁ as one vector; gtaps: 9×d or more rows.
    """
    gfolded, gbias = sums[: w1.numel()].view_as(w1), sums[2 * w1.numel() :]
    gdepthwise = gtaps[:9].T.contiguous().view(-1, 1, 3, 3)
    return (
        gdepthwise,
        (gfolded * w1).sum(0),
        (gbias[:, None] * w1).sum(0),
        gfolded * gamma + gbias[:, None] * beta,
    )
