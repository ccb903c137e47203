"""The parameters of a Swin layer in the form its kernels read, and their gradients: one launch each way.

Every matrix is padded to aligned widths and rounded to the dtype of the products. The norm before it is
folded in, w(γu + β) + b = (wγ)u + (wβ + b), and the bias is stored in the first surplus column, which the
other kernels multiply by ones. The gradient of the folded matrix then has those of bias and norm in it.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from thera.kernels.swin.sizes import ALIGNED_HEAD, ALIGNED_HIDDEN, ALIGNED_WIDTH, HEAD, HEADS, WINDOW

TABLE = (2 * WINDOW - 1) ** 2  # relative positions in a window
TABLE_ROWS = tl.constexpr(32)  # of the table, per program
NORM_CHANNELS = tl.constexpr(16)  # of a norm, per program
FOLD_ROWS = 8  # of a matrix, per program
HEAD_SIZES = {"HEADS": HEADS, "HEAD": HEAD, "HEAD_OUT": ALIGNED_HEAD}


@triton.jit
def _source(r, GROUP: tl.constexpr, GROUP_IN: tl.constexpr, REAL: tl.constexpr):
    """Where padded row (or column) r is in the stored matrix, if it is stored, and if it is not padding.

    Rows come in groups (heads) of GROUP, of which GROUP_IN are stored and REAL are not padding.
    """
    within = r % GROUP
    return r // GROUP * GROUP_IN + within, within < GROUP_IN, within < REAL


@triton.jit
def _matrix(
    weight, bias, gamma, beta, folded, first,
    ROW: tl.constexpr, ROW_IN: tl.constexpr, ROW_REAL: tl.constexpr, COLUMN: tl.constexpr,
    COLUMN_IN: tl.constexpr, COLUMN_REAL: tl.constexpr, COLUMNS: tl.constexpr, NORM: tl.constexpr,
    BACKWARD: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """BR rows of a folded matrix: padded, with the norm before it folded in and the bias in the first surplus
    column. If BACKWARD, `folded` is its gradient, and the gradients of weight and bias are written."""
    r, c = first + tl.arange(0, BR), tl.arange(0, BC)
    row, row_there, row_real = _source(r, ROW, ROW_IN, ROW_REAL)
    column, column_there, column_real = _source(c, COLUMN, COLUMN_IN, COLUMN_REAL)
    stored = weight + row[:, None] * (COLUMNS // COLUMN * COLUMN_IN) + column[None, :]
    at, inside = folded + r[:, None] * COLUMNS + c[None, :], (c < COLUMNS)[None, :]
    real = row_real[:, None] & column_real[None, :] & inside
    if BACKWARD:
        g = tl.load(at, real, 0.0).to(tl.float32)
        b = tl.load(folded + r * COLUMNS + COLUMN_REAL, row_real, 0.0).to(tl.float32)
        if NORM:
            g *= tl.load(gamma + c, c < COLUMN_REAL, 0.0)[None, :]
            g += b[:, None] * tl.load(beta + c, c < COLUMN_REAL, 0.0)[None, :]
        tl.store(stored, g, row_there[:, None] & column_there[None, :] & inside)
        tl.store(bias + row, b, row_there)
    else:
        w = tl.load(stored, real, 0.0).to(tl.float32)
        b = tl.load(bias + row, row_real, 0.0).to(tl.float32)
        if NORM:
            b += tl.sum(w * tl.load(beta + c, c < COLUMN_REAL, 0.0).to(tl.float32)[None, :], 1)
            w *= tl.load(gamma + c, c < COLUMN_REAL, 0.0).to(tl.float32)[None, :]
        w = tl.where((c == COLUMN_REAL)[None, :], b[:, None], w)
        tl.store(at, w.to(folded.dtype.element_ty), inside)


@triton.jit
def _matrices(
    qkv, qkv_bias, proj, proj_bias, expand, expand_bias, project, project_bias,
    gamma1, beta1, gamma2, beta2, qkv_folded, proj_folded, expand_folded, project_folded, first,
    BACKWARD: tl.constexpr, HEADS: tl.constexpr, HEAD: tl.constexpr, HEAD_IN: tl.constexpr,
    HEAD_OUT: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """`_matrix` for BR of the 7·192 rows of the four folded matrices, from row `first`."""
    D: tl.constexpr = HEADS * HEAD
    D_IN: tl.constexpr = HEADS * HEAD_IN
    D_OUT: tl.constexpr = HEADS * HEAD_OUT
    BC: tl.constexpr = triton.next_power_of_2(D_OUT)
    if first < 3 * D_OUT:
        _matrix(
            qkv, qkv_bias, gamma1, beta1, qkv_folded, first,
            HEAD_OUT, HEAD_IN, HEAD, D_OUT, D_IN, D, D_OUT, True, BACKWARD, BR, BC,
        )  # fmt: skip
    elif first < 5 * D_OUT:
        _matrix(
            expand, expand_bias, gamma2, beta2, expand_folded, first - 3 * D_OUT,
            2 * D_OUT, 2 * D_IN, 2 * D, D_OUT, D_IN, D, D_OUT, True, BACKWARD, BR, BC,
        )  # fmt: skip
    elif first < 6 * D_OUT:
        _matrix(
            proj, proj_bias, gamma1, beta1, proj_folded, first - 5 * D_OUT,
            D_OUT, D_IN, D, HEAD_OUT, HEAD_IN, HEAD, D_OUT, False, BACKWARD, BR, BC,
        )  # fmt: skip
    else:
        _matrix(
            project, project_bias, gamma2, beta2, project_folded, first - 6 * D_OUT,
            D_OUT, D_IN, D, 2 * D_OUT, 2 * D_IN, 2 * D, 2 * D_OUT, False, BACKWARD, BR, 2 * BC,
        )  # fmt: skip


@triton.jit
def _fold_weights(
    qkv, qkv_bias, proj, proj_bias, expand, expand_bias, project, project_bias,
    gamma1, beta1, gamma2, beta2, qkv_out, proj_out, expand_out, project_out,
    HEADS: tl.constexpr, HEAD: tl.constexpr, HEAD_IN: tl.constexpr, HEAD_OUT: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    _matrices(
        qkv, qkv_bias, proj, proj_bias, expand, expand_bias, project, project_bias,
        gamma1, beta1, gamma2, beta2, qkv_out, proj_out, expand_out, project_out, tl.program_id(0) * BR,
        False, HEADS, HEAD, HEAD_IN, HEAD_OUT, BR,
    )  # fmt: skip


@triton.jit
def _unfold_norm(
    grad, weight, ggamma, gbeta, first,
    ROW: tl.constexpr, ROW_IN: tl.constexpr, ROW_REAL: tl.constexpr, D: tl.constexpr, D_IN: tl.constexpr,
    D_OUT: tl.constexpr, ROWS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """A norm's gradients in BC channels: ∂γ = Σ ∂(wγ)·w and ∂β = Σ ∂b·w over the rows."""
    c = first + tl.arange(0, BC)
    scale = tl.zeros((BR, BC), tl.float32)
    offset = tl.zeros((BR, BC), tl.float32)
    for start in range(0, ROWS, BR):
        r = start + tl.arange(0, BR)
        row, _, real = _source(r, ROW, ROW_IN, ROW_REAL)
        real = real[:, None] & (c < D)[None, :]
        w = tl.load(weight + row[:, None] * D_IN + c[None, :], real, 0.0).to(tl.float32)
        scale += w * tl.load(grad + r[:, None] * D_OUT + c[None, :], real, 0.0).to(tl.float32)
        offset += w * tl.load(grad + r * D_OUT + D).to(tl.float32)[:, None]
    tl.store(ggamma + c, tl.sum(scale, 0), c < D)
    tl.store(gbeta + c, tl.sum(offset, 0), c < D)


