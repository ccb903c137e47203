"""The parameters of a Swin layer in the form its kernels read, and their gradients.

Every matrix is padded to aligned widths and rounded to the dtype of the products. The norm before it is
folded in, w(γu + β) + b = (wγ)u + (wβ + b), and the bias is stored in the first surplus column, which the
other kernels multiply by ones. The gradient of the folded matrix then has those of bias and norm in it.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from thera.kernels.swin.sizes import (
    ALIGNED_HEAD,
    ALIGNED_HIDDEN,
    ALIGNED_WIDTH,
    AREA,
    HEAD,
    HEADS,
    WIDTH,
    WINDOW,
)


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

    def real(self) -> list[tuple[Tensor, Tensor]]:
        """Views of what is not padding: each matrix (without its bias) by heads, and its column of biases."""
        qkv, expand = self.qkv.view(3 * HEADS, ALIGNED_HEAD, -1)[:, :HEAD], self.expand[: 2 * WIDTH]
        proj, project = self.proj[:WIDTH], self.project[:WIDTH]
        return [
            (qkv[..., :WIDTH], qkv[..., WIDTH]),
            (proj.view(WIDTH, HEADS, ALIGNED_HEAD)[..., :HEAD], proj[:, HEAD]),
            (expand[:, :WIDTH], expand[:, WIDTH]),
            (project[:, : 2 * WIDTH], project[:, 2 * WIDTH]),
        ]


def _stored(p: Parameters) -> list[tuple[Tensor, Tensor]]:
    """The four matrices and biases in the shapes of `Folded.real`; they may be stored with padding."""
    qkv, bias = p.qkv.view(3 * HEADS, -1, p.qkv.shape[1])[:, :HEAD, :WIDTH], p.qkv_bias.view(3 * HEADS, -1)
    return [
        (qkv, bias[:, :HEAD]),
        (p.proj.view(len(p.proj), HEADS, -1)[:WIDTH, :, :HEAD], p.proj_bias[:WIDTH]),
        (p.expand[: 2 * WIDTH, :WIDTH], p.expand_bias[: 2 * WIDTH]),
        (p.project[:WIDTH, : 2 * WIDTH], p.project_bias[:WIDTH]),
    ]


def fold(p: Parameters, operand: torch.dtype) -> Folded:
    """The matrices that the kernels read, in the dtype `operand`."""
    d, hidden = ALIGNED_WIDTH, ALIGNED_HIDDEN
    shapes = (3 * d, d), (d, d), (hidden, d), (d, hidden)
    out = Folded(*(p.qkv.new_zeros(shape, dtype=operand) for shape in shapes))
    norms = (p.gamma1, p.beta1), None, (p.gamma2, p.beta2), None
    for (to, to_bias), (weight, bias), norm in zip(out.real(), _stored(p), norms, strict=True):
        if norm is not None:
            gamma, beta = (t.float() for t in norm)
            weight, bias = weight.float() * gamma, bias.float() + (weight.float() * beta).sum(-1)
        to.copy_(weight)
        to_bias.copy_(bias)
    return out


def unfold(p: Parameters, grads: Folded, gposition: Tensor) -> Parameters:
    """The parameters' gradients from those of the folded matrices and of the 6×64×64 position bias."""
    (gqkv, qb), (gproj, pb), (gexpand, eb), (gproject, jb) = ((w.float(), b.float()) for w, b in grads.real())
    norms = []
    for g, b, w in (gqkv, qb, p.qkv.view_as(gqkv)), (gexpand, eb, p.expand):
        norms += [(g * w).flatten(0, -2).sum(0), (b[..., None] * w).flatten(0, -2).sum(0)]
    gqkv = gqkv * p.gamma1 + qb[..., None] * p.beta1
    gexpand = gexpand * p.gamma2 + eb[:, None] * p.beta2
    # A row of the table is the bias of all pairs at one relative position: a sum over them is its gradient.
    pairs, there = _pairs(gposition.device)
    gtable = (gposition.flatten(1)[:, pairs] * there).sum(-1).T.contiguous()
    return Parameters(
        norms[0], norms[1], gqkv.reshape(p.qkv.shape), qb.flatten(), gtable, gproj.reshape(p.proj.shape), pb,
        norms[2], norms[3], gexpand, eb, gproject, jb,
    )  # fmt: skip


@cache
def _pairs(device: torch.device) -> tuple[Tensor, Tensor]:
    """225×64: for each relative position the pairs of a window's pixels, and whether they exist."""
    r, j = torch.arange((2 * WINDOW - 1) ** 2, device=device)[:, None], torch.arange(AREA, device=device)
    y = j // WINDOW + r // (2 * WINDOW - 1) - (WINDOW - 1)
    x = j % WINDOW + r % (2 * WINDOW - 1) - (WINDOW - 1)
    there = (y >= 0) & (y < WINDOW) & (x >= 0) & (x < WINDOW)
    return torch.where(there, (y * WINDOW + x) * AREA + j, 0), there
