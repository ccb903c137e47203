"""The model of the paper's two architectural ablations, which is evaluated point by point.

A perceptron of ReLUs and a bank predicted for every pixel are not sums of sinusoids over one bank, so no
`HeatField` can hold them. They are computed as in training; this is slow, and only for comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from thera.field.ensemble import ROTATIONS, mean
from thera.field.grid import Axis
from thera.models import load_network
from thera.models.loading import kind_of
from thera.models.weights import read_header
from thera.networks.spec import STD, Spec

if TYPE_CHECKING:
    from torch import Tensor

    from thera.networks import Thera

POINTS = 1 << 11  # at a time: one takes about 30 kB with 512 components, and CPU caches are small
GPU_POINTS = 1 << 17


def is_ablation(source: str | Path) -> bool:
    """True if `source` is the file of an ablation, whose fields no `HeatField` can hold.

    >>> is_ablation("edsr-air")
    False
    """
    path = Path(source)
    if not path.is_file() or kind_of(path) != "safetensors":
        return False
    return not Spec.from_dict(read_header(path)).renderable


@dataclass(frozen=True)
class Info:
    """The device, engine and precision, as a `Model` has them."""

    device: str
    engine: str = "torch, point by point"
    precision: str = "f32"


class AblationModel:
    """The part of the interface of `Model` that an evaluation needs."""

    def __init__(self, network: Thera, device: str, name: str = "") -> None:
        self.network = network.to(device)
        self.name = name or network.spec.name
        self.info = Info(device)

    @classmethod
    def load(cls, source: str | Path, device: str = "auto") -> AblationModel:
        from thera.models.torch_engine import resolve_device

        network, metadata = load_network(source)
        network.eval().requires_grad_(False)
        return cls(network, str(resolve_device(device)), str(metadata["name"]))

    def parameters(self) -> list[NDArray[np.float32]]:
        """Those of the last layer, which identify a checkpoint."""
        return [p.cpu().numpy() for p in self.network.head.parameters()]

    def upscale(
        self, image: NDArray[np.float32] | Tensor, size: tuple[int, int], ensemble: bool = False
    ) -> NDArray[np.float32]:
        """`image` (H×W×3) at `size`, with `ensemble` the mean over its four rotations."""
        import torch

        pixels = torch.as_tensor(image, device=self.info.device)
        turns = range(ROTATIONS if ensemble else 1)
        with torch.no_grad():
            outputs = (
                self._once(pixels.rot90(k), size if k % 2 == 0 else (size[1], size[0])).rot90(-k)
                for k in turns
            )
            return mean(outputs).cpu().numpy()

    def _once(self, image: Tensor, size: tuple[int, int]) -> Tensor:
        import torch

        features = self.network.features(image.permute(2, 0, 1)[None])[0].permute(1, 2, 0)
        rows, columns = (Axis.whole(n, m) for n, m in zip(image.shape[:2], size, strict=True))
        t = image.new_tensor((image.shape[0] / size[0]) ** 2)
        cell2, offset2 = (torch.as_tensor(a, device=image.device) for a in (columns.cell, columns.offset))
        height = max(1, (GPU_POINTS if image.is_cuda else POINTS) // size[1])
        out = image.new_empty(*size, 3)  # one tensor: many separate bands would fragment the memory
        for start in range(0, size[0], height):
            part = rows[start : start + height]
            cell1, offset1 = (torch.as_tensor(a, device=image.device) for a in (part.cell, part.offset))
            cells = features[cell1[:, None], cell2], image[cell1[:, None], cell2]
            grid = torch.meshgrid(offset1, offset2, indexing="ij")
            out[start : start + height] = self._values(*cells, torch.stack(grid, -1).float(), t)
        return out

    def _values(self, features: Tensor, pixels: Tensor, x: Tensor, t: Tensor) -> Tensor:
        """Φ(x, t) at h×w points, from the features and the colours of their cells."""
        from thera.networks.heat import field_values

        cells = features.permute(2, 0, 1)[None]  # every point is a cell of its own here
        value, _ = field_values(self.network, cells, x[None, :, :, None], t.view(1))
        return pixels + STD * value[0, :, :, 0]
