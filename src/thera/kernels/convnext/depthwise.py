"""The depthwise 3×3 convolution of the ConvNeXt block: a function for other kernels, and the gradients.

The gradients move 80 bytes for 18 multiply-adds, so their speed depends on how many loads are under way.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from thera.kernels.common import MULTIPROCESSORS, SIZES, Tile

# benchmarks/kernels.py compares this with others. A strip is this many image columns wide.
STRIP = Tile(pixels=8, channels=32, warps=1, stages=4, programs=8)


@triton.jit
def _three(source, rows, ok, column, W, channel, D: tl.constexpr):
    """A pixel's left neighbour, itself and its right neighbour, as float32; zero outside the image."""
    at = source + rows.to(tl.int64)[:, None] * D + channel[None, :]
    inside = ok[:, None] & (channel < D)[None, :]
    left = tl.load(at - D, inside & (column > 0)[:, None], 0.0).to(tl.float32)
    centre = tl.load(at, inside, 0.0).to(tl.float32)
    right = tl.load(at + D, inside & (column < W - 1)[:, None], 0.0).to(tl.float32)
    return left, centre, right


@triton.jit
def _taps(taps, i, channel, D: tl.constexpr):
    """The three taps in row i of the 3×3 kernel, 1×BD each."""
    at, real = taps + 3 * i * D + channel, channel < D
    t0, t1, t2 = tl.load(at, real, 0.0), tl.load(at + D, real, 0.0), tl.load(at + 2 * D, real, 0.0)
    return t0[None, :], t1[None, :], t2[None, :]


@triton.jit
def depthwise(
    x, taps, rows, ok, channel, H, W, D: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr
):  # fmt: skip
    """The convolution at some pixels of some channels, BM×BD."""
    column, line = rows % W, rows // W % H
    z = tl.zeros((BM, BD), tl.float32)
    for i in tl.range(0, 3, num_stages=1):
        within = ok & (line + (i - 1) >= 0) & (line + (i - 1) < H)
        left, centre, right = _three(x, rows + (i - 1) * W, within, column, W, channel, D)
        t0, t1, t2 = _taps(taps, i, channel, D)
        z += t0 * left  # three statements: each is one fused multiply-add
        z += t1 * centre
        z += t2 * right
    return z


@triton.jit(do_not_specialize=SIZES)
def _depthwise_backward(
    gout, x, gz, taps, gx, gtaps, H, W,
    D: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, LINES: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """∂x[p] = ∂out[p] + Σ w[o] ∂z[p - o] and ∂w[o] = Σ x[p] ∂z[p - o]: both read the same nine neighbours.

    A program goes down a strip of BM columns and BD channels. Each line of ∂z contributes to three lines of
    ∂x. The loop carries these sums, not lines of ∂z, so that the loads of later steps can start early. The
    tenth row of `gtaps` is Σ ∂out, the gradient of the block's last bias.
    """
    strip, block = tl.program_id(0) // (D // BD), tl.program_id(0) % (D // BD)
    column, channel = strip * BM + tl.arange(0, BM), block * BD + tl.arange(0, BD)
    wide = column < W
    first = tl.program_id(1) * LINES
    end = tl.minimum(first + LINES, H)
    t0, t1, t2 = _taps(taps, 0, channel, D)
    t3, t4, t5 = _taps(taps, 1, channel, D)
    t6, t7, t8 = _taps(taps, 2, channel, D)
    g0 = tl.zeros((BM, BD), tl.float32)
    g1, g2, g3, g4, g5, g6, g7, g8, g9 = g0, g0, g0, g0, g0, g0, g0, g0, g0
    x_above, x_here, gx_above, gx_here = g0, g0, g0, g0
    for step in tl.range(LINES + 2, num_stages=STAGES):
        line = first + step - 1
        rows = (tl.program_id(2) * H + line) * W + column
        z0, z1, z2 = _three(gz, rows, wide & (line >= 0) & (line < H), column, W, channel, D)
        at = rows.to(tl.int64)[:, None] * D + channel[None, :]
        x_below = tl.load(x + at + W * D, (wide & (line + 1 < end))[:, None], 0.0).to(tl.float32)
        g0 += x_above * z2
        g1 += x_above * z1
        g2 += x_above * z0
        g3 += x_here * z2
        g4 += x_here * z1
        g5 += x_here * z0
        g6 += x_below * z2
        g7 += x_below * z1
        g8 += x_below * z0
        whole = (wide & (line > first) & (line <= end))[:, None]  # the line above is complete
        go = tl.load(gout + at - W * D, whole, 0.0).to(tl.float32)
        g9 += go
        gx_above += go
        gx_above += t0 * z2
        gx_above += t1 * z1
        gx_above += t2 * z0
        tl.store(gx + at - W * D, gx_above.to(gx.dtype.element_ty), whole)
        gx_above = gx_here + t3 * z2
        gx_above += t4 * z1
        gx_above += t5 * z0
        gx_here = t6 * z2
        gx_here += t7 * z1
        gx_here += t8 * z0
        # The 0.0 forces a copy: the software pipeline refuses a value that is used two steps later.
        x_above = x_here + 0.0
        x_here = x_below + 0.0
    program = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    program = program * (tl.num_programs(0) // (D // BD)) + strip
    sums = (g0, g1, g2, g3, g4, g5, g6, g7, g8, g9)
    for i in tl.static_range(10):
        tl.store(gtaps + (program * 10 + i) * D + channel, tl.sum(sums[i], 0))


def depthwise_backward(gout: Tensor, x: Tensor, gz: Tensor, taps: Tensor) -> tuple[Tensor, Tensor]:
    """∂x, including ∂out, which goes past the block; and ∂taps with Σ ∂out as a tenth row, in parts: …×10×d.

    gout, x, gz: N×H×W×d, contiguous; taps: 9×d.
    """
    N, H, W, d = x.shape
    gx, columns, channels = torch.empty_like(x), STRIP.pixels, math.gcd(d, STRIP.channels)
    blocks = d // channels
    across = triton.cdiv(W, columns)
    lines = min(H, triton.cdiv(N * H * across * blocks, STRIP.programs * MULTIPROCESSORS))
    lines = triton.cdiv(H, triton.cdiv(H, lines))  # about as many in the last strip as in the others
    down = triton.cdiv(H, lines)
    gtaps = taps.new_empty(N * down * across, 10, d)
    _depthwise_backward[(across * blocks, down, N)](
        gout, x, gz, taps, gx, gtaps, H, W, D=d, BM=columns, BD=channels, LINES=lines,
        **STRIP.launch_staged(),
    )  # fmt: skip
    return gx, gtaps
