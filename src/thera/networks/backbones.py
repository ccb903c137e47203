"""The two backbones of the paper: they turn an image into 64 features per pixel."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from thera.networks.fusing import can_fuse, operand_type

WIDTH = 64


def fused_operand(image: Tensor) -> torch.dtype | None:
    """The type in which the kernels of `kernels_edsr` train; None where the plain form has to do."""
    if not (image.is_cuda and torch.is_grad_enabled()) or image.requires_grad:
        return None
    operand = operand_type(image)
    return operand if operand != torch.float32 and can_fuse() else None


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
        operand = fused_operand(image)
        if operand is not None:
            from thera.networks.kernels_edsr import edsr

            return edsr(image, [m for m in self.modules() if isinstance(m, nn.Conv2d)], operand)
        f = self.head(image)
        return f + self.tail(self.body(f))


class DenseBlock(nn.Module):
    """Every convolution sees the block's input and all results before it."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(conv3(width * (i + 1), width) for i in range(layers))
        self.fuse = nn.Conv2d(width * (layers + 1), width, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = x
        for conv in self.convs:
            seen = torch.cat([seen, torch.relu(conv(seen))], dim=1)
        return x + self.fuse(seen)


class RDN(nn.Module):
    """Residual dense network, configuration B, without its upsampler: 22.0 M parameters."""

    def __init__(self, blocks: int = 16, layers: int = 8) -> None:
        super().__init__()
        self.head1 = conv3(3, WIDTH)
        self.head2 = conv3(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(DenseBlock(WIDTH, layers) for _ in range(blocks))
        self.fuse1 = nn.Conv2d(WIDTH * blocks, WIDTH, 1)
        self.fuse2 = conv3(WIDTH, WIDTH)

    def forward(self, image: Tensor) -> Tensor:
        f = self.head1(image)
        x = self.head2(f)
        outputs = []
        for block in self.blocks:
            x = block(x)
            outputs.append(x)
        return f + self.fuse2(self.fuse1(torch.cat(outputs, dim=1)))
