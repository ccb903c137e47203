"""EDSR for inference on a GPU: cuDNN's convolutions, and one pass after each for all that follows it.

Of a small image every pass takes as long as its launch. The plain form, beside which this is tested, is
`backbones.EDSR`: a pass for the bias and one for the ReLU or the sum.
"""

# mypy: disallow-untyped-defs=False
# A kernel's arguments have no types; those in capitals are compile-time constants, as Triton writes them.

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn

from thera.networks.backbones import EDSR

BLOCK = 1024


@triton.jit(do_not_specialize=["size"])
def _follow(
    y, bias, other, size, D: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = at < size
    v = tl.load(y + at, real).to(tl.float32) + tl.load(bias + at % D).to(tl.float32)
    if RELU:
        v = tl.maximum(v, 0.0)
    if ADD:
        v += tl.load(other + at, real).to(tl.float32)
    tl.store(y + at, v.to(y.dtype.element_ty), real)


def convolve(x: Tensor, conv: nn.Conv2d, relu: bool = False, other: Tensor | None = None) -> Tensor:
    """conv(x), then its ReLU or the sum with `other`. All N×D×H×W, channels last."""
    y = F.conv2d(x, conv.weight, padding=1).contiguous(memory_format=torch.channels_last)
    with torch.cuda.device_of(y):
        _follow[(triton.cdiv(y.numel(), BLOCK),)](
            y, conv.bias, other, y.numel(), D=y.shape[1], RELU=relu, ADD=other is not None, BLOCK=BLOCK
        )
    return y


class FusedEDSR(nn.Module):
    """An EDSR whose parameters are final."""

    def __init__(self, edsr: EDSR) -> None:
        super().__init__()
        self.edsr = edsr

    def forward(self, image: Tensor) -> Tensor:
        f = x = convolve(image, self.edsr.head)
        for block in self.edsr.body:
            y = convolve(x, block.conv1, relu=True)  # type: ignore[arg-type]
            x = convolve(y, block.conv2, other=x)  # type: ignore[arg-type]
        return convolve(x, self.edsr.tail, other=f)
