"""EDSR and ConvNeXt for inference on a GPU, where parameters are final.

Of a small image every pass takes as long as its launch. EDSR here is cuDNN's convolutions, and one pass after
each for all that follows it; a ConvNeXt block is one pass. The plain forms, beside which these are tested,
are `backbones.EDSR` and `convnext.ConvNeXt`.
"""

# mypy: disallow-untyped-defs=False
# A kernel's arguments have no types; those in capitals are compile-time constants, as Triton writes them.

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn

from thera.networks.backbones import EDSR
from thera.networks.convnext import Block, ConvNeXt
from thera.networks.fusing import can_fuse
from thera.networks.kernels_convnext import folded, forward
from thera.networks.thera import Thera

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


class FusedBlock(nn.Module):
    """A ConvNeXt block with what its kernel reads made once."""

    def __init__(self, block: Block, operand: torch.dtype) -> None:
        super().__init__()
        self.eps = block.norm.eps
        parameters = folded(block.depthwise.weight, block.norm, block.expand, block.project, operand)
        for name, tensor in zip(("taps", "w1", "b1", "w2", "b2"), parameters, strict=True):
            self.register_buffer(name, tensor.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        with torch.cuda.device_of(x):
            return forward(x, self.taps, self.w1, self.b1, self.w2, self.b2, self.eps, False)[0]  # type: ignore[arg-type]


def fuse(network: Thera, operand: torch.dtype) -> None:
    """Put these in the places of their plain forms; `operand` is the type that matrix products take."""
    if isinstance(network.backbone, EDSR):
        network.backbone = FusedEDSR(network.backbone)
    if isinstance(network.hypernetwork, ConvNeXt) and can_fuse():
        layers = network.hypernetwork.layers
        for i, layer in enumerate(layers):
            if isinstance(layer, Block):
                layers[i] = FusedBlock(layer, operand)
