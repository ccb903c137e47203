"""The norms of the Swin layer: normalisation, alone or after a sum.

| kernel | computes |
| --- | --- |
| norm | x normalised; or total = x + y and total normalised |
| product, sum and norm | total = x + rows wᵀ and total normalised |

"product, sum and norm" keeps whole rows, which it needs for the sums over the channels, in shared memory:
`can_keep_rows` says where it can run. The plain form is `thera.networks.swinir.LayerNorm`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thera.kernels.available import can_run_large_kernels
from thera.kernels.common import INTERPRETED, Tile, matmul_precision
from thera.kernels.swin.sizes import ALIGNED_WIDTH, WIDTH

# benchmarks/kernels_swin.py compares these with others.
NORM = Tile(pixels=16, channels=triton.next_power_of_2(ALIGNED_WIDTH), warps=4)
SUM_NORM = Tile(pixels=64, channels=ALIGNED_WIDTH, depth=64, warps=4, stages=3)
FIRST = 128  # A matrix must be a power of two wide: 192 channels are 128 and 64 of them.


@triton.jit(do_not_specialize=["M"])
def _norm(
    x, y, total, unit, rstd, M, eps,
    ADD: tl.constexpr, D: tl.constexpr, D_OUT: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """unit = (x - mean)/σ, followed by a one; if ADD, of total = x + y instead of x."""
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
def _product_sum_norm(
    rows, weight, x, total, unit, rstd, M, eps,
    K: tl.constexpr, D: tl.constexpr, D_OUT: tl.constexpr, PRECISION: tl.constexpr, FIRST: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """total = x + rows · weightᵀ, and unit and 1/σ as in `_norm`. rows: M×K, weight: D_OUT×K."""
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    row, ok = r.to(tl.int64)[:, None], (r < M)[:, None]
    c0, c1 = tl.arange(0, FIRST), FIRST + tl.arange(0, D_OUT - FIRST)
    v0 = tl.zeros((BM, FIRST), tl.float32)
    v1 = tl.zeros((BM, D_OUT - FIRST), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        y, w = tl.load(rows + row * K + k[None, :], ok, 0.0), weight + k[:, None]
        v0 = tl.dot(y, tl.load(w + c0[None, :] * K), v0, input_precision=PRECISION)
        v1 = tl.dot(y, tl.load(w + c1[None, :] * K), v1, input_precision=PRECISION)
    at0, at1 = row * D_OUT + c0[None, :], row * D_OUT + c1[None, :]
    v0 = (v0 + tl.load(x + at0, ok, 0.0).to(tl.float32)).to(total.dtype.element_ty)
    v1 = (v1 + tl.load(x + at1, ok, 0.0).to(tl.float32)).to(total.dtype.element_ty)
    tl.store(total + at0, v0, ok)
    tl.store(total + at1, v1, ok)
    v0, v1 = v0.to(tl.float32), v1.to(tl.float32)
    mean = (tl.sum(v0, 1) + tl.sum(v1, 1))[:, None] / D  # surplus channels are zero
    v0, v1 = v0 - mean, tl.where((c1 < D)[None, :], v1 - mean, 0.0)
    s = tl.rsqrt((tl.sum(v0 * v0, 1) + tl.sum(v1 * v1, 1)) / D + eps)
    v1 = tl.where((c1 == D)[None, :], 1.0, v1 * s[:, None])
    tl.store(unit + at0, (v0 * s[:, None]).to(unit.dtype.element_ty), ok)
    tl.store(unit + at1, v1.to(unit.dtype.element_ty), ok)
    tl.store(rstd + r, s, r < M)


def can_keep_rows(t: Tensor) -> bool:
    """True if `product_sum_norm` can run: for 16-bit formats, on a GPU with enough shared memory."""
    return bool(INTERPRETED) or (t.dtype != torch.float32 and can_run_large_kernels())


def norm(x: Tensor, y: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """total = x + y (or x), total normalised and followed by a one, and 1/σ. x, y: M×192."""
    M = x.shape[0]
    total, unit = (x if y is None else torch.empty_like(x)), torch.empty_like(x)
    rstd = x.new_empty(M, dtype=torch.float32)
    _norm[(triton.cdiv(M, NORM.pixels),)](
        x, y, total, unit, rstd, M, eps, ADD=y is not None, D=WIDTH, D_OUT=ALIGNED_WIDTH,
        BM=NORM.pixels, BD=NORM.channels, num_warps=NORM.warps,
    )  # fmt: skip
    return total, unit, rstd


def product_sum_norm(x: Tensor, rows: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """total = x + rows weightᵀ, total normalised and followed by a one, and 1/σ. x: M×192."""
    M, total, unit = x.shape[0], torch.empty_like(x), torch.empty_like(x)
    rstd = x.new_empty(M, dtype=torch.float32)
    _product_sum_norm[(triton.cdiv(M, SUM_NORM.pixels),)](
        rows, weight, x, total, unit, rstd, M, eps, K=rows.shape[1], D=WIDTH, D_OUT=ALIGNED_WIDTH,
        PRECISION=matmul_precision(rows.dtype), FIRST=FIRST, BM=SUM_NORM.pixels, BK=SUM_NORM.depth,
        **SUM_NORM.launch(),
    )  # fmt: skip
    return total, unit, rstd


def add_and_norm(x: Tensor, rows: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """`product_sum_norm`, or the same in two passes where that cannot run."""
    if can_keep_rows(x):
        return product_sum_norm(x, rows, weight, eps)
    return norm(x, rows @ weight.T, eps)
