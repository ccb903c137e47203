"""Training data: all images in one buffer on the device, and batches cut from it by tensor operations.

Nothing here waits for the host, so a whole training step can be captured as one CUDA graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from thera.evaluation.resize import cubic
from thera.kernels.available import TRITON
from thera.training.config import Data, Degradation
from thera.training.degradation import by_name, degraded, drawn_numbers


@dataclass
class Batch:
    """N inputs of P×P pixels, and q target pixels in every cell."""

    source: Tensor  # N×3×P×P, multiples of 1/255
    target: Tensor  # N×P×P×q×3
    x: Tensor  # N×P×P×q×2, each target's offset from the centre of its cell
    t: Tensor  # N, 1 / scale²
    clean: Tensor | None = None  # the inputs before their degradation, if there is one
    cell: Tensor | None = None  # N×P×P×q, the cell that each target lies in, if it is not its own
    weight: Tensor | None = None  # N×P×P×q×1, how much a target counts, if not all count the same
    paired: int | None = None  # how many patches, the first ones, are of pairs; None: all or none

    def part(self, which: slice) -> Batch:
        """Some of the patches."""
        parts: dict[str, Any] = {k: v[which] for k, v in vars(self).items() if isinstance(v, Tensor)}
        return Batch(**parts)


class Crops(NamedTuple):
    """N square crops: pixel (i, j) of a crop has index first + i·down + j·across in the buffer.

    `read` pixels a side are read, and reduced to `size`, where the two differ.
    """

    first: Tensor
    down: Tensor
    across: Tensor
    size: Tensor
    read: Tensor | None = None

    def indices(self, length: int) -> Tensor:
        """N×length×length buffer indices. Beyond a crop's end its last row and column are repeated."""
        end = (self.size if self.read is None else self.read)[:, None] - 1
        i = torch.minimum(torch.arange(length, device=end.device), end)
        rows, columns = i * self.down[:, None], i * self.across[:, None]
        return self.first[:, None, None] + rows[:, :, None] + columns[:, None, :]


