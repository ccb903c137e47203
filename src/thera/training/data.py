"""Training data: every image in one buffer on the device, and batches cut from it by tensor operations alone.

Nothing here waits for the host, so that a whole training step can be captured as one CUDA graph.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageFilter, UnidentifiedImageError
from torch import Tensor, nn

from thera.errors import InvalidInput
from thera.evaluation.images import SUFFIXES
from thera.evaluation.resize import cubic
from thera.kernels.available import TRITON
from thera.training.config import Data

BLOCK = 32  # pixels; where detail decides, places are drawn by blocks of this size


def read_images(
    paths: list[str | Path],
    smallest: int,
    resized: tuple[float, ...] = (),
    soft: tuple[float, ...] = (),
    skip: Callable[[str], None] = print,
) -> list[np.ndarray]:
    """All images of folders and tar files as H×W×3 uint8, and their resized and softened copies.

    An image that cannot be read or is smaller than `smallest` is skipped, and `skip` is told which and why.
    """

    def decode(item: tuple[str, Callable[[], bytes]]) -> list[np.ndarray] | str:
        name, read = item
        try:
            stored = Image.open(io.BytesIO(read()))
            if stored.mode.startswith(("I", "F")):  # which Pillow would cut off at 255
                return f"skipped {name}: its samples have more than 8 bits"
            image = stored.convert("RGB")
        except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError) as e:
            return f"skipped {name}: not a readable image ({e})"
        copies = [image]
        for s in resized:
            size = (round(image.width * s), round(image.height * s))
            copies.append(image.resize(size, Image.Resampling.BICUBIC))
        copies += [image.filter(ImageFilter.GaussianBlur(sigma)) for sigma in soft]
        kept = [np.array(c) for c in copies if min(c.size) >= smallest]
        small = f"skipped {name}: {image.width}×{image.height} is smaller than the smallest crop, {smallest}"
        return kept or small

    images: list[np.ndarray] = []
    with ThreadPoolExecutor() as pool:
        for found in pool.map(decode, _entries(paths)):
            if isinstance(found, str):
                skip(found)
            else:
                images += found
    if not images:
        raise InvalidInput(
            f"no usable image in {', '.join(map(str, paths))}: name folders or tar files of images"
        )
    return images


def _entries(paths: list[str | Path]) -> Iterator[tuple[str, Callable[[], bytes]]]:
    for path in map(Path, paths):
        if path.is_dir():
            for file in sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES):
                yield str(file), file.read_bytes
        elif path.is_file() and tarfile.is_tarfile(path):
            try:
                yield from _members(path)
            except tarfile.TarError as e:
                raise InvalidInput(f"{path} is damaged or cut short ({e}): fetch it again") from None
        else:
            raise InvalidInput(f"{path} is neither a folder nor a tar file of images")


def _members(path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and Path(member.name).suffix.lower() in SUFFIXES:
                content = archive.extractfile(member)
                yield f"{path}:{member.name}", partial(bytes, content.read() if content else b"")


@dataclass
class Batch:
    """N inputs of P×P pixels and, in every cell, q target pixels."""

    source: Tensor  # N×3×P×P, multiples of 1/255
    target: Tensor  # N×P×P×q×3
    x: Tensor  # N×P×P×q×2, where in its cell each target lies
    t: Tensor  # N, 1 / scale²


class Crops(NamedTuple):
    """N squares of pixels: (i, j) of a crop is number first + i·down + j·across of the buffer."""

    first: Tensor
    down: Tensor
    across: Tensor
    size: Tensor

    def numbers(self, length: int) -> Tensor:
        """N×length×length: those of each crop's first rows and columns, then of its last ones again."""
        i = torch.minimum(torch.arange(length, device=self.size.device), self.size[:, None] - 1)
        rows, columns = i * self.down[:, None], i * self.across[:, None]
        return self.first[:, None, None] + rows[:, :, None] + columns[:, None, :]


