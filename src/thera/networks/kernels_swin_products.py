"""Triton kernels for the matrix products of the Swin layer that take their neighbours along.

| kernel | computes |
| --- | --- |
| expand | hidden = unit wᵀ, keep · gelu(hidden) |
| expand backward | from the gradient behind the second product of the mlp to that before the activation |
| product, sum and norm | total = x + rows wᵀ, and total normalised |

The last holds whole rows, for the sums over channels, and `holds_rows` says where it can run.
"""

# mypy: disallow-untyped-defs=False
# A kernel's arguments have no types; those in capitals are compile-time constants, as Triton writes them.

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from thera.networks.fusing import can_fuse
from thera.networks.kernels_convnext import INTERPRETED, _gelu, _gelu_slope
from thera.networks.swinir import ALIGNED_HIDDEN, ALIGNED_WIDTH, WIDTH


class Tile(NamedTuple):
    """How a matrix product is cut."""

    rows: int
    columns: int
    depth: int  # at a time
    warps: int
    stages: int  # of the software pipeline
    registers: int | None = None  # at most, to a thread

    def launch(self) -> dict[str, int | None]:
        return {"num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers}


# benchmarks/kernels_swin.py times these and their alternatives.
EXPAND, EXPAND_BACKWARD = Tile(128, 128, 64, 8, 2, 128), Tile(128, 128, 64, 8, 2)
EXPAND_F32 = Tile(64, 64, 32, 4, 2)
SUM_NORM = Tile(64, ALIGNED_WIDTH, 64, 4, 3)
FIRST = 128  # of 192 channels: kernels' matrices are powers of two wide, so that a row is two of them


def holds_rows(t: Tensor) -> bool:
    """Whether `product_sum_norm` can run: short operands, and a large shared memory (Hopper's and Blackwell's
    servers)."""
    return INTERPRETED or (t.dtype != torch.float32 and can_fuse())


@triton.jit
def _product(
    rows, weight, M, row_stride, column_stride,
    COLUMNS: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """A tile of rows · weight in float32, and which rows and columns. rows: M×D, weight: D×COLUMNS.

    Programs that share rows are neighbours, and share a cache.
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
    """BM×1: what stochastic depth multiplies each of the rows r by."""
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
    """hidden = unit · weightᵀ; out = keep · gelu(hidden), with keep in the first surplus column."""
    h, r, c = _product(unit, weight, M, 1, D, HIDDEN_OUT, D, PRECISION, BM, BC, BK)
    at, ok = r.to(tl.int64)[:, None] * HIDDEN_OUT + c[None, :], (r < M)[:, None]
    tl.store(hidden + at, h.to(hidden.dtype.element_ty), ok)
    g, _ = _gelu(h, FAST)
    g = tl.where((c == HIDDEN)[None, :], 1.0, g) * _kept(keep, r, M, pixels, KEEP, BM)
    tl.store(out + at, g.to(out.dtype.element_ty), ok)


@triton.jit(do_not_specialize=["M", "pixels"])
def _expand_backward(
    gout, weight, keep, hidden, ghidden, M, pixels,
    KEEP: tl.constexpr, D: tl.constexpr, HIDDEN_OUT: tl.constexpr, FAST: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """From the gradient behind the second product, whose weight this is, to that before the activation."""
    gg, r, c = _product(gout, weight, M, HIDDEN_OUT, 1, HIDDEN_OUT, D, PRECISION, BM, BC, BK)
    at, ok = r.to(tl.int64)[:, None] * HIDDEN_OUT + c[None, :], (r < M)[:, None]
    h = tl.load(hidden + at, ok, 0.0).to(tl.float32)
    g, s = _gelu(h, FAST)
    gg *= _gelu_slope(h, g, s) * _kept(keep, r, M, pixels, KEEP, BM)
    tl.store(ghidden + at, gg.to(ghidden.dtype.element_ty), ok)


@triton.jit(do_not_specialize=["M"])
def _product_sum_norm(
    rows, weight, x, total, unit, rstd, M, eps,
    K: tl.constexpr, D: tl.constexpr, D_OUT: tl.constexpr, PRECISION: tl.constexpr, FIRST: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """total = x + rows · weightᵀ; unit, 1/σ: `_norm` of it. rows: M×K, weight: D_OUT×K."""
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


def multiply_as(operand: torch.dtype) -> str:
    """How Triton multiplies matrices: float32 as PyTorch is set to, in TF32 or to the last digit but one."""
    if operand != torch.float32 or INTERPRETED:
        return "ieee"
    matmul = torch.backends.cuda.matmul
    tf32 = matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    return "tf32" if tf32 else "tf32x3"


def _tiled(t: Tensor, keep: Tensor | None, tile: Tile) -> tuple[tuple[int], dict[str, Any]]:
    """Grid and constants of the kernels of the first half of the mlp."""
    tile = EXPAND_F32 if t.dtype == torch.float32 else tile
    constants: dict[str, Any] = {"D": ALIGNED_WIDTH, "HIDDEN_OUT": ALIGNED_HIDDEN}
    constants |= {"PRECISION": multiply_as(t.dtype), "KEEP": keep is not None}
    constants |= {"FAST": not (t.dtype == torch.float32 or INTERPRETED)}
    constants |= {"BM": tile.rows, "BC": tile.columns, "BK": tile.depth} | tile.launch()
    return (ALIGNED_HIDDEN // tile.columns * triton.cdiv(t.shape[0], tile.rows),), constants


def expand(unit: Tensor, weight: Tensor, keep: Tensor | None, pixels: int) -> tuple[Tensor, Tensor]:
    """hidden = unit weightᵀ, and keep · gelu(hidden) with keep in column 360.

    unit: M×192; weight: 384×192; keep: one for every `pixels` rows. Returns M×384, twice.
    """
    M = unit.shape[0]
    hidden, out = unit.new_empty(M, ALIGNED_HIDDEN), unit.new_empty(M, ALIGNED_HIDDEN)
    grid, constants = _tiled(unit, keep, EXPAND)
    _expand[grid](unit, weight, keep, hidden, out, M, pixels, HIDDEN=2 * WIDTH, **constants)
    return hidden, out


def expand_backward(gout: Tensor, weight: Tensor, hidden: Tensor, keep: Tensor | None, pixels: int) -> Tensor:
    """∂hidden from ∂(the second product, by `weight`: 192×384)."""
    ghidden = torch.empty_like(hidden)
    grid, constants = _tiled(gout, keep, EXPAND_BACKWARD)
    _expand_backward[grid](gout, weight, keep, hidden, ghidden, gout.shape[0], pixels, **constants)
    return ghidden


def product_sum_norm(x: Tensor, rows: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """x + rows weightᵀ, the same normalised with a one behind it, and 1/σ. x: M×192."""
    M, total, unit = x.shape[0], torch.empty_like(x), torch.empty_like(x)
    rstd = x.new_empty(M, dtype=torch.float32)
    _product_sum_norm[(triton.cdiv(M, SUM_NORM.rows),)](
        rows, weight, x, total, unit, rstd, M, eps, K=rows.shape[1], D=WIDTH, D_OUT=ALIGNED_WIDTH,
        PRECISION=multiply_as(rows.dtype), FIRST=FIRST, BM=SUM_NORM.rows, BK=SUM_NORM.depth,
        **SUM_NORM.launch(),
    )  # fmt: skip
    return total, unit, rstd
