"""Triton kernels for the matrix products of the Swin layer that take their neighbours along.

| kernel | computes |
| --- | --- |
| expand | hidden = unit wᵀ, keep · gelu(hidden) |
| expand backward | from the gradient behind the second product of the mlp to that before the activation |
| sum and norm | total = x + rows wᵀ, and total normalised |
| norm backward | ∂unit = rows w, and from it ∂x |

`LARGE` says which run in the form for GPUs with a large shared memory (Hopper's and Blackwell's servers).
There programs of the first two persist: their columns of the weights stay, and pixels stream past, loaded
ahead. The last two hold whole rows, of which only the sums over channels were missing. Elsewhere, and in
float32, the first two are cut into tiles, and the last two are a product and a pass of its own.
"""

# mypy: disallow-untyped-defs=False
# A kernel's arguments have no types; those in capitals are compile-time constants, as Triton writes them.

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from thera.networks.fusing import can_fuse
from thera.networks.kernels_convnext import INTERPRETED, MULTIPROCESSORS, _gelu
from thera.networks.swinir import ALIGNED_HIDDEN, ALIGNED_WIDTH, WIDTH


class Tile(NamedTuple):
    """How a matrix product is cut."""

    rows: int
    columns: int
    depth: int  # at a time
    warps: int
    stages: int  # of the software pipeline
    registers: int | None = None  # at most, to a thread
    programs: int = 1  # to a multiprocessor, where they persist


# benchmarks/kernels_swin.py times these and their alternatives.
LARGE = {"expand": True, "expand backward": True, "sum and norm": True, "norm backward": True}
EXPAND, EXPAND_BACKWARD = Tile(128, 128, 64, 8, 2, 128), Tile(128, 128, 64, 8, 2)
EXPAND_F32 = Tile(64, 64, 32, 4, 2)
EXPAND_LARGE, EXPAND_BACKWARD_LARGE = Tile(128, 128, ALIGNED_WIDTH, 8, 2), Tile(128, 128, ALIGNED_WIDTH, 8, 2)
SUM_NORM, NORM_BACKWARD = Tile(128, ALIGNED_WIDTH, 64, 8, 3), Tile(128, ALIGNED_WIDTH, 64, 8, 3)
FIRST = 128  # of 192 channels: kernels' matrices are powers of two wide, so that a row is two of them


def large(name: str, t: Tensor) -> bool:
    """Whether a pass over t runs in the form for large shared memories."""
    return LARGE[name] and (INTERPRETED or (t.dtype != torch.float32 and can_fuse()))


@triton.jit
def _gelu_slope(h, g, s):
    """gelu' = s + h s (1 - s) · 2 du/dh, with g and s from `_gelu`."""
    return s + (g - g * s) * (1.5957691216057308 + 0.21406444881780075 * (h * h))


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


@triton.jit
def _parts(D: tl.constexpr, FIRST: tl.constexpr):
    """The channels of a row, in two parts."""
    return tl.arange(0, FIRST), FIRST + tl.arange(0, D - FIRST)


