"""Validation as published: Y-PSNR of bicubic-downscaled images, on the training device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from thera.evaluation.ablation_model import AblationModel
from thera.evaluation.images import image_sets, read
from thera.evaluation.protocol import degrade, score, unit
from thera.field import HeatField
from thera.networks import Thera


class Validation:
    """Images and their small versions, made once; calling it scores a network.

    >>> Validation(["Set5"], [2, 3, 4], "cpu")(network)  # doctest: +SKIP
    {'Set5 ×2': 37.9, 'Set5 ×3': 34.4, 'Set5 ×4': 32.2}
    """

    def __init__(
        self, folders: Sequence[str | Path], scales: Sequence[float], device: torch.device | str
    ) -> None:
        self.device = device
        jobs = [(s.name, path, scale) for s in image_sets(folders) for path in s.files for scale in scales]
        with ThreadPoolExecutor() as pool:
            self.pairs = list(pool.map(self._pair, jobs))

    def _pair(self, job: tuple[str, Path, float]) -> tuple[str, float, Tensor, np.ndarray]:
        name, path, scale = job
        source, target = degrade(read(path).pixels, scale)
        return f"{name} ×{scale:g}", scale, torch.from_numpy(unit(source)).to(self.device), target

    def __call__(self, network: Thera, ensemble: bool = False) -> dict[str, float]:
        scores = defaultdict(list)
        with exact():
            for label, scale, source, target in self.pairs:
                image = upscale(network, source, target.shape[:2], ensemble)
                scores[label].append(score(image, target, scale, "psnr_y"))
        return {label: float(np.mean(values)) for label, values in scores.items()}


@torch.no_grad()
def upscale(network: Thera, image: Tensor, size: tuple[int, int], ensemble: bool) -> np.ndarray:
    """H×W×3 → size, the mean over four quarter turns of the input if asked for."""
    if not network.spec.renderable:
        return AblationModel(network, str(image.device)).upscale(image, size, ensemble)
    weight, bias = network.folded_head()
    turns = 4 if ensemble else 1
    total = torch.zeros(*size, 3, device=image.device)
    for k in range(turns):
        turned = torch.rot90(image, k)
        features = network.features(turned.permute(2, 0, 1)[None])[0].permute(1, 2, 0)
        field = HeatField(turned, features, weight, bias, network.components.detach(), network.kappa.item())
        total += torch.rot90(field.render(size=size if k % 2 == 0 else size[::-1]), -k)
    return (total / turns).cpu().numpy()


@contextmanager
def exact() -> Iterator[None]:
    """Full float32 products, and no search for the fastest convolution: every image has its own size."""
    before = (
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
    )
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = before[1:]