class Sampler:
    """Draws batches from images that live in one buffer on the device.

    `draw` makes a batch's random numbers and `build` the batch from a part of them, so that several
    processes that draw the same numbers share one batch between them.
    """

    def __init__(self, images: list[np.ndarray], config: Data, device: torch.device | str = "cpu") -> None:
        self.config, self.device = config, torch.device(device)
        sizes = torch.tensor([image.shape[:2] for image in images])
        areas = sizes.prod(1)
        self.height, self.width = (n.to(device) for n in sizes.unbind(1))
        self.first = (areas.cumsum(0) - areas).to(device)
        self.pixels = torch.empty(int(areas.sum()), 3, dtype=torch.uint8, device=device)
        for image, start, area in zip(images, self.first.tolist(), areas.tolist(), strict=True):
            self.pixels[start : start + area] = torch.from_numpy(image.reshape(-1, 3)).to(device)
        if config.detail:
            self._weigh_blocks()
        else:  # an image is drawn by its area, a place in it anywhere
            self.share = (areas.cumsum(0) / areas.sum()).float().to(device)
        self.smallest, self.largest = config.crops

    def _weigh_blocks(self) -> None:
        """Cut all images into blocks, to be drawn by their mean slopes: in plain sky nothing is learnt."""
        weights, owners, corners = [], [], []
        for k, start in enumerate(self.first.tolist()):
            h, w = int(self.height[k]), int(self.width[k])
            grey = self.pixels[start : start + h * w].view(h, w, 3).float().mean(-1)
            slope = torch.zeros_like(grey)
            slope[:-1] += grey.diff(dim=0).abs()
            slope[:, :-1] += grey.diff(dim=1).abs()
            mean = nn.functional.avg_pool2d(slope[None], BLOCK, ceil_mode=True)[0]
            weights.append(mean.flatten().double() ** self.config.detail)
            owners.append(torch.full_like(weights[-1], k, dtype=torch.long))
            corners.append(BLOCK * torch.cartesian_prod(*(torch.arange(n) for n in mean.shape)))
        self.owner, self.block = torch.cat(owners), torch.cat(corners).to(self.device)
        share = torch.cat(weights).cumsum(0)
        self.share = (share / share[-1]).float()

    def draw(self, n: int) -> dict[str, Tensor]:
        """The random numbers of n samples, all uniform in [0, 1)."""
        P, q = self.config.patch, self.config.targets
        shapes = {"image": (), "size": (), "corner": (2,), "turn": (3,), "target": (P, P, q, 2)}
        return {k: torch.rand(n, *shape, device=self.device) for k, shape in shapes.items()}

    def build(self, u: dict[str, Tensor]) -> Batch:
        P = self.config.patch
        crops = self._crops(u)
        scale = crops.size / P
        if self.device.type == "cuda" and TRITON:
            from thera.kernels import batch

            drawn = batch.draw(self.pixels, *crops, u["target"].contiguous(), self.largest)
            return Batch(*drawn, scale**-2)
        crop = self.pixels[crops.numbers(self.largest)].float()  # N×largest×largest×3
        weights = bicubic_weights(crops.size, P, self.largest)  # N×P×largest
        rows = torch.bmm(weights, crop.flatten(2)).unflatten(2, (-1, 3))
        source = torch.einsum("npj,nijc->ncip", weights, rows).clamp_(0, 255).round_() / 255
        at, x = stratified(u["target"], scale)
        flat = (at[..., 0] * self.largest + at[..., 1]).flatten(1)
        target = crop.flatten(1, 2).gather(1, flat[..., None].expand(-1, -1, 3))
        return Batch(source, target.view(*at.shape[:-1], 3) / 255, x, scale**-2)

    def _crops(self, u: dict[str, Tensor]) -> Crops:
        """Where the crops lie: size by scale, place anywhere or by detail, flipped and turned.

        An image too small for the largest scale is drawn at those that it has room for.
        """
        drawn = torch.searchsorted(self.share, u["image"]).clamp_(max=len(self.share) - 1)
        which = self.owner[drawn] if self.config.detail else drawn
        height, width = self.height[which], self.width[which]
        low, high = self.smallest, torch.minimum(height, width).clamp(max=self.largest)
        ratio = u["size"] if self.config.spread == "uniform" else log_spread(u["size"], low, high + 1)
        n = low + torch.minimum((ratio * (high - low + 1)).long(), high - low)  # the scale is n / P
        room = torch.stack([height, width], 1) - n[:, None]
        corner = (u["corner"] * (room + 1)).long()
        if self.config.detail:  # the crop's centre lies in the block
            corner = (self.block[drawn] + u["corner"] * BLOCK - n[:, None] / 2).long()
            corner = torch.minimum(corner.clamp_(min=0), room)
        first, down, across = turned(u["turn"], width, n)
        return Crops(first + self.first[which] + corner[:, 0] * width + corner[:, 1], down, across, n)


def position(turn: Tensor) -> tuple[Tensor, Tensor]:
    """Which of its eight positions a square takes by three numbers in [0, 1): N×3 → whether it is flipped
    down and across (N×2), and transposed (N)."""
    return turn[:, :2] < 0.5, turn[:, 2] < 0.5


def turned(turn: Tensor, width: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Squares of n×n pixels of images so wide, in one of their eight positions: where the first pixel lies
    from the upper left one, and the steps down and across."""
    flipped, transposed = position(turn)
    steps = torch.stack([width, torch.ones_like(width)], 1)
    steps = torch.where(transposed[:, None], steps.flip(1), steps)
    down, across = torch.where(flipped, -steps, steps).unbind(1)
    return (flipped * steps).sum(1) * (n - 1), down, across


def log_spread(u: Tensor, low: float, high: Tensor | float) -> Tensor:
    """Where in [0, 1) of the way from low to high a number lies whose logarithm is uniform."""
    return (low * (high / low) ** u - low) / (high - low)


def bicubic_weights(n: Tensor, outputs: int, width: int) -> Tensor:
    """N×outputs×width: antialiased bicubic (a = -½) from n pixels to `outputs`, renormalised at borders."""
    scale = (n / outputs)[:, None, None]
    centre = (torch.arange(outputs, device=n.device)[None, :, None] + 0.5) * scale - 0.5
    j = torch.arange(width, device=n.device)
    w = cubic((j - centre) / scale)
    w = w * (j < n[:, None, None])
    return w / w.sum(-1, keepdim=True)


def stratified(u: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """In every cell a target pixel drawn from those whose centres lie in it.

    u: N×P×P×q×2. Returns the pixels' (row, column) and their offsets from the cells' centres.
    Against pixels drawn from anywhere this needs no gathering of parameters, and varies less.
    """
    P = u.shape[1]
    s = scale.double().view(-1, 1, 1, 1, 1)
    cell = torch.arange(P, device=u.device, dtype=torch.float64)
    cell = torch.stack(torch.meshgrid(cell, cell, indexing="ij"), -1)[None, :, :, None]
    first = torch.ceil(cell * s - 0.5)
    after = torch.ceil((cell + 1) * s - 0.5)
    at = torch.minimum(first + torch.floor(u.double() * (after - first)), after - 1)
    return at.long(), ((at + 0.5) / s - cell - 0.5).float()