class Sampler:
    """Draws batches from images that live in one buffer on the device.

    `draw` makes the random numbers of a batch and `build` makes the batch from them. Several processes draw
    the same numbers and each builds its part of the batch.
    """

    def __init__(
        self,
        images: list[np.ndarray],
        config: Data,
        device: torch.device | str = "cpu",
        degradation: Degradation | None = None,
    ) -> None:
        self.config, self.device = config, torch.device(device)
        self.degradation = degradation or Degradation()
        sizes = torch.tensor([image.shape[:2] for image in images])
        areas = sizes.prod(1)
        self.height, self.width = (n.to(device) for n in sizes.unbind(1))
        self.first = (areas.cumsum(0) - areas).to(device)
        self.pixels = torch.empty(int(areas.sum()), 3, dtype=torch.uint8, device=device)
        for image, start, area in zip(images, self.first.tolist(), areas.tolist(), strict=True):
            self.pixels[start : start + area] = torch.from_numpy(image.reshape(-1, 3)).to(device)
        self.share = (areas.cumsum(0) / areas.sum()).float().to(device)  # images are drawn by area
        self.smallest, self.largest = config.crops

    @property
    def count(self) -> int:
        """How many images there are."""
        return len(self.height)

    @property
    def area(self) -> int:
        """Of all images together, in pixels."""
        return len(self.pixels)

    def draw(self, n: int) -> dict[str, Tensor]:
        """The random numbers for n samples, uniform in [0, 1) but for the noise of a degradation."""
        P, q = self.config.patch, self.config.targets
        shapes = {"image": (), "size": (), "corner": (2,), "turn": (3,), "target": (P, P, q, 2)}
        if self.config.shrink[0]:
            shapes["shrink"] = (2,)
        if self.config.places == "anywhere":
            shapes["place"] = (self.largest**2,)
        numbers = {k: torch.rand(n, *shape, device=self.device) for k, shape in shapes.items()}
        return numbers | drawn_numbers(n, P, self.degradation, self.device)

    def build(self, u: dict[str, Tensor]) -> Batch:
        crops = self._crops(u)
        batch = self._clean(crops, u)
        if not self.degradation.on:
            return batch
        source = self._otherwise_reduced(batch.source, crops, u)
        return replace(batch, source=degraded(source, u, self.degradation), clean=batch.source)

    def _otherwise_reduced(self, source: Tensor, crops: Crops, u: dict[str, Tensor]) -> Tensor:
        """The inputs, each reduced by the kernel that it drew; clean ones by bicubic."""
        kernels = self.degradation.kernels
        if kernels == ("bicubic",):
            return source
        d = by_name(u)
        kind = (d["kernel"] * len(kernels)).long().clamp_(max=len(kernels) - 1)
        weights = torch.zeros_like(reducing_weights(crops.size, self.config.patch, self.largest, "bicubic"))
        bicubic = d["clean"] < self.degradation.clean
        for i, name in enumerate(kernels):
            if name == "bicubic":
                bicubic = bicubic | (kind == i)
            else:
                other = reducing_weights(crops.size, self.config.patch, self.largest, name)
                weights = torch.where((kind == i).view(-1, 1, 1), other, weights)
        return torch.where(bicubic.view(-1, 1, 1, 1), source, self._reduced(self._pixels(crops), weights))

    def _pixels(self, crops: Crops) -> Tensor:
        """N×largest×largest×3 levels."""
        if not self.config.shrink[0]:
            return self.pixels[crops.indices(self.largest)].float()
        crop = self.pixels[crops.indices(round(self.largest * self.config.shrink[1]))].float()
        assert crops.read is not None
        weights = reducing_weights(crops.read, self.largest, crop.shape[1], "bicubic", crops.size)
        return (255 * self._reduced(crop, weights)).permute(0, 2, 3, 1)

    @staticmethod
    def _reduced(crop: Tensor, weights: Tensor) -> Tensor:
        """N×3×P×P inputs, rounded to multiples of 1/255. weights: N×P×largest, for both axes."""
        rows = torch.bmm(weights, crop.flatten(2)).unflatten(2, (-1, 3))
        return torch.einsum("npj,nijc->ncip", weights, rows).clamp_(0, 255).round_() / 255

    def _clean(self, crops: Crops, u: dict[str, Tensor]) -> Batch:
        P = self.config.patch
        scale = crops.size / P
        anywhere = self.config.places == "anywhere"
        if self.device.type == "cuda" and TRITON and not anywhere and not self.config.shrink[0]:
            from thera.kernels import batch

            drawn = batch.draw(self.pixels, *crops[:4], u["target"].contiguous(), self.largest)
            return Batch(*drawn, scale**-2)
        crop = self._pixels(crops)
        source = self._reduced(crop, reducing_weights(crops.size, P, self.largest, "bicubic"))
        if anywhere:
            at, cell, x = scattered(u["place"], crops.size, P)
        else:
            (at, x), cell = stratified(u["target"], scale), None
        flat = (at[..., 0] * self.largest + at[..., 1]).flatten(1)
        target = crop.flatten(1, 2).gather(1, flat[..., None].expand(-1, -1, 3))
        return Batch(source, target.view(*at.shape[:-1], 3) / 255, x, scale**-2, cell=cell)

    def _crops(self, u: dict[str, Tensor]) -> Crops:
        """Crops anywhere in the images, sized by their scale, in one of eight orientations.

        An image too small for the largest scale is drawn only at the scales that fit.
        """
        which = torch.searchsorted(self.share, u["image"]).clamp_(max=len(self.share) - 1)
        height, width = self.height[which], self.width[which]
        low, high = self.smallest, torch.minimum(height, width).clamp(max=self.largest)
        ratio = u["size"] if self.config.spread == "uniform" else log_spread(u["size"], low, high + 1)
        n = low + torch.minimum((ratio * (high - low + 1)).long(), high - low)  # the scale is n / P
        read = n
        if self.config.shrink[0]:
            share, factor = self.config.shrink
            larger = 1 + (factor - 1) * u["shrink"][:, 1] * (u["shrink"][:, 0] < share)
            read = torch.minimum((n * larger).round().long(), torch.minimum(height, width))
        room = torch.stack([height, width], 1) - read[:, None]
        corner = (u["corner"] * (room + 1)).long()
        first, down, across = oriented(u["turn"], width, read)
        return Crops(first + self.first[which] + corner[:, 0] * width + corner[:, 1], down, across, n, read)


def orientation(turn: Tensor) -> tuple[Tensor, Tensor]:
    """One of a square's eight orientations from three numbers in [0, 1).

    turn: N×3. Returns whether each axis is flipped (N×2), and whether the axes are swapped (N).
    """
    return turn[:, :2] < 0.5, turn[:, 2] < 0.5


