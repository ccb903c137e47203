"""EDSR and ConvNeXt for inference on a GPU, with kernels that take final parameters.

The plain forms are `edsr.EDSR` and `convnext.ConvNeXt`.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from thera.kernels.available import agree
from thera.kernels.convnext.block import folded, forward
from thera.kernels.convolution import convolve
from thera.networks.convnext import Block, ConvNeXt
from thera.networks.edsr import EDSR
from thera.networks.thera import Thera

TRIED = (9, 13), (93, 97)  # pixels of a small and of a large image, which have other tiles


class FastEDSR(nn.Module):
    """cuDNN's convolutions, each with one kernel for what follows it."""

    def __init__(self, edsr: EDSR) -> None:
        super().__init__()
        self.edsr = edsr

    def forward(self, image: Tensor) -> Tensor:
        f = x = convolve(image, self.edsr.head)
        for block in self.edsr.body:
            y = convolve(x, block.conv1, relu=True)  # type: ignore[arg-type]
            x = convolve(y, block.conv2, other=x)  # type: ignore[arg-type]
        return convolve(x, self.edsr.tail, other=f)


class FastBlock(nn.Module):
    """A ConvNeXt block as one kernel. The parameters are folded once, not at every call."""

    def __init__(self, block: Block, operand: torch.dtype) -> None:
        super().__init__()
        self.eps = block.norm.eps
        parameters = folded(block.depthwise.weight, block.norm, block.expand, block.project, operand)
        for name, tensor in zip(("taps", "w1", "b1", "w2", "b2"), parameters, strict=True):
            self.register_buffer(name, tensor.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        with torch.cuda.device_of(x):
            return forward(x, self.taps, self.w1, self.b1, self.w2, self.b2, self.eps, False)[0]  # type: ignore[arg-type]


def use_kernels(network: Thera, operand: torch.dtype) -> None:
    """Replace what has a faster form, in place. operand: the 16-bit dtype of matrix products."""
    if isinstance(network.backbone, EDSR):
        network.backbone = FastEDSR(network.backbone)
    if isinstance(network.hypernetwork, ConvNeXt):
        layers = network.hypernetwork.layers
        blocks = {i: layer for i, layer in enumerate(layers) if isinstance(layer, Block)}
        # One block of each width is tried: the others differ in their parameters alone.
        samples = {block.norm.weight.numel(): block for block in blocks.values()}
        works = {width: _agrees(block, operand) for width, block in samples.items()}
        for i, block in blocks.items():
            if works[block.norm.weight.numel()]:
                layers[i] = FastBlock(block, operand)


def _agrees(block: Block, operand: torch.dtype) -> bool:
    """Whether `FastBlock` computes on the current GPU what the block does, to the digits of `operand`."""
    width, device = block.norm.weight.numel(), block.norm.weight.device

    def both(shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
        generator = torch.Generator(device).manual_seed(0)
        x = torch.randn(1, *shape, width, device=device, generator=generator).to(operand)
        return FastBlock(block, operand)(x), block(x.float())

    return all(agree(partial(both, shape), tolerance=1e-2) for shape in TRIED)
