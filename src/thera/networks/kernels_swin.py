"""Triton kernels for the Swin layer, x + attention(norm x) and then x + mlp(norm x), and its gradients.

A layer in training moves activations far more than it computes with them. Everything between its matrix
products is one pass here, and three things are no pass at all:

- Shifted windows are never gathered: pixels stay in the image's order, and the attention kernel knows where
  the 64 pixels of its window lie and which of them the cyclic shift brought together.
- Norms' weights and all biases are parts of the matrices (`kernels_swin_weights`), the biases against a
  surplus channel held at one: they and their gradients come out of the same matrix products.
- Stochastic depth multiplies what enters a branch's last product, with the ones of its bias column.

The plain form beside which all this is tested is `swinir.SwinLayer`.
"""

# mypy: disallow-untyped-defs=False
# A kernel's arguments have no types; those in capitals are compile-time constants, as Triton writes them.

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from thera.networks.kernels_swin_attention import attention, attention_backward
from thera.networks.kernels_swin_products import expand, expand_backward, holds_rows, product_sum_norm
from thera.networks.kernels_swin_weights import Folded, Parameters, fold, unfold
from thera.networks.swinir import ALIGNED_WIDTH, WIDTH, SwinLayer


@triton.jit(do_not_specialize=["M"])
def _norm(
    x, y, total, unit, rstd, M, eps,
    ADD: tl.constexpr, D: tl.constexpr, D_OUT: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """unit = (x - mean)/σ with a one behind it; where ADD, of total = x + y."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, BD)
    ok = rows < M
    inside = ok[:, None] & (c < D_OUT)[None, :]
    at = rows.to(tl.int64)[:, None] * D_OUT + c[None, :]
    v = tl.load(x + at, inside, 0.0).to(tl.float32)
    if ADD:
        v += tl.load(y + at, inside, 0.0).to(tl.float32)
        short = v.to(total.dtype.element_ty)
        tl.store(total + at, short, inside)
        v = short.to(tl.float32)
    v = tl.where((c < D)[None, :], v - tl.sum(v, 1)[:, None] / D, 0.0)  # surplus channels of x are zero
    r = tl.rsqrt(tl.sum(v * v, 1) / D + eps)
    u = tl.where((c == D)[None, :], 1.0, v * r[:, None])
    tl.store(unit + at, u.to(unit.dtype.element_ty), inside)
    tl.store(rstd + rows, r, ok)


@triton.jit(do_not_specialize=["M"])
def _norm_backward(
    gunit, unit, rstd, gout, gx, M,
    D: tl.constexpr, D_OUT: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """gx = gout, past the branch, and what comes back through its norm."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, BD)
    ok = rows < M
    inside = ok[:, None] & (c < D_OUT)[None, :]
    real = (c < D)[None, :]
    at = rows.to(tl.int64)[:, None] * D_OUT + c[None, :]
    # 180 channels are no whole number of 16-byte loads: the surplus is loaded too, then forgotten.
    gu = tl.where(real, tl.load(gunit + at, inside, 0.0).to(tl.float32), 0.0)
    u = tl.where(real, tl.load(unit + at, inside, 0.0).to(tl.float32), 0.0)
    g = tl.load(gout + at, inside, 0.0).to(tl.float32)
    back = gu - tl.sum(gu, 1)[:, None] / D - u * (tl.sum(gu * u, 1)[:, None] / D)
    g += tl.where(real, back, 0.0) * tl.load(rstd + rows, ok, 0.0)[:, None]
    tl.store(gx + at, g.to(gx.dtype.element_ty), inside)


class Saved(NamedTuple):
    """What the backward pass needs of the forward pass."""

    weights: Folded
    unit1: Tensor  # M×192, as all but those marked
    rstd1: Tensor  # M
    qkv: Tensor  # M×576
    attended: Tensor
    logsum: Tensor  # M×6, window by window: the logarithms that make the attention's rows sum to one
    unit2: Tensor
    rstd2: Tensor  # M
    hidden: Tensor  # M×384, before the activation
    activated: Tensor  # M×384


# Of the passes where one row is a pixel's 192 channels. benchmarks/kernels_swin.py times others.
ROW_SIZES = {"D": WIDTH, "D_OUT": ALIGNED_WIDTH, "BM": 16, "BD": triton.next_power_of_2(ALIGNED_WIDTH)}


def norm(x: Tensor, y: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """x + y (x itself without y), normalised with a one behind it, and 1/σ. x, y: M×192."""
    M = x.shape[0]
    total, unit = (x if y is None else torch.empty_like(x)), torch.empty_like(x)
    rstd = x.new_empty(M, dtype=torch.float32)
    _norm[(triton.cdiv(M, ROW_SIZES["BM"]),)](
        x, y, total, unit, rstd, M, eps, ADD=y is not None, num_warps=4, **ROW_SIZES
    )
    return total, unit, rstd


def norm_backward(gunit: Tensor, unit: Tensor, rstd: Tensor, gout: Tensor) -> Tensor:
    """The gradient at x of a branch that begins with `norm` and of the way past it. All M×192."""
    M, gx = gunit.shape[0], torch.empty_like(gout)
    _norm_backward[(triton.cdiv(M, ROW_SIZES["BM"]),)](
        gunit, unit, rstd, gout, gx, M, num_warps=4, **ROW_SIZES
    )
    return gx


def add_and_norm(x: Tensor, rows: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """`norm` of x and rows weightᵀ."""
    if holds_rows(x):
        return product_sum_norm(x, rows, weight, eps)
    return norm(x, rows @ weight.T, eps)


def forward(x: Tensor, keep: Tensor | None, shift: int, eps: float, p: Parameters) -> tuple[Tensor, Saved]:
    """The layer. x: N×H×W×192; keep: 2×N, what stochastic depth multiplies each branch by."""
    N, H, W, d = x.shape
    keep1, keep2 = (None, None) if keep is None else keep
    weights = fold(p, x.dtype)
    x, unit1, rstd1 = norm(x.reshape(-1, d), None, eps)
    qkv = unit1 @ weights.qkv.T
    attended, logsum = attention(qkv, p.table, keep1, shift, H, W)
    x, unit2, rstd2 = add_and_norm(x, attended, weights.proj, eps)
    hidden, activated = expand(unit2, weights.expand, keep2, H * W)
    out = x.addmm_(activated, weights.project.T)  # the backward pass needs `unit2`, not x
    return out.view(N, H, W, d), Saved(
        weights, unit1, rstd1, qkv, attended, logsum, unit2, rstd2, hidden, activated
    )


def backward(
    gout: Tensor, keep: Tensor | None, shift: int, p: Parameters, saved: Saved
) -> tuple[Tensor, Parameters]:
    N, H, W, d = gout.shape
    keep1, keep2 = (None, None) if keep is None else keep
    g, s, w = gout.reshape(-1, d), saved, saved.weights
    gproject = g.T @ s.activated
    ghidden = expand_backward(g, w.project, s.hidden, keep2, H * W)
    gexpand = ghidden.T @ s.unit2
    g = norm_backward(ghidden @ w.expand, s.unit2, s.rstd2, g)
    gproj = g.T @ s.attended
    gqkv, gposition = attention_backward(g @ w.proj, s.qkv, s.logsum, p.table, keep1, shift, H, W)
    gweight = gqkv.T @ s.unit1
    g = norm_backward(gqkv @ w.qkv, s.unit1, s.rstd1, g)
    return g.view(N, H, W, d), unfold(p, Folded(gweight, gproj, gexpand, gproject), gposition)


class Layer(torch.autograd.Function):
    """The layer with its gradients: x, keep, shift and eps as in `forward`, and the 13 parameters."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, keep: Tensor | None, shift: int, eps: float, *parameters: Tensor
    ) -> Tensor:
        out, saved = forward(x, keep, shift, eps, Parameters(*parameters))
        ctx.save_for_backward(keep, *parameters, *saved.weights, *saved[1:])
        ctx.shift = shift
        return out

    @staticmethod
    def backward(ctx: Any, gout: Tensor) -> tuple[Tensor | None, ...]:
        keep, *rest = ctx.saved_tensors
        parameters, weights, others = Parameters(*rest[:13]), Folded(*rest[13:17]), rest[17:]
        g, gparameters = backward(gout, keep, ctx.shift, parameters, Saved(weights, *others))
        return g, None, None, None, *gparameters


@torch.compiler.disable
def swin_layer(layer: SwinLayer, x: Tensor, keep: Tensor | None, operand: torch.dtype) -> Tensor:
    """The layer as one operation. x: N×H×W×192; keep as in `SwinLayer`; `operand`: what products take.

    It has nothing for a compiler to gain.
    """
    parameters = Parameters.of(layer)
    x = x.to(operand).contiguous()
    keep = None if keep is None else keep.flatten(1).contiguous()
    with torch.autocast(x.device.type, enabled=False), torch.cuda.device_of(x):
        if torch.is_grad_enabled():
            return Layer.apply(x, keep, layer.shift, layer.norm1.eps, *parameters)
        return forward(x, keep, layer.shift, layer.norm1.eps, parameters)[0]