@triton.jit(do_not_specialize=["M", "pixels", "steps"])
def _expand_large(
    unit, weight, keep, hidden, out, M, pixels, steps,
    KEEP: tl.constexpr, D: tl.constexpr, HIDDEN: tl.constexpr, HIDDEN_OUT: tl.constexpr, FAST: tl.constexpr,
    PRECISION: tl.constexpr, FIRST: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As `_expand`; a program owns BC columns and every P-th tile of rows."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    k0, k1 = _parts(D, FIRST)
    w0 = tl.load(weight + k0[:, None] + c[None, :] * D)
    w1 = tl.load(weight + k1[:, None] + c[None, :] * D)
    for step in tl.range(steps, num_stages=STAGES):
        r = (step * tl.num_programs(1) + tl.program_id(1)) * BM + tl.arange(0, BM)
        row, ok = r.to(tl.int64)[:, None], (r < M)[:, None]
        h = tl.dot(tl.load(unit + row * D + k0[None, :], ok, 0.0), w0, input_precision=PRECISION)
        h = tl.dot(tl.load(unit + row * D + k1[None, :], ok, 0.0), w1, h, input_precision=PRECISION)
        at = row * HIDDEN_OUT + c[None, :]
        tl.store(hidden + at, h.to(hidden.dtype.element_ty), ok)
        g, _ = _gelu(h, FAST)
        g = tl.where((c == HIDDEN)[None, :], 1.0, g) * _kept(keep, r, M, pixels, KEEP, BM)
        tl.store(out + at, g.to(out.dtype.element_ty), ok)


@triton.jit(do_not_specialize=["M", "pixels", "steps"])
def _expand_backward_large(
    gout, weight, keep, hidden, ghidden, M, pixels, steps,
    KEEP: tl.constexpr, D: tl.constexpr, HIDDEN_OUT: tl.constexpr, FAST: tl.constexpr,
    PRECISION: tl.constexpr, FIRST: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As `_expand_backward`; a program owns BC columns and every P-th tile of rows."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    k0, k1 = _parts(D, FIRST)
    w0 = tl.load(weight + k0[:, None] * HIDDEN_OUT + c[None, :])
    w1 = tl.load(weight + k1[:, None] * HIDDEN_OUT + c[None, :])
    for step in tl.range(steps, num_stages=STAGES):
        r = (step * tl.num_programs(1) + tl.program_id(1)) * BM + tl.arange(0, BM)
        row, ok = r.to(tl.int64)[:, None], (r < M)[:, None]
        gg = tl.dot(tl.load(gout + row * D + k0[None, :], ok, 0.0), w0, input_precision=PRECISION)
        gg = tl.dot(tl.load(gout + row * D + k1[None, :], ok, 0.0), w1, gg, input_precision=PRECISION)
        at = row * HIDDEN_OUT + c[None, :]
        h = tl.load(hidden + at, ok, 0.0).to(tl.float32)
        g, s = _gelu(h, FAST)
        gg *= _gelu_slope(h, g, s) * _kept(keep, r, M, pixels, KEEP, BM)
        tl.store(ghidden + at, gg.to(ghidden.dtype.element_ty), ok)


@triton.jit
def _row_product(
    rows, weight, row, ok, k_stride, column_stride,
    K: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr, FIRST: tl.constexpr, BM: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """BM whole rows of rows · weight in float32, in two parts. rows: M×K, weight: K×D."""
    c0, c1 = _parts(D, FIRST)
    y0 = tl.zeros((BM, FIRST), tl.float32)
    y1 = tl.zeros((BM, D - FIRST), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x, w = tl.load(rows + row * K + k[None, :], ok, 0.0), weight + k[:, None] * k_stride
        y0 = tl.dot(x, tl.load(w + c0[None, :] * column_stride), y0, input_precision=PRECISION)
        y1 = tl.dot(x, tl.load(w + c1[None, :] * column_stride), y1, input_precision=PRECISION)
    return y0, y1


@triton.jit(do_not_specialize=["M"])
def _sum_norm_large(
    rows, weight, x, total, unit, rstd, M, eps,
    K: tl.constexpr, D: tl.constexpr, D_OUT: tl.constexpr, PRECISION: tl.constexpr, FIRST: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """total = x + rows · weightᵀ; unit, 1/σ: `_norm` of it."""
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    row, ok = r.to(tl.int64)[:, None], (r < M)[:, None]
    c0, c1 = _parts(D_OUT, FIRST)
    v0, v1 = _row_product(rows, weight, row, ok, 1, K, K, D_OUT, PRECISION, FIRST, BM, BK)
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


@triton.jit(do_not_specialize=["M"])
def _norm_backward_large(
    rows, weight, unit, rstd, gout, gx, M,
    K: tl.constexpr, D: tl.constexpr, D_OUT: tl.constexpr, PRECISION: tl.constexpr, FIRST: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """gx = gout, past the branch, and rows · weight back through its norm.

    The normalised pixels are read twice, the second time from the cache: registers are short.
    """
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    row, ok = r.to(tl.int64)[:, None], (r < M)[:, None]
    c0, c1 = _parts(D_OUT, FIRST)
    g0, g1 = _row_product(rows, weight, row, ok, D_OUT, 1, K, D_OUT, PRECISION, FIRST, BM, BK)
    real = (c1 < D)[None, :]
    g1 = tl.where(real, g1, 0.0)
    at0, at1 = row * D_OUT + c0[None, :], row * D_OUT + c1[None, :]
    u0 = tl.load(unit + at0, ok, 0.0, eviction_policy="evict_last").to(tl.float32)
    u1 = tl.load(unit + at1, ok, 0.0, eviction_policy="evict_last").to(tl.float32)
    mean = (tl.sum(g0, 1) + tl.sum(g1, 1))[:, None] / D
    along = (tl.sum(g0 * u0, 1) + tl.sum(g1 * u1, 1))[:, None] / D
    s = tl.load(rstd + r, r < M, 0.0)[:, None]
    g0 = (g0 - mean - tl.load(unit + at0, ok, 0.0).to(tl.float32) * along) * s
    g0 += tl.load(gout + at0, ok, 0.0).to(tl.float32)
    tl.store(gx + at0, g0.to(gx.dtype.element_ty), ok)
    g1 = (g1 - mean - tl.load(unit + at1, ok, 0.0).to(tl.float32) * along) * s
    g1 = tl.where(real, g1, 0.0) + tl.load(gout + at1, ok, 0.0).to(tl.float32)
    tl.store(gx + at1, g1.to(gx.dtype.element_ty), ok)


def multiply_as(operand: torch.dtype) -> str:
    """How Triton multiplies matrices: float32 as PyTorch is set to, in TF32 or to the last digit but one."""
    if operand != torch.float32 or INTERPRETED:
        return "ieee"
    matmul = torch.backends.cuda.matmul
    tf32 = matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    return "tf32" if tf32 else "tf32x3"


def _expansion(t: Tensor, keep: Tensor | None, tile: Tile) -> dict[str, Any]:
    """Constants of the kernels of the first half of the mlp."""
    constants = {"D": ALIGNED_WIDTH, "HIDDEN_OUT": ALIGNED_HIDDEN, "PRECISION": multiply_as(t.dtype)}
    constants |= {"KEEP": keep is not None, "FAST": not (t.dtype == torch.float32 or INTERPRETED)}
    return constants | {
        "BM": tile.rows,
        "BC": tile.columns,
        "num_warps": tile.warps,
        "maxnreg": tile.registers,
    }


def _tiled(t: Tensor, keep: Tensor | None, tile: Tile) -> tuple[tuple[int], dict[str, Any]]:
    """Grid and constants of their tiled form."""
    tile = EXPAND_F32 if t.dtype == torch.float32 else tile
    grid = (ALIGNED_HIDDEN // tile.columns * triton.cdiv(t.shape[0], tile.rows),)
    return grid, _expansion(t, keep, tile) | {"BK": tile.depth, "num_stages": tile.stages}


def _persistent(t: Tensor, keep: Tensor | None, tile: Tile) -> tuple[tuple[int, int], dict[str, Any]]:
    """Grid, number of steps and constants of their persistent form."""
    columns, tiles = ALIGNED_HIDDEN // tile.columns, triton.cdiv(t.shape[0], tile.rows)
    programs = max(1, min(tiles, tile.programs * MULTIPROCESSORS // columns))
    steps = triton.cdiv(tiles, programs)
    constants = _expansion(t, keep, tile) | {"FIRST": FIRST, "STAGES": tile.stages}
    constants["steps"] = tl.constexpr(steps) if INTERPRETED else steps  # it knows no other bounds of loops
    return (columns, triton.cdiv(tiles, steps)), constants


def _whole_rows(rows: Tensor, tile: Tile) -> tuple[tuple[int], dict[str, Any]]:
    """Grid and constants of the kernels that hold whole rows."""
    constants = {"K": rows.shape[1], "D": WIDTH, "D_OUT": ALIGNED_WIDTH, "PRECISION": multiply_as(rows.dtype)}
    constants |= {"FIRST": FIRST, "BM": tile.rows, "BK": tile.depth}
    constants |= {"num_warps": tile.warps, "num_stages": tile.stages, "maxnreg": tile.registers}
    return (triton.cdiv(rows.shape[0], tile.rows),), constants


def expand(unit: Tensor, weight: Tensor, keep: Tensor | None, pixels: int) -> tuple[Tensor, Tensor]:
    """hidden = unit weightᵀ, and keep · gelu(hidden) with keep in column 360.

    unit: M×192; weight: 384×192; keep: one for every `pixels` rows. Returns M×384, twice.
    """
    M = unit.shape[0]
    hidden, out = unit.new_empty(M, ALIGNED_HIDDEN), unit.new_empty(M, ALIGNED_HIDDEN)
    arguments = (unit, weight, keep, hidden, out, M, pixels)
    if large("expand", unit):
        grid, constants = _persistent(unit, keep, EXPAND_LARGE)
        _expand_large[grid](*arguments, HIDDEN=2 * WIDTH, **constants)
    else:
        tiles, constants = _tiled(unit, keep, EXPAND)
        _expand[tiles](*arguments, HIDDEN=2 * WIDTH, **constants)
    return hidden, out


def expand_backward(gout: Tensor, weight: Tensor, hidden: Tensor, keep: Tensor | None, pixels: int) -> Tensor:
    """∂hidden from ∂(the second product, by `weight`: 192×384)."""
    ghidden = torch.empty_like(hidden)
    arguments = (gout, weight, keep, hidden, ghidden, gout.shape[0], pixels)
    if large("expand backward", gout):
        grid, constants = _persistent(gout, keep, EXPAND_BACKWARD_LARGE)
        _expand_backward_large[grid](*arguments, **constants)
    else:
        tiles, constants = _tiled(gout, keep, EXPAND_BACKWARD)
        _expand_backward[tiles](*arguments, **constants)
    return ghidden


def product_sum_norm(x: Tensor, rows: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """x + rows weightᵀ, the same normalised with a one behind it, and 1/σ. x: M×192."""
    total, unit, rstd = torch.empty_like(x), torch.empty_like(x), x.new_empty(x.shape[0], dtype=torch.float32)
    grid, constants = _whole_rows(rows, SUM_NORM)
    _sum_norm_large[grid](rows, weight, x, total, unit, rstd, x.shape[0], eps, **constants)
    return total, unit, rstd


def product_norm_backward(rows: Tensor, weight: Tensor, unit: Tensor, rstd: Tensor, gout: Tensor) -> Tensor:
    """gout, and ∂unit = rows weight back through the norm. unit, gout: M×192."""
    gx, (grid, constants) = torch.empty_like(gout), _whole_rows(rows, NORM_BACKWARD)
    _norm_backward_large[grid](rows, weight, unit, rstd, gout, gx, rows.shape[0], **constants)
    return gx
