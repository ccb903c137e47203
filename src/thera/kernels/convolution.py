"""A 3×3 convolution of inference: cuDNN's product, then bias, ReLU or sum in one pass.

For a small image every pass takes as long as its launch, so this saves one or two of three passes. The plain
form is `torch.nn.Conv2d` with what follows it.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn

BLOCK = 1024  # numbers per program


@triton.jit(do_not_specialize=["size"])
def _add_bias(
    y, bias, other, size, D: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = at < size
    v = tl.load(y + at, real).to(tl.float32) + tl.load(bias + at % D).to(tl.float32)
    if RELU:
        v = tl.where(v < 0, 0.0, v)  # unlike tl.maximum, this keeps a NaN: it tells of numbers beyond float16
    if ADD:
        v += tl.load(other + at, real).to(tl.float32)
    tl.store(y + at, v.to(y.dtype.element_ty), real)


def convolve(x: Tensor, conv: nn.Conv2d, relu: bool = False, other: Tensor | None = None) -> Tensor:
    """relu(conv(x)) or conv(x) + other. All tensors are N×D×H×W, channels last."""
    y = F.conv2d(x, conv.weight, padding=1).contiguous(memory_format=torch.channels_last)
    with torch.cuda.device_of(y):
        _add_bias[(triton.cdiv(y.numel(), BLOCK),)](
            y, conv.bias, other, y.numel(), D=y.shape[1], RELU=relu, ADD=other is not None, BLOCK=BLOCK
        )
    return y
