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

from thera.networks.kernels_convnext import INTERPRETED, MULTIPROCESSORS, _gelu
from thera.networks.kernels_swin_weights import Folded, Parameters, fold, unfold
from thera.networks.spec import WINDOW
from thera.networks.swinir import ALIGNED_HEAD, ALIGNED_HIDDEN, ALIGNED_WIDTH, HEAD, HEADS, WIDTH, SwinLayer


class Tile(NamedTuple):
    """How a matrix product is cut."""

    rows: int
    columns: int
    depth: int  # at a time
    warps: int
    stages: int  # of the software pipeline
    registers: int | None = None  # at most, to a thread


class Share(NamedTuple):
    """How windows are shared out among programs that persist."""

    programs: int  # to a multiprocessor
    stages: int
    registers: int | None = None


# benchmarks/kernels_swin.py times these and their alternatives.
EXPAND, EXPAND_BACKWARD = Tile(128, 128, 64, 8, 2, 128), Tile(128, 128, 64, 8, 2)
EXPAND_F32 = Tile(64, 64, 32, 4, 2)
ATTENTION, ATTENTION_BACKWARD, ATTENTION_F32 = Share(4, 2), Share(3, 1, 168), Share(2, 1)
AREA = WINDOW * WINDOW


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


@triton.jit
def _rows(COLUMNS: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr):
    """The rows of this program's tile: programs that share them are neighbours, and share a cache."""
    return tl.program_id(0) // (COLUMNS // BC) * BM + tl.arange(0, BM)