@triton.jit
def _unfold_table(gposition, gtable, part, HEADS: tl.constexpr, BT: tl.constexpr):
    """The gradient of BT rows of one head's bias table: sums over the pairs at each relative position."""
    h = part % HEADS
    r, j = part // HEADS * BT + tl.arange(0, BT), tl.arange(0, 64)
    y = (j // 8)[None, :] + (r // 15 - 7)[:, None]
    x = (j % 8)[None, :] + (r % 15 - 7)[:, None]
    inside = (y >= 0) & (y < 8) & (x >= 0) & (x < 8) & (r < 225)[:, None]
    g = tl.load(gposition + (h * 64 + y * 8 + x) * 64 + j[None, :], inside, 0.0)
    tl.store(gtable + r * HEADS + h, tl.sum(g, 1), r < 225)


@triton.jit
def _unfold_weights(
    qkv_grad, proj_grad, expand_grad, project_grad, gposition, qkv, expand, gamma1, beta1, gamma2, beta2,
    gqkv, gqkv_bias, gproj, gproj_bias, gexpand, gexpand_bias, gproject, gproject_bias,
    ggamma1, gbeta1, ggamma2, gbeta2, gtable,
    HEADS: tl.constexpr, HEAD: tl.constexpr, HEAD_IN: tl.constexpr, HEAD_OUT: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = HEADS * HEAD
    D_IN: tl.constexpr = HEADS * HEAD_IN
    D_OUT: tl.constexpr = HEADS * HEAD_OUT
    NORMS: tl.constexpr = D_OUT // NORM_CHANNELS  # programs of each norm: the slowest, so they start first
    program = tl.program_id(0)
    first = (program - 2 * NORMS) * BR
    if program < NORMS:
        _unfold_norm(
            qkv_grad, qkv, ggamma1, gbeta1, program * NORM_CHANNELS,
            HEAD_OUT, HEAD_IN, HEAD, D, D_IN, D_OUT, 3 * D_OUT, 64, NORM_CHANNELS,
        )  # fmt: skip
    elif program < 2 * NORMS:
        _unfold_norm(
            expand_grad, expand, ggamma2, gbeta2, (program - NORMS) * NORM_CHANNELS,
            2 * D_OUT, 2 * D_IN, 2 * D, D, D_IN, D_OUT, 2 * D_OUT, 64, NORM_CHANNELS,
        )  # fmt: skip
    elif first < 7 * D_OUT:
        _matrices(
            gqkv, gqkv_bias, gproj, gproj_bias, gexpand, gexpand_bias, gproject, gproject_bias,
            gamma1, beta1, gamma2, beta2, qkv_grad, proj_grad, expand_grad, project_grad, first,
            True, HEADS, HEAD, HEAD_IN, HEAD_OUT, BR,
        )  # fmt: skip
    else:
        _unfold_table(gposition, gtable, program - 2 * NORMS - 7 * D_OUT // BR, HEADS, TABLE_ROWS)


class Parameters(NamedTuple):
    """Of a layer. The order is that of the autograd operation's arguments."""

    gamma1: Tensor
    beta1: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    table: Tensor
    proj: Tensor
    proj_bias: Tensor
    gamma2: Tensor
    beta2: Tensor
    expand: Tensor
    expand_bias: Tensor
    project: Tensor
    project_bias: Tensor


class Folded(NamedTuple):
    """The four folded matrices: 576×192, 192×192, 384×192 and 192×384."""

    qkv: Tensor
    proj: Tensor
    expand: Tensor
    project: Tensor


def fold(p: Parameters, operand: torch.dtype) -> Folded:
    """The matrices that the kernels read, in the dtype `operand`."""
    d, hidden = ALIGNED_WIDTH, ALIGNED_HIDDEN
    out = Folded(*(
        p.qkv.new_empty(shape, dtype=operand) for shape in ((3 * d, d), (d, d), (hidden, d), (d, hidden))
    ))  # fmt: skip
    _fold_weights[(7 * d // FOLD_ROWS,)](
        p.qkv, p.qkv_bias, p.proj, p.proj_bias, p.expand, p.expand_bias, p.project, p.project_bias,
        p.gamma1, p.beta1, p.gamma2, p.beta2, *out,
        HEAD_IN=p.proj.shape[1] // HEADS, BR=FOLD_ROWS, num_warps=4, **HEAD_SIZES,
    )  # fmt: skip
    return out


def unfold(p: Parameters, grads: Folded, gposition: Tensor) -> Parameters:
    """The parameters' gradients from those of the folded matrices and of the 6×64×64 position bias."""
    out = Parameters(*(torch.empty_like(t) for t in p))
    programs = 2 * ALIGNED_WIDTH // NORM_CHANNELS.value + 7 * ALIGNED_WIDTH // FOLD_ROWS
    programs += HEADS * triton.cdiv(TABLE, TABLE_ROWS.value)
    _unfold_weights[(programs,)](
        *grads, gposition, p.qkv, p.expand, p.gamma1, p.beta1, p.gamma2, p.beta2,
        out.qkv, out.qkv_bias, out.proj, out.proj_bias, out.expand, out.expand_bias, out.project,
        out.project_bias, out.gamma1, out.beta1, out.gamma2, out.beta2, out.table,
        HEAD_IN=p.proj.shape[1] // HEADS, BR=FOLD_ROWS, num_warps=4, **HEAD_SIZES,
    )  # fmt: skip
    return out
