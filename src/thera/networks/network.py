"""What all networks share: a backbone that makes features, and colours decoded from them at any points."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from thera.networks.convnext import Block, Widen
from thera.networks.edsr import EDSR, ResidualBlock
from thera.networks.rdn import RDN, DenseBlock
from thera.networks.spec import MEAN, STD, Spec
from thera.networks.swinir import LayerNorm, SwinLayer


class Points(NamedTuple):
    """Centres of output pixels, (row, column) in input pixels from the top left corner, and their sizes."""

    at: Tensor  # N×Q×2
    step: Tensor  # N×1×2 or N×Q×2, the sides of the output pixels in input pixels

    @classmethod
    def near(cls, centre: Tensor, x: Tensor, t: Tensor) -> Points:
        """The points at offsets x (N×H×W×q×2) from the centres of cells, of output pixels of side √t."""
        return cls((centre + x).flatten(1, 3), t.sqrt().view(-1, 1, 1).expand(-1, 1, 2))


def at_cells(maps: Tensor, cell: Tensor) -> Tensor:
    """The values of N×C×H×W maps at N×H×W×1 cells, in the order of these."""
    index = cell.flatten(1)[:, None].expand(-1, maps.shape[1], -1)
    return maps.flatten(2).gather(2, index).view_as(maps)


class MLP(nn.Sequential):
    """Linear layers with a ReLU between them."""

    def __init__(self, *widths: int) -> None:
        layers: list[nn.Module] = []
        for width_in, width_out in pairwise(widths):
            layers += [nn.Linear(width_in, width_out), nn.ReLU()]
        super().__init__(*layers[:-1])


# The modules that `compile_blocks` compiles. Where they are nested, the outermost.
BLOCKS = (ResidualBlock, DenseBlock, Block, Widen, SwinLayer, LayerNorm, MLP, nn.Conv2d)


class Network(nn.Module):
    """From an image to its features, and from features to colours: `Thera`, or the decoder of another method.

    Training calls `field`. Every rendering can be made of `colours`.
    """

    mean: Tensor
    point_bytes = 40_000  # of working memory to decode a point: the values of 512 components
    cell_bytes = 0  # and for each cell with points in it, where points of a cell share work
    together = False  # whether a colour depends on all points that are asked for

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.backbone: nn.Module = {"edsr": EDSR, "rdn": RDN}[spec.backbone]()
        mean = (0.5, 0.5, 0.5) if spec.published and not spec.heat else MEAN
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)

    def normalised(self, image: Tensor) -> Tensor:
        return (image - self.mean) / STD

    def features(self, image: Tensor) -> Tensor:
        """N×3×H×W in [0, 1] → N×C×H×W."""
        return self.backbone(self.normalised(image))

    def forward(self, image: Tensor) -> Tensor:
        return self.features(image)

    def maps(self, features: Tensor, image: Tensor) -> Any:
        """What decoding needs of a picture, at the input's resolution: computed once for all points."""
        return features, image

    def colours(self, maps: Any, points: Points) -> Tensor:
        """N×Q×3 in [0, 1], not clipped."""
        raise NotImplementedError

    def field(self, features: Tensor, image: Tensor, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor | None]:
        """(Φ - I) / ½ at q points in every cell, N×H×W×q×3, and ∇Φ(x, 0) / ½ where there is one.

        image: N×3×H×W, x: N×H×W×q×2, t: N.
        """
        rows, cols = (torch.arange(n, device=x.device) + 0.5 for n in x.shape[1:3])
        centre = torch.stack(torch.meshgrid(rows, cols, indexing="ij"), -1)[:, :, None]
        return self._relative(features, image, Points.near(centre, x, t), image)

    def scattered_field(
        self, features: Tensor, image: Tensor, cell: Tensor, x: Tensor, t: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """`field` at points that lie in these cells (N×H×W×1 flat indices) instead of one in every cell."""
        width = image.shape[3]
        centre = torch.stack([cell // width, cell % width], -1) + 0.5
        return self._relative(features, image, Points.near(centre, x, t), at_cells(image, cell))

    def _relative(
        self, features: Tensor, image: Tensor, points: Points, pixels: Tensor
    ) -> tuple[Tensor, None]:
        """The colours of q points for each of some pixels (N×3×H×W), counted from these: N×H×W×q×3."""
        N, _, H, W = pixels.shape
        value = self.colours(self.maps(features, image), points).view(N, H, W, -1, 3)
        return (value - pixels.permute(0, 2, 3, 1).unsqueeze(3)) / STD, None

    def compile_blocks(self) -> None:
        """Compile each kind of block once. A whole network takes far longer to compile and is no faster."""
        compile_within(self)


def compile_within(module: nn.Module) -> None:
    """Compile all blocks of a module."""
    if isinstance(module, BLOCKS):
        module.compile(dynamic=False)
    else:
        for child in module.children():
            compile_within(child)
