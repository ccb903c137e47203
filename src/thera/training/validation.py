"""Validation as published: Y-PSNR of bicubic-downscaled images, on the training device."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from thera.evaluation.images import ImageSet, image_sets, read
from thera.evaluation.methods import network_method
from thera.evaluation.protocol import Pair, degrade, score, unit
from thera.networks import Network


class Validation:
    """Images and their small versions, made once. Calling it scores a network as `thera eval` does.

    `damages` are stated as for `thera eval --degrade`; "" is none.

    >>> Validation(["Set5"], [2, 3, 4], "cpu")(network)  # doctest: +SKIP
    {'Set5 ×2': 37.9, 'Set5 ×3': 34.4, 'Set5 ×4': 32.2}
    """

    def __init__(
        self,
        folders: Sequence[str | Path],
        scales: Sequence[float],
        device: str,
        damages: Sequence[str] = ("",),
    ) -> None:
        self.device = device
        sets = [images.damaged(damage) for images in image_sets(folders) for damage in damages]
        jobs = [(images, path, scale) for images in sets for path in images.files for scale in scales]
        with ThreadPoolExecutor() as pool:
            self.pairs = list(pool.map(self._pair, jobs))

    def _pair(self, job: tuple[ImageSet, Path, float]) -> tuple[str, float, Pair]:
        images, path, scale = job
        return f"{images.name} ×{scale:g}", scale, degrade(read(path).pixels, scale, images.damage)

    def __call__(self, network: Network, ensemble: bool = False) -> dict[str, float]:
        method = network_method(network, self.device, ensemble)
        scores = defaultdict(list)
        # Images differ in size: searching the fastest convolution for each takes longer than it saves.
        searching, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
        try:
            for label, scale, (source, target) in self.pairs:
                height, width = target.shape[:2]
                output = method.upscale(unit(source), (height, width))
                scores[label].append(score(output, target, scale, "psnr_y"))
        finally:
            torch.backends.cudnn.benchmark = searching
        del method
        gc.collect()  # a model with CUDA graphs refers to itself, and holds memory of the device
        return {label: float(np.mean(values)) for label, values in scores.items()}