@triton.jit
def _product(
    rows, weight, M, row_stride, column_stride,
    COLUMNS: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """A tile of rows · weight in float32, rows: M×D, weight: D×COLUMNS; and its offsets, mask and columns."""
    r, c = _rows(COLUMNS, BM, BC), tl.program_id(0) % (COLUMNS // BC) * BC + tl.arange(0, BC)
    k = tl.arange(0, BK)
    ok = (r < M)[:, None]
    a = rows + r.to(tl.int64)[:, None] * D + k[None, :]
    b = weight + k[:, None] * row_stride + c[None, :] * column_stride
    y = tl.zeros((BM, BC), tl.float32)
    for start in range(0, D, BK):
        y = tl.dot(tl.load(a + start, ok, 0.0), tl.load(b + start * row_stride), y, input_precision=PRECISION)
    return y, r.to(tl.int64)[:, None] * COLUMNS + c[None, :], ok, c[None, :]


@triton.jit
def _kept(
    keep, M, pixels, KEEP: tl.constexpr, COLUMNS: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """BM×1: what stochastic depth multiplies each row of this tile by."""
    r = _rows(COLUMNS, BM, BC)
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
    h, at, ok, c = _product(unit, weight, M, 1, D, HIDDEN_OUT, D, PRECISION, BM, BC, BK)
    tl.store(hidden + at, h.to(hidden.dtype.element_ty), ok)
    g, _ = _gelu(h, FAST)
    g = tl.where(c == HIDDEN, 1.0, g) * _kept(keep, M, pixels, KEEP, HIDDEN_OUT, BM, BC)
    tl.store(out + at, g.to(out.dtype.element_ty), ok)


@triton.jit(do_not_specialize=["M", "pixels"])
def _expand_backward(
    gout, weight, keep, hidden, ghidden, M, pixels,
    KEEP: tl.constexpr, D: tl.constexpr, HIDDEN_OUT: tl.constexpr, FAST: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """From the gradient behind the second product, whose weight this is, to that before the activation."""
    gg, at, ok, _ = _product(gout, weight, M, HIDDEN_OUT, 1, HIDDEN_OUT, D, PRECISION, BM, BC, BK)
    h = tl.load(hidden + at, ok, 0.0).to(tl.float32)
    g, s = _gelu(h, FAST)
    # gelu' = s + h s (1 - s) · 2 du/dh
    gg *= s + (g - g * s) * (1.5957691216057308 + 0.21406444881780075 * h * h)
    gg *= _kept(keep, M, pixels, KEEP, HIDDEN_OUT, BM, BC)
    tl.store(ghidden + at, gg.to(ghidden.dtype.element_ty), ok)


@triton.jit
def _position(table, h, HEADS: tl.constexpr, TRANSPOSED: tl.constexpr):
    """64×64: one head's bias between any two pixels of a window, in units of log 2."""
    i = tl.arange(0, 64)[:, None]
    j = tl.arange(0, 64)[None, :]
    at = (i // 8 - j // 8 + 7) * 15 + (i % 8 - j % 8 + 7)
    if TRANSPOSED:
        at = 224 - at
    return tl.load(table + at * HEADS + h).to(tl.float32) * 1.4426950408889634


@triton.jit
def _window(window, H, W, SHIFT: tl.constexpr):
    """Of a window: its 64 pixels' numbers, its sample, and which pixels lie beyond the border that the shift
    wrapped around (two bits; those of different bits do not attend to one another)."""
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
    """q kᵀ / √30 + position + mask in units of log 2; its transpose with q and k exchanged."""
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * 1.4426950408889634) + position
    if SHIFT:
        s = tl.where(beyond[:, None] == beyond[None, :], s, s - 144.26950408889634)
    return s


@triton.jit(do_not_specialize=["windows", "H", "W", "steps"])
def _attention(
    qkv, table, keep, out, logsum, windows, H, W, scale, steps,
    KEEP: tl.constexpr, SHIFT: tl.constexpr, HEADS: tl.constexpr, HEAD: tl.constexpr, D: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """A program owns one head and every P-th window: the head's position bias stays in registers."""
    h = tl.program_id(0)
    i, d = tl.arange(0, 64), tl.arange(0, D)
    position = _position(table, h, HEADS, False)
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
    """As forward; the gradient of the head's position bias stays in registers too.

    The 64×64 matrices are transposed here: two of the three products that take one then have it in registers.
    """
    h = tl.program_id(0)
    i, d = tl.arange(0, 64), tl.arange(0, D)
    position = _position(table, h, HEADS, True)
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
        s = _logits(k, q, position, beyond, scale, SHIFT, PRECISION)
        p = tl.exp2(s - tl.load(logsum + (window * HEADS + h) * 64 + i, ok, 0.0)[None, :])
        gv = tl.dot(p.to(v.dtype), g, input_precision=PRECISION) * kept
        tl.store(gqkv + at + 2 * HEADS * D, gv.to(v.dtype), ok)
        dp = tl.dot(v, tl.trans(g), input_precision=PRECISION)
        ds = p * (dp - tl.sum(p * dp, 0)[None, :])
        gp += ds * kept
        short = ds.to(v.dtype)
        gk = tl.dot(short, q, input_precision=PRECISION) * (scale * kept)
        tl.store(gqkv + at + HEADS * D, gk.to(v.dtype), ok)
        gq = tl.dot(tl.trans(short), k, input_precision=PRECISION) * (scale * kept)
        tl.store(gqkv + at, gq.to(v.dtype), ok)
    to = gposition + (tl.program_id(1) * HEADS + h) * 4096
    tl.store(to + i[None, :] * 64 + i[:, None], gp)


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


ROWS = 16  # of pixels to a program where one row is a pixel's 192 channels
ROW_SIZES = {"D": WIDTH, "D_OUT": ALIGNED_WIDTH, "BM": ROWS, "BD": triton.next_power_of_2(ALIGNED_WIDTH)}


def norm(x: Tensor, y: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """x + y (x itself without y), normalised with a one behind it, and 1/σ. x, y: M×192."""
    M = x.shape[0]
    total, unit = (x if y is None else torch.empty_like(x)), torch.empty_like(x)
    rstd = x.new_empty(M, dtype=torch.float32)
    _norm[(triton.cdiv(M, ROWS),)](
        x, y, total, unit, rstd, M, eps, ADD=y is not None, num_warps=4, **ROW_SIZES
    )
    return total, unit, rstd


def norm_backward(gunit: Tensor, unit: Tensor, rstd: Tensor, gout: Tensor) -> Tensor:
    """The gradient at x of a branch that begins with `norm` and of the way past it. All M×192."""
    M, gx = gunit.shape[0], torch.empty_like(gout)
    _norm_backward[(triton.cdiv(M, ROWS),)](gunit, unit, rstd, gout, gx, M, num_warps=4, **ROW_SIZES)
    return gx


def _multiply_as(operand: torch.dtype) -> str:
    """How Triton multiplies matrices: float32 as PyTorch is set to, in TF32 or to the last digit but one."""
    if operand != torch.float32 or INTERPRETED:
        return "ieee"
    matmul = torch.backends.cuda.matmul
    tf32 = matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    return "tf32" if tf32 else "tf32x3"


def _expansion(t: Tensor, keep: Tensor | None, tile: Tile) -> tuple[tuple[int], dict[str, Any]]:
    """Grid and constants of the two kernels of the first half of the mlp."""
    full = t.dtype == torch.float32
    tile = EXPAND_F32 if full else tile
    constants = {"D": ALIGNED_WIDTH, "HIDDEN_OUT": ALIGNED_HIDDEN, "PRECISION": _multiply_as(t.dtype)}
    constants |= {"KEEP": keep is not None, "FAST": not (full or INTERPRETED)}
    constants |= {"BM": tile.rows, "BC": tile.columns, "BK": tile.depth}
    constants |= {"num_warps": tile.warps, "num_stages": tile.stages, "maxnreg": tile.registers}
    return (ALIGNED_HIDDEN // tile.columns * triton.cdiv(t.shape[0], tile.rows),), constants


def expand(unit: Tensor, weight: Tensor, keep: Tensor | None, pixels: int) -> tuple[Tensor, Tensor]:
    """hidden = unit weightᵀ, and keep · gelu(hidden) with keep in column 360.

    unit: M×192; weight: 384×192; keep: one for every `pixels` rows. Returns M×384, twice.
    """
    M, (grid, constants) = unit.shape[0], _expansion(unit, keep, EXPAND)
    hidden, out = unit.new_empty(M, ALIGNED_HIDDEN), unit.new_empty(M, ALIGNED_HIDDEN)
    _expand[grid](unit, weight, keep, hidden, out, M, pixels, HIDDEN=2 * WIDTH, **constants)
    return hidden, out


def expand_backward(gout: Tensor, weight: Tensor, hidden: Tensor, keep: Tensor | None, pixels: int) -> Tensor:
    """∂hidden from ∂(the second product, by `weight`: 192×384)."""
    grid, constants = _expansion(gout, keep, EXPAND_BACKWARD)
    ghidden = torch.empty_like(hidden)
    _expand_backward[grid](gout, weight, keep, hidden, ghidden, gout.shape[0], pixels, **constants)
    return ghidden


def _attention_share(
    qkv: Tensor, keep: Tensor | None, shift: int, share: Share
) -> tuple[tuple[int, int], dict[str, Any]]:
    """Grid and last arguments of the two kernels of attention."""
    windows, share = qkv.shape[0] // AREA, ATTENTION_F32 if qkv.dtype == torch.float32 else share
    programs = max(1, min(windows, share.programs * MULTIPROCESSORS // HEADS))
    steps = triton.cdiv(windows, programs)
    constants: dict[str, Any] = {"KEEP": keep is not None, "SHIFT": shift, "HEADS": HEADS, "D": ALIGNED_HEAD}
    constants["PRECISION"] = _multiply_as(qkv.dtype)
    constants |= {"num_warps": 4, "num_stages": share.stages, "maxnreg": share.registers}
    constants["steps"] = tl.constexpr(steps) if INTERPRETED else steps  # it knows no other bounds of loops
    return (HEADS, triton.cdiv(windows, steps)), constants


def attention(
    qkv: Tensor, table: Tensor, keep: Tensor | None, shift: int, H: int, W: int
) -> tuple[Tensor, Tensor]:
    """keep · softmax(q kᵀ / √30 + position) v in windows shifted by `shift`, keep in column 30.

    qkv: M×576 (three times six heads of 32) in the order of N×H×W pixels; keep: N. Returns M×192, and the
    logarithms of the softmax's sums in the order of windows.
    """
    M = qkv.shape[0]
    out, logsum = qkv.new_empty(M, ALIGNED_WIDTH), qkv.new_empty(M, HEADS, dtype=torch.float32)
    grid, constants = _attention_share(qkv, keep, shift, ATTENTION)
    _attention[grid](
        qkv, table, keep, out, logsum, M // AREA, H, W, HEAD**-0.5,
        HEAD=HEAD, **constants,
    )  # fmt: skip
    return out, logsum


def attention_backward(
    gy: Tensor, qkv: Tensor, logsum: Tensor, table: Tensor, keep: Tensor | None, shift: int, H: int, W: int
) -> tuple[Tensor, Tensor]:
    """∂qkv, and ∂position (6×64×64)."""
    M = qkv.shape[0]
    gqkv = torch.empty_like(qkv)
    grid, constants = _attention_share(qkv, keep, shift, ATTENTION_BACKWARD)
    gposition = qkv.new_empty(grid[1], HEADS, AREA, AREA, dtype=torch.float32)
    _attention_backward[grid](
        qkv, table, keep, logsum, gy, gqkv, gposition, M // AREA, H, W, HEAD**-0.5, **constants
    )
    return gqkv, gposition.sum(0)


def forward(x: Tensor, keep: Tensor | None, shift: int, eps: float, p: Parameters) -> tuple[Tensor, Saved]:
    """The layer. x: N×H×W×192; keep: 2×N, what stochastic depth multiplies each branch by."""
    N, H, W, d = x.shape
    keep1, keep2 = (None, None) if keep is None else keep
    weights = fold(p, x.dtype)
    x, unit1, rstd1 = norm(x.reshape(-1, d), None, eps)
    qkv = unit1 @ weights.qkv.T
    attended, logsum = attention(qkv, p.table, keep1, shift, H, W)
    x, unit2, rstd2 = norm(x, attended @ weights.proj.T, eps)
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
