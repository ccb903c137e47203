"""The whole network: backbone, hypernetwork, last layer, frequency bank and κ."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from thera.networks.convnext import Block, ConvNeXt, Widen
from thera.networks.edsr import EDSR, ResidualBlock
from thera.networks.rdn import RDN, DenseBlock
from thera.networks.spec import KAPPA, MEAN, STD, Spec
from thera.networks.swinir import LayerNorm, SwinIR, SwinLayer

# The modules that `compile_blocks` compiles. Where they are nested, the outermost.
BLOCKS = (ResidualBlock, DenseBlock, Block, Widen, SwinLayer, LayerNorm, nn.Conv2d)
# The largest initial |w|: frequencies that can be seen at the scales of training.
BANK_RADIUS = {"air": 6 * math.pi, "plus": 8 * math.pi, "pro": 8 * math.pi}


class Air(nn.Identity):
    """No hypernetwork: the last layer reads the backbone's features."""

    width_out = 64


class Thera(nn.Module):
    """From an image to the parameters of its heat fields.

    >>> network = Thera(Spec("edsr", "air"))
    >>> network.features(torch.rand(1, 3, 12, 17)).shape
    torch.Size([1, 64, 12, 17])
    """

    mean: Tensor

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        c = spec.components
        self.backbone = {"edsr": EDSR, "rdn": RDN}[spec.backbone]()
        self.hypernetwork = {"air": Air, "plus": ConvNeXt, "pro": SwinIR}[spec.variant]()
        self.head = nn.Linear(self.hypernetwork.width_out, (6 if spec.predicted_components else 4) * c)
        self.components = nn.Parameter(torch.empty(2, 0 if spec.predicted_components else c))
        self.kappa = nn.Parameter(torch.tensor(KAPPA))
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1), persistent=False)
        self.reset_fields()

    def reset_fields(self) -> None:
        """Initialise the fields: amplitudes near zero, so that training starts at the image itself and has no
        random texture to unlearn; uniform phases; components with p(|w|) ∝ |w| up to `BANK_RADIUS`."""
        c = self.spec.components
        radius = BANK_RADIUS[self.spec.variant] * torch.rand(c).sqrt()
        angle = 2 * math.pi * torch.rand(c)
        bank = torch.stack([radius * angle.cos(), radius * angle.sin()])
        with torch.no_grad():
            nn.init.normal_(self.head.weight, std=0.01)
            self.head.weight[: 3 * c] *= 0.1
            self.head.bias[: 3 * c] = 0
            self.head.bias[3 * c : 4 * c].uniform_(-math.pi, math.pi)
            if self.spec.predicted_components:
                self.head.bias[4 * c :] = bank.flatten()
            else:
                self.components.copy_(bank)

    def features(self, image: Tensor) -> Tensor:
        """N×3×H×W in [0, 1] → N×C×H×W, the input of the last layer."""
        return self.hypernetwork(self.backbone((image - self.mean) / STD))

    forward = features

    def folded_head(self) -> tuple[Tensor, Tensor]:
        """The last layer's weight (C×4c) and bias (4c), with the output's factor of ½ in the amplitudes."""
        c = self.spec.components
        weight, bias = self.head.weight.detach().clone(), self.head.bias.detach().clone()
        weight[: 3 * c] *= STD
        bias[: 3 * c] *= STD
        return weight.T.contiguous(), bias

    def compile_blocks(self) -> None:
        """Compile each kind of block once. A whole network takes far longer to compile and is no faster."""

        def visit(module: nn.Module) -> None:
            if isinstance(module, BLOCKS):
                module.compile(dynamic=False)
            else:
                for child in module.children():
                    visit(child)

        visit(self)
