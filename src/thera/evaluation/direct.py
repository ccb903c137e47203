"""The paper's two architectural ablations, evaluated point by point.

A perceptron of ReLUs, and a bank predicted for every pixel, are no sums over one bank: no `HeatField` holds
them. They are computed here as training computes them, only to be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from thera.field.grid import Axis
from thera.models import load_network
from thera.models.loading import kind_of
from thera.models.weights import read_header
from thera.networks.spec import STD, Spec

if TYPE_CHECKING:
    from torch import Tensor

    from thera.networks import Thera

POINTS = 1 << 11  # evaluated at a time: 512 components take about 30 kB each, and caches are small
GPU_POINTS = 1 << 17


def is_ablation(source: str | Path) -> bool:
    """Whether `source` is a file whose fields no `HeatField` can hold.

    >>> is_ablation("edsr-air")
    False
    """
    path = Path(source)
    if not path.is_file() or kind_of(path) != "safetensors":
        return False
    return not Spec.from_dict(read_header(path)).renderable


@dataclass(frozen=True)
class Info:
    """Where and how it runs, as a `Model` says it."""

    device: str
    engine: str = "torch, point by point"
    precision: str = "f32"


class DirectModel:
    """As much of a `Model` as an evaluation needs."""

    def __init__(self, network: Thera, device: str, name: str = "") -> None:
        self.network = network.to(device)
        self.name = name or network.spec.name
        self.info = Info(device)

    @classmethod
    def load(cls, source: str | Path, device: str = "auto") -> DirectModel:
        from thera.models.torch_engine import resolve_device

        network, metadata = load_network(source)
        network.eval().requires_grad_(False)
        return cls(network, str(resolve_device(device)), str(metadata["name"]))

    def parameters(self) -> list[NDArray[np.float32]]:
        """The last layer's, which a checkpoint is known by."""
        return [p.cpu().numpy() for p in self.network.head.parameters()]

    def upscale(
        self, image: NDArray[np.float32] | Tensor, size: tuple[int, int], ensemble: bool = False
    ) -> NDArray[np.float32]:
        """`image` (H×W×3) at `size`, the mean over four quarter turns if asked for."""
        import torch

        pixels = torch.as_tensor(image, device=self.info.device)
        turns = range(4 if ensemble else 1)
        with torch.no_grad():
            outputs = [
                self._once(pixels.rot90(k), size if k % 2 == 0 else (size[1], size[0])).rot90(-k)
                for k in turns
            ]
            return torch.stack(outputs).mean(0).cpu().numpy()

    def _once(self, image: Tensor, size: tuple[int, int]) -> Tensor:
        import torch

        features = self.network.features(image.permute(2, 0, 1)[None])[0].permute(1, 2, 0)
        rows, columns = (Axis.whole(n, m) for n, m in zip(image.shape[:2], size, strict=True))
        t = image.new_tensor((image.shape[0] / size[0]) ** 2)
        cell2, offset2 = (torch.as_tensor(a, device=image.device) for a in (columns.cell, columns.offset))
        height = max(1, (GPU_POINTS if image.is_cuda else POINTS) // size[1])
        out = image.new_empty(*size, 3)  # bands kept one by one would tear the memory between them to pieces
        for start in range(0, size[0], height):
            part = rows[start : start + height]
            cell1, offset1 = (torch.as_tensor(a, device=image.device) for a in (part.cell, part.offset))
            cells = features[cell1[:, None], cell2], image[cell1[:, None], cell2]
            grid = torch.meshgrid(offset1, offset2, indexing="ij")
            out[start : start + height] = self._values(*cells, torch.stack(grid, -1).float(), t)
        return out

    def _values(self, features: Tensor, pixels: Tensor, x: Tensor, t: Tensor) -> Tensor:
        """Φ(x, t) at h×w points, from the features and the colours of the cells they lie in."""
        from thera.networks.heat import heat_field, relu_field

        spec = self.network.spec
        c = spec.components
        head = self.network.head(features)
        amplitude = head[..., : 3 * c].unflatten(-1, (c, 3)).transpose(-1, -2)
        phase = head[..., 3 * c : 4 * c]
        components: Any = self.network.components
        if spec.predicted_components:
            components = head[..., 4 * c :].unflatten(-1, (2, c))
        if spec.activation == "relu":
            value, _ = relu_field(amplitude, phase, components, x)
        else:
            value, _ = heat_field(amplitude, phase, components, self.network.kappa, x, t)
        return pixels + STD * value
