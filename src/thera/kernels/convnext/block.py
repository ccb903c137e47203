"""The ConvNeXt block, x + W₂ gelu(W₁ norm(depthwise x) + b₁) + b₂, and its gradients.

The hidden activations are four times as wide as x, and an unfused block spends most of its time moving them.
Here they stay in registers:

| kernel | a program computes | from | to |
| --- | --- | --- | --- |
| forward | a tile of pixels | x | out; for training also the normalised pixels u |
| mixing backward | a slice of the hidden units | u, ∂out | one part of ∂u |
| norm backward | a tile of pixels | u, the parts of ∂u | ∂z, the gradient of the depthwise output |
| depthwise backward | a strip of an image | x, ∂z, ∂out | ∂x |

A program of "mixing backward" loops over many tiles and keeps the gradients of its slice of W₁ and W₂ in
registers, so these need no kernel of their own. `weights` folds the norm's weight and bias into W₁ and b₁
beforehand. The plain form is `thera.networks.convnext.Block`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from thera.kernels.common import MULTIPROCESSORS, SIZES, Tile, fast_gelu, gelu, gelu_slope
from thera.kernels.convnext.depthwise import depthwise, depthwise_backward
from thera.kernels.convnext.weights import fold, unfold
from thera.kernels.norm import norm_backward
from thera.kernels.sums import beside, summed

# By width. The channels are hidden units. benchmarks/kernels.py compares these with others.
FORWARD = {
    64: Tile(pixels=64, channels=64, warps=4, stages=2, registers=128),
    96: Tile(pixels=64, channels=64, warps=4, stages=2, registers=168),
    128: Tile(pixels=64, channels=64, warps=4, stages=2, registers=255),
}
FORWARD_SMALL = Tile(pixels=16, channels=64, warps=4, stages=2, registers=255)  # gives more programs
SMALL = 64  # pixels per multiprocessor, up to which an image is small
BACKWARD = {
    64: Tile(pixels=64, channels=128, warps=8, stages=3, registers=255),
    96: Tile(pixels=64, channels=128, warps=8, stages=3, registers=255),
    128: Tile(pixels=32, channels=128, warps=8, stages=3, registers=255),
}


@triton.jit(do_not_specialize=SIZES)
def _forward(
    x, taps, w1, b1, w2, b2, out, unit, rstd, M, H, W, eps,
    D: tl.constexpr, HIDDEN: tl.constexpr, SAVE: tl.constexpr, FAST: tl.constexpr,
    BM: tl.constexpr, FIRST: tl.constexpr, BH: tl.constexpr,
):  # fmt: skip
    """A matrix must be a power of two wide: 96 channels are FIRST = 64 and REST = 32, or padded to 128."""
    REST: tl.constexpr = D - FIRST if D > FIRST else 0
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    c0 = tl.arange(0, FIRST)
    ok, real = rows < M, c0 < D
    row, inside = rows.to(tl.int64)[:, None] * D, ok[:, None] & real[None, :]
    z0 = depthwise(x, taps, rows, ok, c0, H, W, D, BM, FIRST)
    total = tl.sum(z0, 1)
    if REST:
        c1 = FIRST + tl.arange(0, REST)
        z1 = depthwise(x, taps, rows, ok, c1, H, W, D, BM, REST)
        total += tl.sum(z1, 1)
    z0 = tl.where(real[None, :], z0 - total[:, None] / D, 0.0)
    squares = tl.sum(z0 * z0, 1)
    if REST:
        z1 -= total[:, None] / D
        squares += tl.sum(z1 * z1, 1)
    r = tl.rsqrt(squares / D + eps)
    u0 = (z0 * r[:, None]).to(w1.dtype.element_ty)
    y0 = tl.zeros((BM, FIRST), tl.float32)
    if SAVE:
        tl.store(unit + row + c0[None, :], u0, inside)
        tl.store(rstd + rows, r, ok)
    if REST:
        u1 = (z1 * r[:, None]).to(w1.dtype.element_ty)
        y1 = tl.zeros((BM, REST), tl.float32)
        if SAVE:
            tl.store(unit + row + c1[None, :], u1, ok[:, None])
    for k in range(0, HIDDEN, BH):
        hidden = k + tl.arange(0, BH)
        in1, in2 = w1 + hidden[None, :] * D, w2 + hidden[:, None]
        h = tl.dot(u0, tl.load(in1 + c0[:, None], real[:, None], 0.0), input_precision="ieee")
        h += tl.load(b1 + hidden)[None, :]
        if REST:
            h = tl.dot(u1, tl.load(in1 + c1[:, None]), h, input_precision="ieee")
        g, _ = gelu(h, FAST)
        short = g.to(u0.dtype)
        project = tl.load(in2 + c0[None, :] * HIDDEN, real[None, :], 0.0)
        y0 = tl.dot(short, project, y0, input_precision="ieee")
        if REST:
            y1 = tl.dot(short, tl.load(in2 + c1[None, :] * HIDDEN), y1, input_precision="ieee")
    at = row + c0[None, :]
    y0 += tl.load(x + at, inside, 0.0).to(tl.float32) + tl.load(b2 + c0, real, 0.0)[None, :]
    tl.store(out + at, y0.to(out.dtype.element_ty), inside)
    if REST:
        at = row + c1[None, :]
        y1 += tl.load(x + at, ok[:, None], 0.0).to(tl.float32) + tl.load(b2 + c1)[None, :]
        tl.store(out + at, y1.to(out.dtype.element_ty), ok[:, None])


@triton.jit
def _mixing_input(weight, short, UPRIGHT: tl.constexpr):
    """∂u, BM×D, from a slice of w1 and ∂h of its hidden units (BH×BM). A matrix product needs 64 rows."""
    if UPRIGHT:
        return tl.dot(tl.trans(short), weight, input_precision="ieee").to(short.dtype)
    return tl.trans(tl.dot(tl.trans(weight), short, input_precision="ieee").to(short.dtype))


@triton.jit(do_not_specialize=SIZES)
def _mixing_backward(
    gout, unit, w1, b1, w2, gunit, sums, M,
    D: tl.constexpr, HIDDEN: tl.constexpr, FAST: tl.constexpr, BM: tl.constexpr,
    FIRST: tl.constexpr, BH: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Hidden units are the rows here: the weights' gradients can then take them straight from registers.

    A matrix must be a power of two wide: 96 channels are FIRST = 64 and REST = 32.
    """
    REST: tl.constexpr = D - FIRST
    part, program = tl.program_id(0), tl.program_id(1)
    hidden, c0 = part * BH + tl.arange(0, BH), tl.arange(0, FIRST)[None, :]
    in1, in2 = w1 + hidden[:, None] * D, w2 + hidden[:, None]
    expand0, project0 = tl.load(in1 + c0), tl.load(in2 + c0 * HIDDEN)  # BH×FIRST
    sum10 = tl.zeros((BH, FIRST), tl.float32)
    sum20 = tl.zeros((BH, FIRST), tl.float32)
    if REST:
        c1 = FIRST + tl.arange(0, REST)[None, :]
        expand1, project1 = tl.load(in1 + c1), tl.load(in2 + c1 * HIDDEN)
        sum11 = tl.zeros((BH, REST), tl.float32)
        sum21 = tl.zeros((BH, REST), tl.float32)
    bias = tl.load(b1 + hidden)
    sumb = tl.zeros((BH,), tl.float32)
    for step in range(STEPS):
        rows = (step * tl.num_programs(1) + program) * BM + tl.arange(0, BM)
        ok = (rows < M)[:, None]
        row = rows.to(tl.int64)[:, None] * D
        u0 = tl.load(unit + row + c0, ok, 0.0)
        go0 = tl.load(gout + row + c0, ok, 0.0).to(u0.dtype)
        h = tl.dot(expand0, tl.trans(u0), input_precision="ieee") + bias[:, None]
        gg = tl.dot(project0, tl.trans(go0), input_precision="ieee")
        if REST:
            u1 = tl.load(unit + row + c1, ok, 0.0)
            go1 = tl.load(gout + row + c1, ok, 0.0).to(u0.dtype)
            h = tl.dot(expand1, tl.trans(u1), h, input_precision="ieee")
            gg = tl.dot(project1, tl.trans(go1), gg, input_precision="ieee")
        g, s = gelu(h, FAST)
        short = g.to(u0.dtype)
        sum20 = tl.dot(short, go0, sum20, input_precision="ieee")
        if REST:
            sum21 = tl.dot(short, go1, sum21, input_precision="ieee")
        gh = gg * gelu_slope(h, g, s)
        sumb += tl.sum(gh, 1)
        short = gh.to(u0.dtype)
        sum10 = tl.dot(short, u0, sum10, input_precision="ieee")
        to = gunit + (row + part.to(tl.int64) * M * D)
        if REST:
            sum11 = tl.dot(short, u1, sum11, input_precision="ieee")
            tl.store(to + c1, _mixing_input(expand1, short, BM >= 64), ok)
        tl.store(to + c0, _mixing_input(expand0, short, BM >= 64), ok)
    to = sums + program * (HIDDEN * (2 * D + 1))  # ∂w1, ∂w2 and ∂b1 one after the other
    out1, out2 = to + hidden[:, None] * D, to + HIDDEN * D + hidden[:, None]
    tl.store(out1 + c0, sum10)
    tl.store(out2 + c0 * HIDDEN, sum20)
    if REST:
        tl.store(out1 + c1, sum11)
        tl.store(out2 + c1 * HIDDEN, sum21)
    tl.store(to + 2 * HIDDEN * D + hidden, sumb)


