"""Attention inside the windows of the Swin layer, and its gradients.

No tensor is rearranged into windows. The pixels stay in image order; a program computes where the 64 pixels
of its window are, and which of them the cyclic shift brought together from opposite borders. The plain form
is `thera.networks.swinir.window_attention`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from thera.kernels.common import INTERPRETED, MULTIPROCESSORS, Tile, matmul_precision
from thera.kernels.sums import summed
from thera.kernels.swin.sizes import ALIGNED_HEAD, ALIGNED_WIDTH, AREA, HEAD, HEADS

# A program works on one window at a time. benchmarks/kernels_swin.py compares these with others.
ATTENTION = Tile(pixels=AREA, warps=4, stages=3, programs=4)
ATTENTION_BACKWARD = Tile(pixels=AREA, warps=4, stages=3, programs=3, registers=168)
ATTENTION_F32 = Tile(pixels=AREA, warps=4, stages=1, programs=2)
LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x · LOG2E): the kernels compute with exp2
FORBIDDEN = tl.constexpr(144.26950408889634)  # 100 · LOG2E, subtracted where pixels must not attend


@triton.jit
def _position(table, h, HEADS: tl.constexpr):
    """64×64: one head's bias between any two pixels of a window, times LOG2E."""
    i = tl.arange(0, 64)[:, None]
    j = tl.arange(0, 64)[None, :]
    at = (i // 8 - j // 8 + 7) * 15 + (i % 8 - j % 8 + 7)
    return tl.load(table + at * HEADS + h).to(tl.float32) * LOG2E


@triton.jit
def _window(window, H, W, SHIFT: tl.constexpr):
    """The numbers of a window's 64 pixels, its sample, and two bits per pixel: was it wrapped around the
    bottom, or the right border? Pixels of different bits do not attend to each other."""
    i = tl.arange(0, 64)
    line = window // (W // 8)
    sample = line // (H // 8)
    left = (window - line * (W // 8)) * 8
    top = (line - sample * (H // 8)) * 8
    y = top + i // 8 + SHIFT
    x = left + i % 8 + SHIFT
    y = tl.where(y < H, y, y - H)
    x = tl.where(x < W, x, x - W)
    beyond = ((top == H - 8) & (i // 8 >= 8 - SHIFT)).to(tl.int32) * 2
    beyond += ((left == W - 8) & (i % 8 >= 8 - SHIFT)).to(tl.int32)
    return (sample.to(tl.int64) * H + y) * W + x, sample, beyond


@triton.jit
def _logits(q, k, position, beyond, scale, SHIFT: tl.constexpr, PRECISION: tl.constexpr):
    """(q kᵀ / √30 + position + mask) · LOG2E."""
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2E) + position
    if SHIFT:
        s = tl.where(beyond[:, None] == beyond[None, :], s, s - FORBIDDEN)
    return s


@triton.jit(do_not_specialize=["windows", "H", "W", "steps"])
def _attention(
    qkv, table, keep, out, logsum, windows, H, W, scale, steps,
    KEEP: tl.constexpr, SHIFT: tl.constexpr, HEADS: tl.constexpr, HEAD: tl.constexpr, D: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """A program takes one head and every P-th window: the head's position bias stays in registers."""
    h = tl.program_id(0)
    i, d = tl.arange(0, 64), tl.arange(0, D)
    position = _position(table, h, HEADS)
    for step in range(steps):
        window = step * tl.num_programs(1) + tl.program_id(1)
        ok = window < windows
        pixels, sample, beyond = _window(window, H, W, SHIFT)
        at = qkv + pixels[:, None] * (3 * HEADS * D) + h * D + d[None, :]
        q, k, v = tl.load(at, ok, 0.0), tl.load(at + HEADS * D, ok, 0.0), tl.load(at + 2 * HEADS * D, ok, 0.0)
        s = _logits(q, k, position, beyond, scale, SHIFT, PRECISION)
        largest = tl.max(s, 1)
        e = tl.exp2(s - largest[:, None])
        total = tl.sum(e, 1)
        tl.store(logsum + (window * HEADS + h) * 64 + i, largest + tl.log2(total), ok)
        y = tl.dot(e.to(v.dtype), v, input_precision=PRECISION) * (1 / total)[:, None]
        y = tl.where((d == HEAD)[None, :] & (h == 0), 1.0, y)
        if KEEP:
            y *= tl.load(keep + sample, ok, 0.0)
        tl.store(out + pixels[:, None] * (HEADS * D) + h * D + d[None, :], y.to(v.dtype), ok)


@triton.jit(do_not_specialize=["windows", "H", "W", "steps"])
def _attention_backward(
    qkv, table, keep, logsum, gy, gqkv, gposition, windows, H, W, scale, steps,
    KEEP: tl.constexpr, SHIFT: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """As `_attention`. The gradient of the head's position bias stays in registers, too.

    Registers are scarce: the order of statements is such that each matrix is needed as briefly as possible.
    """
    h = tl.program_id(0)
    i, d = tl.arange(0, 64), tl.arange(0, D)
    position = _position(table, h, HEADS)
    gp = tl.zeros((64, 64), tl.float32)
    for step in range(steps):
        window = step * tl.num_programs(1) + tl.program_id(1)
        ok = window < windows
        pixels, sample, beyond = _window(window, H, W, SHIFT)
        at = pixels[:, None] * (3 * HEADS * D) + h * D + d[None, :]
        q = tl.load(qkv + at, ok, 0.0)
        k = tl.load(qkv + at + HEADS * D, ok, 0.0)
        v = tl.load(qkv + at + 2 * HEADS * D, ok, 0.0)
        g = tl.load(gy + pixels[:, None] * (HEADS * D) + h * D + d[None, :], ok, 0.0)
        kept = 1.0
        if KEEP:
            kept = tl.load(keep + sample, ok, 0.0)
        s = _logits(q, k, position, beyond, scale, SHIFT, PRECISION)
        p = tl.exp2(s - tl.load(logsum + (window * HEADS + h) * 64 + i, ok, 0.0)[:, None])
        gv = tl.dot(tl.trans(p.to(v.dtype)), g, input_precision=PRECISION) * kept
        tl.store(gqkv + at + 2 * HEADS * D, gv.to(v.dtype), ok)
        dp = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        ds = p * (dp - tl.sum(p * dp, 1)[:, None])
        gp += ds * kept
        short = ds.to(v.dtype)
        gk = tl.dot(tl.trans(short), q, input_precision=PRECISION) * (scale * kept)
        tl.store(gqkv + at + HEADS * D, gk.to(v.dtype), ok)
        gq = tl.dot(short, k, input_precision=PRECISION) * (scale * kept)
        tl.store(gqkv + at, gq.to(v.dtype), ok)
    to = gposition + (tl.program_id(1) * HEADS + h) * 4096
    tl.store(to + i[:, None] * 64 + i[None, :], gp)


def _grid(
    qkv: Tensor, keep: Tensor | None, shift: int, tile: Tile
) -> tuple[tuple[int, int], dict[str, Any]]:  # fmt: skip
    """The grid and the last arguments of both kernels."""
    tile = ATTENTION_F32 if qkv.dtype == torch.float32 else tile
    windows = qkv.shape[0] // AREA
    programs = max(1, min(windows, tile.programs * MULTIPROCESSORS // HEADS))
    steps = triton.cdiv(windows, programs)
    constants: dict[str, Any] = {"KEEP": keep is not None, "SHIFT": shift, "HEADS": HEADS, "D": ALIGNED_HEAD}
    constants |= {"PRECISION": matmul_precision(qkv.dtype)} | tile.launch()
    constants["steps"] = tl.constexpr(steps) if INTERPRETED else steps  # the interpreter's loops need one
    return (HEADS, triton.cdiv(windows, steps)), constants


def attention(
    qkv: Tensor, table: Tensor, keep: Tensor | None, shift: int, H: int, W: int
) -> tuple[Tensor, Tensor]:
    """keep · softmax(q kᵀ / √30 + position) v in windows shifted by `shift`, with keep in column 30.

    qkv: M×576 (three times six heads of 32) for N×H×W pixels; keep: N. Returns M×192, and the logarithms of
    the softmax's sums, window by window.
    """
    M = qkv.shape[0]
    out, logsum = qkv.new_empty(M, ALIGNED_WIDTH), qkv.new_empty(M, HEADS, dtype=torch.float32)
    grid, constants = _grid(qkv, keep, shift, ATTENTION)
    _attention[grid](qkv, table, keep, out, logsum, M // AREA, H, W, HEAD**-0.5, HEAD=HEAD, **constants)
    return out, logsum


def attention_backward(
    gy: Tensor, qkv: Tensor, logsum: Tensor, table: Tensor, keep: Tensor | None, shift: int, H: int, W: int
) -> tuple[Tensor, Tensor]:
    """∂qkv, and ∂position (6×64×64)."""
    M = qkv.shape[0]
    gqkv = torch.empty_like(qkv)
    grid, constants = _grid(qkv, keep, shift, ATTENTION_BACKWARD)
    gposition = qkv.new_empty(grid[1], HEADS, AREA, AREA, dtype=torch.float32)
    _attention_backward[grid](
        qkv, table, keep, logsum, gy, gqkv, gposition, M // AREA, H, W, HEAD**-0.5, **constants
    )
    return gqkv, summed(gposition)
