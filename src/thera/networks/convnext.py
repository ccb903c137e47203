"""Plus: a ConvNeXt hypernetwork between the backbone and the last layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thera.kernels.available import can_run_large_kernels, matmul_dtype

STAGES = ((64, 6), (96, 7), (128, 3))  # width, blocks
KERNEL_WIDTHS = tuple(width for width, _ in STAGES)


def kernel_dtype(x: Tensor) -> torch.dtype | None:
    """The dtype in which the kernels of `thera.kernels.convnext` multiply; None if they cannot run.

    They are for 16-bit formats only: with float32 pixels of 96 channels they read out of bounds on an H200.
    """
    if x.dtype == torch.float32 or not (x.is_cuda and x.shape[-1] in KERNEL_WIDTHS):
        return None
    return matmul_dtype(x) if can_run_large_kernels() else None


def shifted_sum(x: Tensor, weight: Tensor) -> Tensor:
    """Depthwise 3×3 convolution, zero-padded. x: N×H×W×d, weight: 3×3×d.

    It is written as nine shifted products, which PyTorch's compiler fuses into one pass over memory. cuDNN's
    depthwise kernels are far slower, above all in the backward pass.
    """
    H, W = x.shape[1:3]
    padded = F.pad(x, (0, 0, 1, 1, 1, 1))
    return sum(padded[:, i : i + H, j : j + W] * weight[i, j] for i in range(3) for j in range(3))  # type: ignore[return-value]


class DepthwiseConv(nn.Conv2d):
    """Depthwise 3×3 convolution without bias on N×H×W×d."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width, 3, padding=1, groups=width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda and self.training:
            return shifted_sum(x, self.weight[:, 0].permute(1, 2, 0).to(x.dtype))
        image = x.permute(0, 3, 1, 2)
        if x.is_cuda and x.dtype == torch.float32:
            # With channels last cuDNN would run, which prepares for a second at every new image size. With
            # channels first PyTorch's own kernel does; a view of the flattened weight has the right strides.
            weight = self.weight.flatten().view(self.weight.shape)
            return F.conv2d(image.contiguous(), weight, padding=1, groups=x.shape[-1]).permute(0, 2, 3, 1)
        return super().forward(image).permute(0, 2, 3, 1)


class Block(nn.Module):
    """x + [depthwise 3×3, LayerNorm, 1×1 to 4d, GELU, 1×1 to d], on N×H×W×d. No layer scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = DepthwiseConv(width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.expand = nn.Linear(width, 4 * width)
        self.project = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        operand = kernel_dtype(x)
        if operand is not None:
            from thera.kernels.convnext.block import convnext_block

            return convnext_block(x, self.depthwise.weight, self.norm, self.expand, self.project, operand)
        y = self.norm(self.depthwise(x))
        return x + self.project(F.gelu(self.expand(y), approximate="tanh"))


class Widen(nn.Module):
    """From one stage's width to the next: LayerNorm, then 1×1."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width_in, eps=1e-6)
        self.project = nn.Linear(width_in, width_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(self.norm(x))


class ConvNeXt(nn.Module):
    """N×64×H×W → N×128×H×W; with the last layer and the bank 1.41 M parameters."""

    width_out = STAGES[-1][0]

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        previous = STAGES[0][0]
        for width, blocks in STAGES:
            if width != previous:
                layers.append(Widen(previous, width))
            layers += [Block(width) for _ in range(blocks)]
            previous = width
        self.layers = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
