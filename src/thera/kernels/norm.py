"""The gradient of a norm over channels, for ConvNeXt blocks and Swin layers. Their forward passes differ."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thera.kernels.common import Tile

NORM_BACKWARD = Tile(pixels=16, warps=4)  # benchmarks/kernels.py compares this with others


@triton.jit(do_not_specialize=["M"])
def _norm_backward(
    gunit, unit, rstd, gout, gx, M,
    D: tl.constexpr, D_OUT: tl.constexpr, PARTS: tl.constexpr, ADD: tl.constexpr, BM: tl.constexpr,
    BD: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, BD)
    ok = rows < M
    inside = ok[:, None] & (c < D_OUT)[None, :]
    real = (c < D)[None, :]
    at = rows.to(tl.int64)[:, None] * D_OUT + c[None, :]
    # 180 channels are not a whole number of 16-byte loads: the surplus is loaded, too, and then ignored.
    gu = tl.zeros((BM, BD), tl.float32)
    for part in tl.static_range(PARTS):
        part_at = (rows.to(tl.int64) + part * M)[:, None] * D_OUT + c[None, :]
        gu += tl.where(real, tl.load(gunit + part_at, inside, 0.0).to(tl.float32), 0.0)
    u = tl.where(real, tl.load(unit + at, inside, 0.0).to(tl.float32), 0.0)
    through = gu - tl.sum(gu, 1)[:, None] / D - u * (tl.sum(gu * u, 1)[:, None] / D)
    g = tl.where(real, through, 0.0) * tl.load(rstd + rows, ok, 0.0)[:, None]
    if ADD:
        g += tl.load(gout + at, inside, 0.0).to(tl.float32)
    tl.store(gx + at, g.to(gx.dtype.element_ty), inside)


def norm_backward(
    gunit: Tensor, unit: Tensor, rstd: Tensor, width: int, gout: Tensor | None = None
) -> Tensor:
    """∂x, where unit = (x - mean)·rstd over `width` channels, plus `gout`, which goes past the norm.

    gunit: ∂unit, or a stack of tensors that sum to it; unit, gout and ∂x: …×d.
    """
    d, gx = unit.shape[-1], torch.empty_like(unit if gout is None else gout)
    M = unit.numel() // d
    _norm_backward[(triton.cdiv(M, NORM_BACKWARD.pixels),)](
        gunit, unit, rstd, gout, gx, M, D=width, D_OUT=d, PARTS=gunit.numel() // unit.numel(),
        ADD=gout is not None, BM=NORM_BACKWARD.pixels, BD=triton.next_power_of_2(d),
        num_warps=NORM_BACKWARD.warps,
    )  # fmt: skip
    return gx
