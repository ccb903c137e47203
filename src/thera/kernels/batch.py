"""Training batches: crops, bicubic downscaling and target sampling, without storing the crops.

| kernel | a program computes | from | to |
| --- | --- | --- | --- |
| rows | one row of one input, as wide as its crop | the crop's pixels | weighted sums of rows |
| columns | one row of one input | those sums | the input, rounded to 8 bits |
| targets | some target pixels | random numbers, the crop's pixels | their colours and positions |

The crops of a batch differ in size, and most are far smaller than the largest. Stored as one tensor, each
would take as much memory as the largest. The plain form is `thera.training.data.Sampler.build`.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 128  # of a crop, per program
TARGETS = 256  # per program
ROUND = tl.constexpr(1.5 * 2**23)  # adding and subtracting it rounds to the nearest integer, .5 to the even


@triton.jit
def _cubic(x):
    """Keys' kernel with a = -1/2, as `thera.evaluation.resize.cubic`."""
    z = tl.abs(x)
    near = (1.5 * z - 2.5) * z * z + 1
    far = ((-0.5 * z + 2.5) * z - 4) * z + 2
    return tl.where(z <= 1, near, tl.where(z <= 2, far, 0.0))


@triton.jit
def _rows(
    pixels, first, down, across, size, rows, HIGH: tl.constexpr, P: tl.constexpr, BW: tl.constexpr
):  # fmt: skip
    k, p, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    n = tl.load(size + k).to(tl.int32)
    j = block * BW + tl.arange(0, BW)
    inside = j < n
    if block * BW < n:
        scale = n.to(tl.float32) / P
        centre = (p + 0.5) * scale - 0.5
        i = tl.maximum(tl.ceil(centre - 2 * scale), 0.0).to(tl.int32)
        end = tl.minimum(tl.floor(centre + 2 * scale).to(tl.int32) + 1, n)
        at = pixels + 3 * (tl.load(first + k) + j * tl.load(across + k))
        step = 3 * tl.load(down + k)
        red = tl.zeros((BW,), tl.float32)
        green, blue = red, red
        total = 0.0
        while i < end:
            w = _cubic((i - centre) / scale)
            total += w
            red += w * tl.load(at + i * step, inside, other=0).to(tl.float32)
            green += w * tl.load(at + i * step + 1, inside, other=0).to(tl.float32)
            blue += w * tl.load(at + i * step + 2, inside, other=0).to(tl.float32)
            i += 1
        to = rows + (k * P + p) * (3 * HIGH) + j
        tl.store(to, red / total, inside)
        tl.store(to + HIGH, green / total, inside)
        tl.store(to + 2 * HIGH, blue / total, inside)


@triton.jit
def _level(value):
    """Clipped to 0 … 255 and rounded to an integer."""
    return (tl.minimum(tl.maximum(value, 0.0), 255.0) + ROUND) - ROUND


@triton.jit
def _white(value):
    """value / 255, correctly rounded as on a CPU. A GPU's plain division is not."""
    return tl.div_rn(value, 255.0)


@triton.jit
def _columns(rows, size, source, HIGH: tl.constexpr, P: tl.constexpr, BW: tl.constexpr):
    k, p = tl.program_id(0), tl.program_id(1)
    n = tl.load(size + k).to(tl.int32)
    scale = n.to(tl.float32) / P
    q = tl.arange(0, BW)
    centre = (q + 0.5) * scale - 0.5
    i = tl.ceil(centre - 2 * scale).to(tl.int32)
    taps = tl.floor(4 * scale).to(tl.int32) + 2
    at = rows + (k * P + p) * (3 * HIGH)
    red = tl.zeros((BW,), tl.float32)
    green, blue, total = red, red, red
    while taps > 0:
        w = tl.where((i >= 0) & (i < n) & (q < P), _cubic((i - centre) / scale), 0.0)
        read = w != 0
        total += w
        red += w * tl.load(at + i, read, other=0.0)
        green += w * tl.load(at + HIGH + i, read, other=0.0)
        blue += w * tl.load(at + 2 * HIGH + i, read, other=0.0)
        i += 1
        taps -= 1
    total = tl.where(q < P, total, 1.0)
    to = source + ((k * P + p) * P + q) * 3
    tl.store(to, _white(_level(red / total)), q < P)
    tl.store(to + 1, _white(_level(green / total)), q < P)
    tl.store(to + 2, _white(_level(blue / total)), q < P)


@triton.jit
def _place(u, cell, scale):
    """The pixel that u in [0, 1) chooses of those centred in a cell, and its offset from the middle."""
    begin = tl.ceil(cell * scale - 0.5)
    after = tl.ceil((cell + 1) * scale - 0.5)
    at = tl.minimum(begin + tl.floor(u * (after - begin)), after - 1)
    return at.to(tl.int64), ((at + 0.5) / scale - cell - 0.5).to(tl.float32)


@triton.jit
def _targets(
    pixels, first, down, across, size, u, target, x, count,
    P: tl.constexpr, Q: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    e = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = e < count
    cell = e // Q % (P * P)
    k = e // (P * P * Q)
    # Correctly rounded as on a CPU: if a pixel's centre lies on a border, the last bit decides its cell.
    scale = tl.div_rn(tl.load(size + k, inside, other=P).to(tl.float32), P * 1.0).to(tl.float64)
    row, y = _place(tl.load(u + 2 * e, inside, other=0.0).to(tl.float64), (cell // P).to(tl.float64), scale)
    col, z = _place(
        tl.load(u + 2 * e + 1, inside, other=0.0).to(tl.float64), (cell % P).to(tl.float64), scale
    )
    at = tl.load(first + k, inside, other=0)
    at += row * tl.load(down + k, inside, other=0) + col * tl.load(across + k, inside, other=0)
    tl.store(x + 2 * e, y, inside)
    tl.store(x + 2 * e + 1, z, inside)
    for c in tl.static_range(3):
        level = tl.load(pixels + 3 * at + c, inside, other=0).to(tl.float32)
        tl.store(target + 3 * e + c, _white(level), inside)


def draw(
    pixels: Tensor, first: Tensor, down: Tensor, across: Tensor, size: Tensor, u: Tensor, largest: int
) -> tuple[Tensor, Tensor, Tensor]:
    """N inputs (N×3×P×P), their targets (N×P×P×q×3) and the targets' positions in their cells (N×P×P×q×2).

    pixels: all images, …×3 uint8. Crop k has size[k]² pixels, at most largest²; its pixel (i, j) is
    pixels[first[k] + i·down[k] + j·across[k]]. u: N×P×P×q×2, uniform in [0, 1).
    """
    N, P, _, Q, _ = u.shape
    rows = torch.empty(N, P, 3, largest, device=pixels.device)
    source = torch.empty(N, P, P, 3, device=pixels.device)
    target, x = torch.empty(N, P, P, Q, 3, device=pixels.device), torch.empty_like(u)
    crops = pixels, first, down.contiguous(), across.contiguous(), size
    _rows[(N, P, triton.cdiv(largest, COLUMNS))](*crops, rows, HIGH=largest, P=P, BW=COLUMNS, num_warps=4)
    width = 2 ** math.ceil(math.log2(P))
    _columns[(N, P)](rows, size, source, HIGH=largest, P=P, BW=width, num_warps=max(1, width // 64))
    count = N * P * P * Q
    _targets[(triton.cdiv(count, TARGETS),)](*crops, u, target, x, count, P=P, Q=Q, BM=TARGETS, num_warps=4)
    return source.permute(0, 3, 1, 2), target, x
