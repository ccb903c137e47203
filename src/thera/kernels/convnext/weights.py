"""The parameters of a ConvNeXt block in the form its kernels read, and their gradients: one launch each way.

The norm's weight γ and bias β are folded into the first matrix: w₁(γu + β) + b₁ = (w₁γ)u + (w₁β + b₁).
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

TAPS = 9
FOLD_ROWS = 8  # of w₁, per program
NORM_CHANNELS, NORM_ROWS = 8, 128  # for the norm's gradients: channels per program, rows of w₁ at a time


class Folded(NamedTuple):
    """What the kernels read. The two matrices have the dtype of the products, the rest is float32."""

    taps: Tensor  # 9×d
    w1: Tensor  # 4d×d
    b1: Tensor  # 4d
    w2: Tensor  # d×4d

    @classmethod
    def empty(cls, w1: Tensor, operand: torch.dtype) -> "Folded":
        hidden, d = w1.shape
        taps, b1 = (w1.new_empty(shape, dtype=torch.float32) for shape in ((TAPS, d), (hidden,)))
        w1, w2 = (w1.new_empty(shape, dtype=operand) for shape in ((hidden, d), (d, hidden)))
        return cls(taps, w1, b1, w2)


@triton.jit
def _fold(
    depthwise, gamma, beta, w1, b1, w2, taps, w1_out, b1_out, w2_out,
    D: tl.constexpr, HIDDEN: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """A program folds BR rows of w₁ and copies as many numbers of w₂; the last programs copy one tap each."""
    program = tl.program_id(0)
    c = tl.arange(0, BD)
    real = c < D
    if program < HIDDEN // BR:
        r = program * BR + tl.arange(0, BR)
        at, inside = r[:, None] * D + c[None, :], real[None, :]
        w = tl.load(w1 + at, inside, 0.0).to(tl.float32)
        offset = tl.sum(w * tl.load(beta + c, real, 0.0).to(tl.float32)[None, :], 1)
        tl.store(b1_out + r, tl.load(b1 + r).to(tl.float32) + offset)
        w *= tl.load(gamma + c, real, 0.0).to(tl.float32)[None, :]
        tl.store(w1_out + at, w.to(w1_out.dtype.element_ty), inside)
        w = tl.load(w2 + at, inside, 0.0).to(tl.float32)
        tl.store(w2_out + at, w.to(w2_out.dtype.element_ty), inside)
    else:
        i = program - HIDDEN // BR
        tl.store(taps + i * D + c, tl.load(depthwise + c * TAPS + i, real, 0.0).to(tl.float32), real)


@triton.jit
def _unfold_norm(
    sums, gbias, w1, ggamma, gbeta, first,
    D: tl.constexpr, HIDDEN: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The norm's gradients in BC channels: ∂γ = Σ ∂(w₁γ)·w₁ and ∂β = Σ ∂b₁·w₁ over the rows."""
    c = first + tl.arange(0, BC)
    scale = tl.zeros((BR, BC), tl.float32)
    offset = tl.zeros((BR, BC), tl.float32)
    for start in range(0, HIDDEN, BR):
        r = start + tl.arange(0, BR)
        at, inside = r[:, None] * D + c[None, :], (r < HIDDEN)[:, None]
        w = tl.load(w1 + at, inside, 0.0).to(tl.float32)
        scale += w * tl.load(sums + at, inside, 0.0)
        offset += w * tl.load(gbias + r, r < HIDDEN, 0.0)[:, None]
    tl.store(ggamma + c, tl.sum(scale, 0))
    tl.store(gbeta + c, tl.sum(offset, 0))


@triton.jit
def _unfold(
    sums, gtaps, gamma, beta, w1, gdepthwise, ggamma, gbeta, gw1,
    D: tl.constexpr, HIDDEN: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr, BR: tl.constexpr,
    BD: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """A program computes BC channels of the norm (the slowest, so they start first), BR rows of
    ∂w₁ = ∂(w₁γ)·γ + ∂b₁·β, or one tap."""
    NORMS: tl.constexpr = D // BC
    program = tl.program_id(0)
    gbias = sums + 2 * HIDDEN * D  # after those of w₁ and w₂
    c = tl.arange(0, BD)
    real = c < D
    if program < NORMS:
        _unfold_norm(sums, gbias, w1, ggamma, gbeta, program * BC, D, HIDDEN, BN, BC)
    elif program < NORMS + HIDDEN // BR:
        r = (program - NORMS) * BR + tl.arange(0, BR)
        at, inside = r[:, None] * D + c[None, :], real[None, :]
        g = tl.load(sums + at, inside, 0.0) * tl.load(gamma + c, real, 0.0).to(tl.float32)[None, :]
        g += tl.load(gbias + r)[:, None] * tl.load(beta + c, real, 0.0).to(tl.float32)[None, :]
        tl.store(gw1 + at, g, inside)
    else:
        i = program - NORMS - HIDDEN // BR
        tl.store(gdepthwise + c * TAPS + i, tl.load(gtaps + i * D + c, real, 0.0), real)


def fold(
    depthwise: Tensor, gamma: Tensor, beta: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, operand: torch.dtype
) -> Folded:
    """depthwise: d×1×3×3; gamma, beta: of the norm; operand: the dtype of matrix products."""
    hidden, d = w1.shape
    out = Folded.empty(w1, operand)
    _fold[(hidden // FOLD_ROWS + TAPS,)](
        *(t.contiguous() for t in (depthwise, gamma, beta, w1, b1, w2)), *out,
        D=d, HIDDEN=hidden, BR=FOLD_ROWS, BD=triton.next_power_of_2(d), TAPS=TAPS, num_warps=4,
    )  # fmt: skip
    return out


def unfold(
    sums: Tensor, gtaps: Tensor, gamma: Tensor, beta: Tensor, w1: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """∂depthwise (d×1×3×3), ∂γ, ∂β and ∂w₁ in float32.

    sums: the gradients of the folded w₁, w₂ and b₁ as one vector; gtaps: 9×d or more rows.
    """
    hidden, d = w1.shape
    gdepthwise, gw1 = sums.new_empty(d, 1, 3, 3), sums.new_empty(hidden, d)
    ggamma, gbeta = sums.new_empty(d), sums.new_empty(d)
    _unfold[(d // NORM_CHANNELS + hidden // FOLD_ROWS + TAPS,)](
        sums, gtaps, gamma.contiguous(), beta.contiguous(), w1.contiguous(), gdepthwise, ggamma, gbeta, gw1,
        D=d, HIDDEN=hidden, BC=NORM_CHANNELS, BN=NORM_ROWS, BR=FOLD_ROWS, BD=triton.next_power_of_2(d),
        TAPS=TAPS, num_warps=4,
    )  # fmt: skip
    return gdepthwise, ggamma, gbeta, gw1
