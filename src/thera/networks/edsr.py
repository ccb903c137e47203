"""EDSR, the smaller of the paper's two backbones: from an image to 64 features per pixel."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from thera.kernels.available import can_run_large_kernels, matmul_dtype

WIDTH = 64


def kernel_dtype(image: Tensor) -> torch.dtype | None:
    """The dtype in which the kernels of `thera.kernels.edsr` compute; None if they cannot run.

    They are for training only, in 16-bit formats, and give the image no gradient.
    """
    if not (image.is_cuda and torch.is_grad_enabled()) or image.requires_grad:
        return None
    operand = matmul_dtype(image)
    return operand if operand != torch.float32 and can_run_large_kernels() else None


def conv3(width_in: int, width_out: int) -> nn.Conv2d:
    return nn.Conv2d(width_in, width_out, 3, padding=1)


class ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = conv3(width, width)
        self.conv2 = conv3(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(torch.relu(self.conv1(x)))


class EDSR(nn.Module):
    """EDSR-baseline without its upsampler: N×3×H×W → N×64×H×W, 1.22 M parameters."""

    def __init__(self, blocks: int = 16) -> None:
        super().__init__()
        self.head = conv3(3, WIDTH)
        self.body = nn.Sequential(*(ResidualBlock(WIDTH) for _ in range(blocks)))
        self.tail = conv3(WIDTH, WIDTH)

    def forward(self, image: Tensor) -> Tensor:
        operand = kernel_dtype(image)
        if operand is not None:
            from thera.kernels.edsr import edsr

            return edsr(image, [m for m in self.modules() if isinstance(m, nn.Conv2d)], operand)
        f = self.head(image)
        return f + self.tail(self.body(f))
