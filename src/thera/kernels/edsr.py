"""EDSR for training, f + tail(blocks(f)) with blocks x + conv₂(relu(conv₁ x)).

Every convolution is 3×3, and all but the first have D channels in and out. The operation after a convolution
(bias, ReLU, sum or mask) is done in the same kernel:

| kernel | a program computes | from | to |
| --- | --- | --- | --- |
| first | some pixels | their neighbours in the image | f |
| first, gradients | a share of the pixels | their neighbours, ∂f | a part of ∂weight and ∂bias |
| convolution | a strip of columns of a few images | x, the residual | relu or sum |
| convolution, backward | the same, with the taps reversed | ∂out; x or ∂x so far | ∂x, masked or summed |
| weights, gradients | a share of the pixels of one convolution | x, ∂out | a part of ∂weight and ∂bias |

With so few channels, the limit is how often a pixel is read from the second-level cache. A convolution goes
down its strip row by row and reads each row three times: shifted left, in place and shifted right, where the
copy engine (`TensorDescriptor`) fills in zeros outside the image. Each copy is used for the three output rows
that it contributes to, so three sums are kept; the oldest is finished and written. The weights' gradients are
computed once, after the backward pass, for all 33 convolutions: four programs for each fill an H200.

The plain form is `thera.networks.edsr.EDSR`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from thera.kernels.common import INTERPRETED, MULTIPROCESSORS, SIZES, Tile
from thera.kernels.sums import summed

# benchmarks/kernels_edsr.py compares these with others.
FIRST = Tile(pixels=128, warps=4, stages=2, programs=2)
CONVOLUTION = Tile(pixels=128, warps=8, stages=3)
WEIGHTS = Tile(pixels=64, warps=8, stages=4)
WEIGHTS_COLUMNS = 16  # of the image: a tile of WEIGHTS is this wide
NEAR = tl.constexpr(32)  # what the first one multiplies per pixel: 9 neighbours' 27 colours, 1 (bias), zeros


@triton.jit
def _neighbours(image, pixel, M, H, W):
    """BM×NEAR: the neighbours of each pixel, tap by tap. image: N×3×H×W."""
    k = tl.arange(0, NEAR)[None, :]
    tap, channel = k // 3, k % 3
    row = (pixel // W % H)[:, None] + tap // 3 - 1
    column = (pixel % W)[:, None] + tap % 3 - 1
    inside = (pixel < M)[:, None] & (k < 27) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
    plane = (pixel // (H * W)).to(tl.int64)[:, None] * 3 + channel
    return tl.where(k == 27, 1.0, tl.load(image + (plane * H + row) * W + column, inside, 0.0))


@triton.jit(do_not_specialize=SIZES)
def _first(image, weight, bias, out, M, H, W, D: tl.constexpr, BM: tl.constexpr):
    """weight: D×27, bias: D, float32 both; out: M×D."""
    pixel = tl.program_id(0) * BM + tl.arange(0, BM)
    k, d = tl.arange(0, NEAR)[:, None], tl.arange(0, D)[None, :]
    w = tl.load(weight + d * 27 + k, k < 27, 0.0) + tl.where(k == 27, tl.load(bias + d), 0.0)
    x = _neighbours(image, pixel, M, H, W).to(out.dtype.element_ty)
    y = tl.dot(x, w.to(x.dtype), input_precision="ieee")
    tl.store(out + pixel.to(tl.int64)[:, None] * D + d, y.to(x.dtype), (pixel < M)[:, None])


@triton.jit(do_not_specialize=SIZES)
def _first_gradients(
    image, g, skipped, sums, M, H, W,
    D: tl.constexpr, BM: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """∂f = g + skipped: what came back through the blocks, and what went past them."""
    d, total = tl.arange(0, D), tl.zeros((D, NEAR), tl.float32)
    for step in tl.range(STEPS, num_stages=STAGES):
        pixel = (tl.program_id(0) * STEPS + step) * BM + tl.arange(0, BM)
        at, real = pixel.to(tl.int64)[:, None] * D + d[None, :], (pixel < M)[:, None]
        both = tl.load(g + at, real, 0.0).to(tl.float32) + tl.load(skipped + at, real, 0.0).to(tl.float32)
        x = _neighbours(image, pixel, M, H, W).to(g.dtype.element_ty)
        total = tl.dot(tl.trans(both.to(x.dtype)), x, total, input_precision="ieee")
    to = sums + tl.program_id(0) * (D * NEAR) + d[:, None] * NEAR + tl.arange(0, NEAR)[None, :]
    tl.store(to, total)


@triton.jit
def _tap(weight, i: tl.constexpr, D: tl.constexpr, BACKWARD: tl.constexpr):
    """D×D, from input to output channels: tap i of the kernel, or, backward, its mirror image."""
    c = tl.arange(0, D)
    at = weight + c[:, None] * (9 * D) + c[None, :]
    if BACKWARD:
        return tl.load(at + (8 - i) * D)
    return tl.trans(tl.load(at + i * D))


@triton.jit
def _end(y, other, END: tl.constexpr):
    """The operation after a convolution."""
    if END == "relu":
        y = tl.maximum(y, 0.0)
    if END == "add":
        y += other.to(tl.float32)
    if END == "mask":
        y = tl.where(other > 0, y, 0.0)
    return y


@triton.jit(do_not_specialize=SIZES)
def _convolution(
    x, weight, bias, other, out, H,
    D: tl.constexpr, NB: tl.constexpr, BW: tl.constexpr, ROWS: tl.constexpr, BACKWARD: tl.constexpr,
    END: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """ROWS rows of BW columns of NB images."""
    P: tl.constexpr = NB * BW
    n, column, first = tl.program_id(0) * NB, tl.program_id(1) * BW, tl.program_id(2) * ROWS
    w0, w1, w2 = _tap(weight, 0, D, BACKWARD), _tap(weight, 1, D, BACKWARD), _tap(weight, 2, D, BACKWARD)
    w3, w4, w5 = _tap(weight, 3, D, BACKWARD), _tap(weight, 4, D, BACKWARD), _tap(weight, 5, D, BACKWARD)
    w6, w7, w8 = _tap(weight, 6, D, BACKWARD), _tap(weight, 7, D, BACKWARD), _tap(weight, 8, D, BACKWARD)
    above = tl.zeros((P, D), tl.float32)  # the output row above the input row, as far as it is summed
    here = tl.zeros((P, D), tl.float32)
    if not BACKWARD:
        b = tl.load(bias + tl.arange(0, D))[None, :]
    for step in tl.range(ROWS + 2, num_stages=STAGES):
        row = first + step - 1
        to = tl.where(step > 1, row - 1, H)  # H is outside: the first two sums are not written
        left = tl.reshape(x.load([n, row, column - 1, 0]), (P, D))
        above = tl.dot(left, w6, above, input_precision="ieee")
        here = tl.dot(left, w3, here, input_precision="ieee")
        below = tl.dot(left, w0, input_precision="ieee")
        centre = tl.reshape(x.load([n, row, column, 0]), (P, D))
        above = tl.dot(centre, w7, above, input_precision="ieee")
        here = tl.dot(centre, w4, here, input_precision="ieee")
        below = tl.dot(centre, w1, below, input_precision="ieee")
        right = tl.reshape(x.load([n, row, column + 1, 0]), (P, D))
        above = tl.dot(right, w8, above, input_precision="ieee")
        here = tl.dot(right, w5, here, input_precision="ieee")
        below = tl.dot(right, w2, below, input_precision="ieee")
        if not BACKWARD:
            above += b
        o = above
        if END == "add" or END == "mask":
            o = tl.reshape(other.load([n, to, column, 0]), (P, D))
        y = _end(above, o, END).to(out.dtype)
        out.store([n, to, column, 0], tl.reshape(y, (NB, 1, BW, D)))
        # The 0.0 forces a copy: without it, the compiler waits for every matrix product before the next one.
        above = here + 0.0
        here = below + 0.0


@triton.jit
def _settle(a):
    """Waits for pending matrix products into `a`; otherwise the compiler serialises those of two steps."""
    if INTERPRETED:
        return a
    return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [a], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit(do_not_specialize=SIZES)
def _weights_gradient(
    x, gout, gweight, gbias, H, W,
    D: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """∂w[i, j] = Σ ∂out[p]ᵀ x[p + (i, j) - 1]: x is read shifted by rows, ∂out by columns the other way."""
    P: tl.constexpr = BH * BW
    layer, share = tl.program_id(0), tl.program_id(1)
    across, down = tl.cdiv(W, BW), tl.cdiv(H, BH)
    a0 = tl.zeros((D, D), tl.float32)
    a1, a2, a3, a4, a5, a6, a7, a8 = a0, a0, a0, a0, a0, a0, a0, a0
    ones, ab = tl.full((P, 16), 1.0, tl.float32).to(x.dtype), tl.zeros((D, 16), tl.float32)
    for step in tl.range(STEPS, num_stages=STAGES):
        tile = share * STEPS + step
        n, row, column = tile // (across * down), tile // across % down * BH, tile % across * BW
        g0 = tl.trans(tl.reshape(gout.load([layer, n, row, column + 1, 0]), (P, D)))
        g1 = tl.trans(tl.reshape(gout.load([layer, n, row, column, 0]), (P, D)))
        g2 = tl.trans(tl.reshape(gout.load([layer, n, row, column - 1, 0]), (P, D)))
        x0 = tl.reshape(x.load([layer, n, row - 1, column, 0]), (P, D))
        x1 = tl.reshape(x.load([layer, n, row, column, 0]), (P, D))
        x2 = tl.reshape(x.load([layer, n, row + 1, column, 0]), (P, D))
        a0 = _settle(tl.dot(g0, x0, a0, input_precision="ieee"))
        a3 = _settle(tl.dot(g0, x1, a3, input_precision="ieee"))
        a6 = _settle(tl.dot(g0, x2, a6, input_precision="ieee"))
        a1 = _settle(tl.dot(g1, x0, a1, input_precision="ieee"))
        a4 = _settle(tl.dot(g1, x1, a4, input_precision="ieee"))
        a7 = _settle(tl.dot(g1, x2, a7, input_precision="ieee"))
        a2 = _settle(tl.dot(g2, x0, a2, input_precision="ieee"))
        a5 = _settle(tl.dot(g2, x1, a5, input_precision="ieee"))
        a8 = _settle(tl.dot(g2, x2, a8, input_precision="ieee"))
        ab = _settle(tl.dot(g1, ones, ab, input_precision="ieee"))  # Σ ∂out, 16 times
    program = layer * tl.num_programs(1) + share
    c = tl.arange(0, D)
    to = gweight + program * (9 * D * D) + c[:, None] * (9 * D) + c[None, :]
    sums = (a0, a1, a2, a3, a4, a5, a6, a7, a8)
    for i in tl.static_range(9):
        tl.store(to + i * D, sums[i])
    tl.store(gbias + program * D + c, tl.max(ab, 1))


def first(image: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> None:
    """The first convolution. image: N×3×H×W, contiguous; weight: D×3×3×3; bias: D; out: N×H×W×D.

    All but `out` are float32.
    """
    N, H, W, D = out.shape
    BM, taps = FIRST.pixels, weight.permute(0, 2, 3, 1).contiguous()
    _first[(triton.cdiv(N * H * W, BM),)](
        image, taps, bias, out, N * H * W, H, W, D=D, BM=BM, num_warps=FIRST.warps
    )


def first_gradients(image: Tensor, g: Tensor, skipped: Tensor) -> tuple[Tensor, Tensor]:
    """∂weight and ∂bias of the first convolution, in float32. ∂f = g + skipped, both N×H×W×D."""
    N, H, W, D = g.shape
    BM, programs = FIRST.pixels, FIRST.programs * MULTIPROCESSORS
    sums = g.new_empty(programs, D, NEAR.value, dtype=torch.float32)
    _first_gradients[(programs,)](
        image, g, skipped, sums, N * H * W, H, W,
        D=D, BM=BM, STEPS=triton.cdiv(triton.cdiv(N * H * W, BM), programs), **FIRST.launch_staged(),
    )  # fmt: skip
    total = summed(sums)
    return _as_parameter(total[:, :27].unflatten(1, (9, 3))), total[:, 27]


def _strips(N: int, W: int) -> tuple[int, int]:
    """How many images and columns a strip has, such that strips have the fewest pixels outside the images."""
    pixels = CONVOLUTION.pixels
    widths = [w for w in (16, 32, 64) if w <= pixels]  # others need too much shared memory
    covered = {w: triton.cdiv(W, w) * w * triton.cdiv(N, pixels // w) * (pixels // w) for w in widths}
    columns = min(widths, key=lambda w: (covered[w], -w))
    return pixels // columns, columns


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, end: str = "", other: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The convolution of x, or if there is no bias its transpose (∂out → ∂x), and then `end`.

    x, other, out: N×H×W×D; weight: D×9×D (out, tap, in), in the dtype of x; bias: D, float32. `end` is
    "relu", "add" (`other` is added), "mask" (zero where `other` is not positive) or nothing.
    """
    N, H, W, D = x.shape
    out = torch.empty_like(x) if out is None else out
    images, columns = _strips(N, W)
    strips = triton.cdiv(N, images), triton.cdiv(W, columns)
    rows = triton.cdiv(H, max(1, MULTIPROCESSORS // (strips[0] * strips[1])))
    described = [
        None if t is None else TensorDescriptor.from_tensor(t, [images, 1, columns, D])
        for t in (x, other, out)
    ]
    _convolution[(*strips, triton.cdiv(H, rows))](
        described[0], weight, bias, *described[1:], H,
        D=D, BACKWARD=bias is None, END=end, NB=images, BW=columns, ROWS=rows, **CONVOLUTION.launch_staged(),
    )  # fmt: skip
    return out


def _as_parameter(weight: Tensor) -> Tensor:
    """D×9×C → D×C×3×3, the same memory."""
    return weight.unflatten(1, (3, 3)).permute(0, 3, 1, 2)


def weights_gradients(x: Tensor, gout: Tensor) -> tuple[Tensor, Tensor]:
    """∂weight (L×D×9×D) and ∂bias (L×D) of L convolutions, in float32. x, gout: L×N×H×W×D."""
    L, N, H, W, D = x.shape
    columns, lines = WEIGHTS_COLUMNS, WEIGHTS.pixels // WEIGHTS_COLUMNS
    shares = max(1, MULTIPROCESSORS // L)
    steps = triton.cdiv(N * triton.cdiv(H, lines) * triton.cdiv(W, columns), shares)
    gweight = x.new_empty(L, shares, D, 9, D, dtype=torch.float32)
    gbias = x.new_empty(L, shares, D, dtype=torch.float32)
    described = [TensorDescriptor.from_tensor(t, [1, 1, lines, columns, D]) for t in (x, gout)]
    _weights_gradient[(L, shares)](
        *described, gweight, gbias, H, W, D=D, BH=lines, BW=columns, STEPS=steps, **WEIGHTS.launch_staged()
    )
    return gweight.sum(1), gbias.sum(1)


class Backbone(torch.autograd.Function):
    """image, weights, biases → f + tail(blocks(f)), where f is the first convolution. image: N×3×H×W."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, operand: torch.dtype, *parameters: Tensor) -> Tensor:
        L = len(parameters) // 2 - 1
        head, *weights = parameters[: L + 1]
        head_bias, *biases = parameters[L + 1 :]
        N, _, H, W = image.shape
        weight = torch.stack([w.permute(0, 2, 3, 1) for w in weights]).to(operand).flatten(2, 3)
        bias = torch.stack(biases).float()
        x = image.new_empty(L, N, H, W, weight.shape[-1], dtype=operand)  # what each convolution reads
        first(image, head, head_bias, x[0])
        for i in range(0, L - 1, 2):
            convolve(x[i], weight[i], bias[i], "relu", out=x[i + 1])
            convolve(x[i + 1], weight[i + 1], bias[i + 1], "add", x[i], out=x[i + 2])
        out = convolve(x[-1], weight[-1], bias[-1], "add", x[0])
        ctx.save_for_backward(image, x, weight)
        return out.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, gout: Tensor) -> tuple[Tensor | None, ...]:
        image, x, weight = ctx.saved_tensors
        gf, g = torch.empty_like(x[0]), torch.empty_like(x)  # the gradients of f and of every output
        gx = [gf, *g[:-1]]  # and of every input
        g[-1] = gout.permute(0, 2, 3, 1)
        convolve(g[-1], weight[-1], None, out=gx[-1])
        for i in range(len(x) - 3, -1, -2):
            convolve(g[i + 1], weight[i + 1], None, "mask", x[i + 1], out=gx[i + 1])
            convolve(g[i], weight[i], None, "add", g[i + 1], out=gx[i])
        ghead, ghead_bias = first_gradients(image, gf, g[-1])
        gweight, gbias = weights_gradients(x, g)
        return None, None, ghead, *(_as_parameter(w) for w in gweight), ghead_bias, *gbias


def edsr(image: Tensor, convolutions: list[torch.nn.Conv2d], operand: torch.dtype) -> Tensor:
    """The network as one operation, for training. image: N×3×H×W; the result: N×D×H×W.

    convolutions: the first, two for each block, the tail. operand: the dtype of the matrix products and the
    features. The image gets no gradient.
    """
    parameters = [c.weight for c in convolutions] + [c.bias for c in convolutions]
    with torch.autocast(image.device.type, enabled=False), torch.cuda.device_of(image):
        return Backbone.apply(image.float().contiguous(), operand, *parameters)
