"""The gradient of the ConvNeXt block's norm. Its forward pass is a part of `block`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thera.kernels.common import SIZES, Tile, norm_gradient

NORM_BACKWARD = Tile(pixels=16, warps=4)  # benchmarks/kernels.py compares this with others


@triton.jit(do_not_specialize=SIZES)
def _norm_backward(
    gunit, unit, rstd, gz, M,
    D: tl.constexpr, PARTS: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    channel = tl.arange(0, BD)
    ok = rows < M
    inside = ok[:, None] & (channel < D)[None, :]
    at = rows.to(tl.int64)[:, None] * D + channel[None, :]
    u = tl.load(unit + at, inside, 0.0).to(tl.float32)
    to = gz + at
    gu = tl.zeros((BM, BD), tl.float32)
    for part in tl.static_range(PARTS):
        at = (rows.to(tl.int64) + part * M)[:, None] * D + channel[None, :]
        gu += tl.load(gunit + at, inside, 0.0).to(tl.float32)
    g = norm_gradient(gu, u, D) * tl.load(rstd + rows, ok, 0.0)[:, None]
    tl.store(to, g.to(gz.dtype.element_ty), inside)


def norm_backward(gunit: Tensor, unit: Tensor, rstd: Tensor) -> Tensor:
    """∂z, the gradient of the depthwise output, from the parts of ∂u. gunit: parts×M×d; unit, ∂z: N×H×W×d."""
    parts, M, d = gunit.shape
    gz = torch.empty_like(unit)
    _norm_backward[(triton.cdiv(M, NORM_BACKWARD.pixels),)](
        gunit, unit, rstd, gz, M, D=d, PARTS=parts, BM=NORM_BACKWARD.pixels, BD=triton.next_power_of_2(d),
        num_warps=NORM_BACKWARD.warps,
    )  # fmt: skip
    return gz
