"""The whole network: backbone, hypernetwork, last layer, frequency bank and κ."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from thera.networks.convnext import ConvNeXt
from thera.networks.heat import field_values
from thera.networks.network import Network, Points, at_cells
from thera.networks.spec import KAPPA, STD, Spec
from thera.networks.swinir import SwinIR

# The largest initial |w|: frequencies that can be seen at the scales of training.
BANK_RADIUS = {"air": 6 * math.pi, "plus": 8 * math.pi, "pro": 8 * math.pi}

TRUNCATED = 0.87962566103423978  # the standard deviation of a unit normal cut off at ±2


class Air(nn.Identity):
    """No hypernetwork: the last layer reads the backbone's features."""

    width_out = 64


class Thera(Network):
    """From an image to the parameters of its heat fields.

    >>> network = Thera(Spec("edsr", "air"))
    >>> network.features(torch.rand(1, 3, 12, 17)).shape
    torch.Size([1, 64, 12, 17])
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        c = spec.components
        self.hypernetwork = {"air": Air, "plus": ConvNeXt, "pro": SwinIR}[spec.variant]()
        self.head = nn.Linear(self.hypernetwork.width_out, (6 if spec.predicted_components else 4) * c)
        self.components = nn.Parameter(torch.empty(2, 0 if spec.predicted_components else c))
        self.kappa = nn.Parameter(torch.tensor(KAPPA))
        self.reset_fields()

    def reset_fields(self, bank: float = 0.0, small: bool = True) -> None:
        """Initialise the fields: amplitudes near zero, so that training starts at the image itself and has no
        random texture to unlearn; uniform phases; components with p(|w|) ∝ |w| up to `bank`
        or `BANK_RADIUS`. Without `small` the last layer starts as published: like any other, biases at 0."""
        c = self.spec.components
        radius = (bank or BANK_RADIUS[self.spec.variant]) * torch.rand(c).sqrt()
        angle = 2 * math.pi * torch.rand(c)
        start = torch.stack([radius * angle.cos(), radius * angle.sin()])
        with torch.no_grad():
            if small:
                nn.init.normal_(self.head.weight, std=0.01)
                self.head.weight[: 3 * c] *= 0.1
                self.head.bias[: 3 * c] = 0
                self.head.bias[3 * c : 4 * c].uniform_(-math.pi, math.pi)
            else:
                std = self.head.in_features**-0.5 / TRUNCATED
                nn.init.trunc_normal_(self.head.weight, std=std, a=-2 * std, b=2 * std)
                self.head.bias.zero_()
            if self.spec.predicted_components:
                self.head.bias[4 * c :] = start.flatten()
            else:
                self.components.copy_(start)

    def features(self, image: Tensor) -> Tensor:
        """N×3×H×W in [0, 1] → N×C×H×W, the input of the last layer."""
        return self.hypernetwork(super().features(image))

    def field(self, features: Tensor, image: Tensor, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return field_values(self, features, x, t)

    def scattered_field(
        self, features: Tensor, image: Tensor, cell: Tensor, x: Tensor, t: Tensor
    ) -> tuple[Tensor, Tensor]:
        return field_values(self, at_cells(features, cell), x, t)

    def colours(self, maps: Any, points: Points) -> Tensor:
        """Point by point, as in training: slow, for the ablations, whose fields no `HeatField` holds."""
        features, image = maps
        (_, _, H, W), (N, Q, _) = image.shape, points.at.shape
        cell = torch.minimum(points.at.floor().clamp(min=0), points.at.new_tensor([H - 1, W - 1])).long()
        index = (cell[..., 0] * W + cell[..., 1])[:, None]
        own = [f.flatten(2).gather(2, index.expand(-1, f.shape[1], -1)) for f in (features, image)]
        x, t = points.at - cell - 0.5, points.step[:, 0, 0].square()
        value, _ = field_values(self, own[0].unsqueeze(2), x.view(N, 1, Q, 1, 2), t)
        return own[1].transpose(1, 2) + STD * value[:, 0, :, 0]

    def folded_head(self) -> tuple[Tensor, Tensor]:
        """The last layer's weight (C×4c) and bias (4c), with the output's factor of ½ in the amplitudes."""
        c = self.spec.components
        weight, bias = self.head.weight.detach().clone(), self.head.bias.detach().clone()
        weight[: 3 * c] *= STD
        bias[: 3 * c] *= STD
        return weight.T.contiguous(), bias