def forward(
    x: Tensor, taps: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, eps: float, save: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """x + w2 gelu(w1 normalise(depthwise x) + b1) + b2; with `save` also the normalised pixels and 1/σ.

    x: N×H×W×d; taps: 9×d; w1: 4d×d and w2: d×4d, in the dtype of matrix products.
    """
    N, H, W, d = x.shape
    M, BD = N * H * W, triton.next_power_of_2(d)
    small = M <= SMALL * MULTIPROCESSORS
    tile = FORWARD_SMALL if small else FORWARD[d]
    x = x.contiguous()
    out = torch.empty_like(x)
    unit = w1.new_empty((N, H, W, d) if save else 0)
    rstd = b1.new_empty((N, H, W) if save else 0)
    split = d < BD and not small  # a small image has its 96 channels padded to 128
    _forward[(triton.cdiv(M, tile.pixels),)](
        x, taps.contiguous(), w1.contiguous(), b1, w2.contiguous(), b2, out, unit, rstd, M, H, W, eps,
        D=d, HIDDEN=4 * d, SAVE=save, BM=tile.pixels, BH=tile.channels,
        FAST=fast_gelu(w1.dtype), FIRST=BD // 2 if split else BD, **tile.launch(),
    )  # fmt: skip
    return out, unit, rstd


@torch.library.custom_op("thera::convnext_block", mutates_args=())
def fused_block(
    x: Tensor, depthwise: Tensor, gamma: Tensor, beta: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor,
    operand: torch.dtype, eps: float, save: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The block: what `forward` returns, then the `Folded` parameters."""
    weights = fold(depthwise, gamma, beta, w1, b1, w2, operand)
    return (*forward(x, *weights, b2, eps, save), *weights)


@torch.library.custom_op("thera::convnext_block_backward", mutates_args=())
def fused_block_backward(
    gout: Tensor, x: Tensor, unit: Tensor, rstd: Tensor, taps: Tensor, folded1: Tensor, b1: Tensor,
    w2: Tensor, gamma: Tensor, beta: Tensor, w1: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """∂x, ∂depthwise, ∂γ, ∂β, ∂w1; ∂folded1, ∂w2 and ∂b1 as one vector; ∂taps with ∂b2 as a tenth row.

    taps, folded1, b1 and w2 are the `Folded` parameters; w1 is the original of folded1.
    """
    N, H, W, d = x.shape
    M, BD = N * H * W, triton.next_power_of_2(d)
    tile = BACKWARD[d]
    parts, tiles = 4 * d // tile.channels, triton.cdiv(M, tile.pixels)
    programs = min(tiles, max(1, tile.programs * MULTIPROCESSORS // parts))  # per slice of the hidden units
    x, gout = x.contiguous(), gout.contiguous()
    gunit = unit.new_empty(parts, M, d)
    sums = b1.new_empty(programs, 4 * d * (2 * d + 1))
    _mixing_backward[(parts, programs)](
        gout, unit, folded1, b1, w2, gunit, sums, M,
        D=d, HIDDEN=4 * d, BM=tile.pixels, FIRST=BD if d == BD else BD // 2, BH=tile.channels,
        STEPS=triton.cdiv(tiles, programs), FAST=fast_gelu(folded1.dtype), **tile.launch(),
    )  # fmt: skip
    with beside(x.device) as join:
        total = summed(sums)
    gz = norm_backward(gunit, unit, rstd, d)
    gx, gtaps = depthwise_backward(gout, x, gz, taps)
    gtaps = summed(gtaps)
    join()
    return gx, *unfold(total, gtaps, gamma, beta, w1), total, gtaps


@fused_block.register_fake
def _(
    x: Tensor, depthwise: Tensor, gamma: Tensor, beta: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor,
    operand: torch.dtype, eps: float, save: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    weights = fold(depthwise, gamma, beta, w1, b1, w2, operand)
    unit = weights.w1.new_empty(x.shape if save else 0)
    rstd = weights.b1.new_empty(x.shape[:3] if save else 0)
    return x.new_empty(x.shape), unit, rstd, *weights


@fused_block_backward.register_fake
def _(
    gout: Tensor, x: Tensor, unit: Tensor, rstd: Tensor, taps: Tensor, folded1: Tensor, b1: Tensor,
    w2: Tensor, gamma: Tensor, beta: Tensor, w1: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    d = x.shape[-1]
    shapes = ((d, 1, 3, 3), (d,), (d,), w1.shape, (4 * d * (2 * d + 1),), (10, d))
    return x.new_empty(x.shape), *(b1.new_empty(shape) for shape in shapes)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, _, gamma, beta, w1, *_ = inputs
    _, *others = output
    ctx.mark_non_differentiable(*others)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, *others, gamma, beta, w1)


def _gradient(ctx: Any, gout: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    b1, w2 = ctx.saved_tensors[5:7]
    gx, gdepthwise, ggamma, gbeta, gw1, sums, gtaps = fused_block_backward(gout, *ctx.saved_tensors)
    _, gw2, gb1 = sums.split([w2.numel(), w2.numel(), b1.numel()])
    return gx, gdepthwise, ggamma, gbeta, gw1, gb1, gw2.view_as(w2), gtaps[9], None, None, None


fused_block.register_autograd(_gradient, setup_context=_remember)


def convnext_block(
    x: Tensor, depthwise: Tensor, norm: torch.nn.LayerNorm, expand: torch.nn.Linear,
    project: torch.nn.Linear, operand: torch.dtype,
) -> Tensor:  # fmt: skip
    """The block as one operation. x: N×H×W×d; depthwise: d×1×3×3; operand: the dtype of matrix products."""
    parameters = (depthwise, norm.weight, norm.bias, expand.weight, expand.bias, project.weight, project.bias)
    save = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *parameters))
    return fused_block(x, *parameters, operand, norm.eps, save)[0]


def folded(
    depthwise: Tensor, norm: torch.nn.LayerNorm, expand: torch.nn.Linear, project: torch.nn.Linear,
    operand: torch.dtype,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The taps, w₁, b₁, w₂ and b₂ that `forward` takes, for parameters that no longer change."""
    matrices = (expand.weight, expand.bias, project.weight)
    return (*fold(depthwise, norm.weight, norm.bias, *matrices, operand), project.bias.float())
