"""The first half of the Swin layer's mlp, and its gradient: matrix product and activation in one kernel.

| kernel | computes |
| --- | --- |
| expand | hidden = unit wᵀ and keep · gelu(hidden) |
| expand backward | ∂hidden from the gradient after the mlp's second product |

The plain form is the second half of `thera.networks.swinir.SwinLayer.forward`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from thera.kernels.common import Tile, fast_gelu, gelu, gelu_slope, matmul_precision
from thera.kernels.swin.sizes import ALIGNED_HIDDEN, ALIGNED_WIDTH, WIDTH

# benchmarks/kernels_swin.py compares these with others.
EXPAND = Tile(pixels=128, channels=128, depth=64, warps=8, stages=2, registers=128)
EXPAND_BACKWARD = Tile(pixels=128, channels=128, depth=64, warps=8, stages=2)
EXPAND_F32 = Tile(pixels=64, channels=64, depth=32, warps=4, stages=2)


@triton.jit
def _product(
    rows, weight, M, row_stride, column_stride,
    COLUMNS: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """A tile of rows · weight in float32, and its row and column numbers. rows: M×D, weight: D×COLUMNS.

    Programs with the same rows have neighbouring numbers, so that they find the rows in the cache.
    """
    r = tl.program_id(0) // (COLUMNS // BC) * BM + tl.arange(0, BM)
    c = tl.program_id(0) % (COLUMNS // BC) * BC + tl.arange(0, BC)
    k = tl.arange(0, BK)
    ok = (r < M)[:, None]
    a = rows + r.to(tl.int64)[:, None] * D + k[None, :]
    b = weight + k[:, None] * row_stride + c[None, :] * column_stride
    y = tl.zeros((BM, BC), tl.float32)
    for start in range(0, D, BK):
        y = tl.dot(tl.load(a + start, ok, 0.0), tl.load(b + start * row_stride), y, input_precision=PRECISION)
    return y, r, c


@triton.jit
def _kept(keep, r, M, pixels, KEEP: tl.constexpr, BM: tl.constexpr):
    """BM×1: the factor of stochastic depth for each of the rows r."""
    if KEEP:
        return tl.load(keep + r // pixels, r < M, 0.0)[:, None]
    else:
        return tl.full((BM, 1), 1.0, tl.float32)


@triton.jit(do_not_specialize=["M", "pixels"])
def _expand(
    unit, weight, keep, hidden, out, M, pixels,
    KEEP: tl.constexpr, D: tl.constexpr, HIDDEN: tl.constexpr, HIDDEN_OUT: tl.constexpr, FAST: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """hidden = unit · weightᵀ; out = keep · gelu(hidden), with keep itself in the first surplus column."""
    h, r, c = _product(unit, weight, M, 1, D, HIDDEN_OUT, D, PRECISION, BM, BC, BK)
    at, ok = r.to(tl.int64)[:, None] * HIDDEN_OUT + c[None, :], (r < M)[:, None]
    tl.store(hidden + at, h.to(hidden.dtype.element_ty), ok)
    g, _ = gelu(h, FAST)
    g = tl.where((c == HIDDEN)[None, :], 1.0, g) * _kept(keep, r, M, pixels, KEEP, BM)
    tl.store(out + at, g.to(out.dtype.element_ty), ok)


@triton.jit(do_not_specialize=["M", "pixels"])
def _expand_backward(
    gout, weight, keep, hidden, ghidden, M, pixels,
    KEEP: tl.constexpr, D: tl.constexpr, HIDDEN_OUT: tl.constexpr, FAST: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """∂hidden from the gradient after the second product, which has this weight."""
    gg, r, c = _product(gout, weight, M, HIDDEN_OUT, 1, HIDDEN_OUT, D, PRECISION, BM, BC, BK)
    at, ok = r.to(tl.int64)[:, None] * HIDDEN_OUT + c[None, :], (r < M)[:, None]
    h = tl.load(hidden + at, ok, 0.0).to(tl.float32)
    g, s = gelu(h, FAST)
    gg *= gelu_slope(h, g, s) * _kept(keep, r, M, pixels, KEEP, BM)
    tl.store(ghidden + at, gg.to(ghidden.dtype.element_ty), ok)


def _grid(t: Tensor, keep: Tensor | None, tile: Tile) -> tuple[tuple[int], dict[str, Any]]:
    """The grid and the constants of both kernels."""
    tile = EXPAND_F32 if t.dtype == torch.float32 else tile
    constants: dict[str, Any] = {"D": ALIGNED_WIDTH, "HIDDEN_OUT": ALIGNED_HIDDEN, "KEEP": keep is not None}
    constants |= {"PRECISION": matmul_precision(t.dtype), "FAST": fast_gelu(t.dtype)}
    constants |= {"BM": tile.pixels, "BC": tile.channels, "BK": tile.depth} | tile.launch()
    return (ALIGNED_HIDDEN // tile.channels * triton.cdiv(t.shape[0], tile.pixels),), constants


def expand(unit: Tensor, weight: Tensor, keep: Tensor | None, pixels: int) -> tuple[Tensor, Tensor]:
    """hidden = unit weightᵀ, and keep · gelu(hidden) with keep in column 360, both M×384.

    unit: M×192; weight: 384×192; keep: one number for every `pixels` rows.
    """
    M = unit.shape[0]
    hidden, out = unit.new_empty(M, ALIGNED_HIDDEN), unit.new_empty(M, ALIGNED_HIDDEN)
    grid, constants = _grid(unit, keep, EXPAND)
    _expand[grid](unit, weight, keep, hidden, out, M, pixels, HIDDEN=2 * WIDTH, **constants)
    return hidden, out


def expand_backward(gout: Tensor, weight: Tensor, hidden: Tensor, keep: Tensor | None, pixels: int) -> Tensor:
    """∂hidden from gout, the gradient after the second product, which has `weight`: 192×384."""
    ghidden = torch.empty_like(hidden)
    grid, constants = _grid(gout, keep, EXPAND_BACKWARD)
    _expand_backward[grid](gout, weight, keep, hidden, ghidden, gout.shape[0], pixels, **constants)
    return ghidden
