"""Networks for inference on a GPU: EDSR and ConvNeXt get kernels that take final parameters.

The plain forms are `edsr.EDSR`, `convnext.ConvNeXt` and `swinir.SwinIR`. No GPU but Hopper's has run the
kernels: on others each is tried before it is used.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from thera.kernels.available import agree
from thera.kernels.convnext.block import folded, forward
from thera.kernels.convolution import convolve
from thera.networks.convnext import Block, ConvNeXt
from thera.networks.edsr import EDSR
from thera.networks.swinir import ALIGNED_WIDTH, WIDTH, WINDOW, SwinIR, SwinLayer, fit, shift_mask
from thera.networks.thera import Thera

Noise = Callable[..., Tensor]  # of a shape
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


@torch.no_grad()
def use_kernels(network: Thera, operand: torch.dtype) -> None:
    """Replace what has a faster form on the current GPU, in place. operand: the dtype of matrix products."""
    if isinstance(network.hypernetwork, SwinIR):
        body = network.hypernetwork
        body.allow_kernels(False)  # so that the plain form is there to be compared with
        # A layer with and one without shifted windows.
        body.allow_kernels(all(_swin_agrees(layer, operand) for layer in body.groups[0].layers[:2]))  # type: ignore[index]
    if operand == torch.float32:
        return  # the other kernels are for 16 bits
    if isinstance(network.backbone, EDSR) and _edsr_agrees(network.backbone, operand):
        network.backbone = FastEDSR(network.backbone)
    if isinstance(network.hypernetwork, ConvNeXt):
        layers = network.hypernetwork.layers
        blocks = {i: layer for i, layer in enumerate(layers) if isinstance(layer, Block)}
        # One block of each width is tried: the others differ in their parameters alone.
        samples = {block.norm.weight.numel(): block for block in blocks.values()}
        works = {width: _block_agrees(block, operand) for width, block in samples.items()}
        for i, block in blocks.items():
            if works[block.norm.weight.numel()]:
                layers[i] = FastBlock(block, operand)


def _edsr_agrees(edsr: EDSR, operand: torch.dtype) -> bool:
    short = copy.deepcopy(edsr)
    short.body = nn.Sequential(short.body[0])  # the other blocks differ in their parameters alone

    def both(noise: Noise, h: int, w: int) -> tuple[Tensor, Tensor]:
        x = noise(1, 3, h, w).to(operand)
        expected = short.float()(x.float())
        return FastEDSR(short.to(operand))(x), expected

    return _agrees(both, edsr.head.weight.device)


def _block_agrees(block: Block, operand: torch.dtype) -> bool:
    width = block.norm.weight.numel()

    def both(noise: Noise, h: int, w: int) -> tuple[Tensor, Tensor]:
        x = noise(1, h, w, width).to(operand)
        return FastBlock(block, operand)(x), block(x.float())

    return _agrees(both, block.norm.weight.device)


def _swin_agrees(layer: SwinLayer, operand: torch.dtype) -> bool:
    layer = copy.deepcopy(layer)  # what it folds is not kept

    def both(noise: Noise, h: int, w: int) -> tuple[Tensor, Tensor]:
        h, w = (-(-n // WINDOW) * WINDOW for n in (h, w))
        x = fit(noise(1, h, w, WIDTH).to(operand), 1, h, w, ALIGNED_WIDTH)
        expected = layer(x.float(), shift_mask(h, w, x.device), None)
        return layer.in_kernels(x, None, operand), expected

    return _agrees(both, layer.norm1.weight.device)


def _agrees(both: Callable[[Noise, int, int], tuple[Tensor, Tensor]], device: torch.device) -> bool:
    """Whether the fast and the plain form, given noise, are the same on the current GPU to 16-bit digits."""

    def on(h: int, w: int) -> tuple[Tensor, Tensor]:
        return both(
            partial(torch.randn, device=device, generator=torch.Generator(device).manual_seed(0)), h, w
        )

    return all(agree(partial(on, *shape), tolerance=1e-2) for shape in TRIED)
