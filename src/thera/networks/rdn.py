"""RDN, the larger of the paper's two backbones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from thera.networks.edsr import WIDTH, conv3


class DenseBlock(nn.Module):
    """Every convolution reads the block's input and the results of all convolutions before it."""

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