def oriented(turn: Tensor, width: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How to read n×n squares from images of this width in the orientations of `turn`.

    Returns the first pixel's index relative to the upper left one, and the steps down and across.
    """
    flipped, transposed = orientation(turn)
    steps = torch.stack([width, torch.ones_like(width)], 1)
    steps = torch.where(transposed[:, None], steps.flip(1), steps)
    down, across = torch.where(flipped, -steps, steps).unbind(1)
    return (flipped * steps).sum(1) * (n - 1), down, across


def turned_offsets(x: Tensor, turn: Tensor) -> Tensor:
    """Offsets within cells (N×P×P×q×2) after the cells were read in the orientations of `turn`."""
    flipped, transposed = orientation(turn)
    x = torch.where(transposed.view(-1, 1, 1, 1, 1), x.flip(-1), x)
    return torch.where(flipped.view(-1, 1, 1, 1, 2), -x, x)


def log_spread(u: Tensor, low: float, high: Tensor | float) -> Tensor:
    """Map uniform u to [0, 1) so that low + result · (high - low) is log-uniform between low and high."""
    return (low * (high / low) ** u - low) / (high - low)


def reducing_weights(n: Tensor, outputs: int, width: int, kernel: str, used: Tensor | None = None) -> Tensor:
    """N×outputs×width weights that reduce n pixels to `outputs`, renormalised at borders.

    All kernels are stretched by the scale. "area" weighs a pixel by the part of it that an output covers.
    Where fewer outputs are `used`, the others are 0.
    """
    scale = (n / (outputs if used is None else used))[:, None, None]
    centre = (torch.arange(outputs, device=n.device)[None, :, None] + 0.5) * scale - 0.5
    j = torch.arange(width, device=n.device)
    x = (j - centre) / scale
    if kernel == "bicubic":
        w = cubic(x)
    elif kernel == "lanczos":
        w = torch.sinc(x) * torch.sinc(x / 3) * (x.abs() < 3)
    elif kernel == "bilinear":
        w = (1 - x.abs()).clamp(min=0)
    elif kernel == "box":
        w = (x.abs() <= 0.5).float()
    else:
        w = ((0.5 - x.abs()) * scale + 0.5).clamp(0, 1)
    w = w * (j < n[:, None, None])
    w = w / w.sum(-1, keepdim=True)
    if used is None:
        return w
    return torch.where(torch.arange(outputs, device=n.device)[:, None] < used[:, None, None], w, 0.0)


def scattered(u: Tensor, size: Tensor, patch: int) -> tuple[Tensor, Tensor, Tensor]:
    """patch² different pixels of each crop, wherever they lie, as the paper draws them. u: N×largest².

    Returns the pixels' (row, column), the cells that they lie in, and their offsets from the cells' centres.
    """
    largest = math.isqrt(u.shape[1])
    line = torch.arange(largest, device=u.device)
    inside = (line[:, None] < size[:, None, None]) & (line < size[:, None, None])
    chosen = torch.where(inside.flatten(1), u, 2.0).topk(patch**2, largest=False).indices
    at = torch.stack([chosen // largest, chosen % largest], -1).view(-1, patch, patch, 1, 2)
    place = (at + 0.5) * (patch / size.double()).view(-1, 1, 1, 1, 1)
    cell = place.floor()
    index = (cell[..., 0] * patch + cell[..., 1]).long()
    return at, index, (place - cell - 0.5).float()


def stratified(u: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Draw target pixels in every cell, among the pixels whose centres lie in it.

    u: N×P×P×q×2. Returns the pixels' (row, column) and their offsets from the cells' centres. Unlike pixels
    drawn anywhere this needs no gather of the cells' parameters, and the loss varies less.
    """
    P = u.shape[1]
    s = scale.double().view(-1, 1, 1, 1, 1)
    cell = torch.arange(P, device=u.device, dtype=torch.float64)
    cell = torch.stack(torch.meshgrid(cell, cell, indexing="ij"), -1)[None, :, :, None]
    first = torch.ceil(cell * s - 0.5)
    after = torch.ceil((cell + 1) * s - 0.5)
    at = torch.minimum(first + torch.floor(u.double() * (after - first)), after - 1)
    return at.long(), ((at + 0.5) / s - cell - 0.5).float()
