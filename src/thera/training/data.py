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

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor, nn

from thera.errors import InvalidInput
from thera.evaluation.images import SUFFIXES
from thera.evaluation.resize import cubic
from thera.training.config import Data

BLOCK = 32  # pixels; where detail decides, places are drawn by blocks of this size


def read_images(
    paths: list[str | Path],
    smallest: int,
    resized: tuple[float, ...] = (),
    skip: Callable[[str], None] = print,
) -> list[np.ndarray]:
    """All images of folders and tar files as H×W×3 uint8, and their copies at the sizes of `resized`.

    An image that cannot be read or is smaller than `smallest` is skipped, and `skip` is told which and why.
    """

    def decode(item: tuple[str, Callable[[], bytes]]) -> list[np.ndarray]:
        name, read = item
        try:
            image = Image.open(io.BytesIO(read())).convert("RGB")
        except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as e:
            skip(f"skipped {name}: not a readable image ({e})")
            return []
        copies = [image]
        for s in resized:
            size = (round(image.width * s), round(image.height * s))
            copies.append(image.resize(size, Image.Resampling.BICUBIC))
        kept = [np.array(c) for c in copies if min(c.size) >= smallest]
        if not kept:
            skip(f"skipped {name}: {image.width}×{image.height} is smaller than the largest crop, {smallest}")
        return kept

    with ThreadPoolExecutor() as pool:
        images = [image for copies in pool.map(decode, _entries(paths)) for image in copies]
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
            with tarfile.open(path) as archive:
                for member in archive:
                    if member.isfile() and Path(member.name).suffix.lower() in SUFFIXES:
                        content = archive.extractfile(member)
                        yield f"{path}:{member.name}", partial(bytes, content.read() if content else b"")
        else:
            raise InvalidInput(f"{path} is neither a folder nor a tar file of images")


@dataclass
class Batch:
    """N inputs of P×P pixels and, in every cell, q target pixels."""

    source: Tensor  # N×3×P×P, multiples of 1/255
    target: Tensor  # N×P×P×q×3
    x: Tensor  # N×P×P×q×2, where in its cell each target lies
    t: Tensor  # N, 1 / scale²


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
        low, high = config.scales
        self.crops = (
            round(config.patch * low),
            round(config.patch * high),
        )  # smallest and largest, in pixels

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
        low, high = self.crops
        drawn = torch.searchsorted(self.share, u["image"]).clamp_(max=len(self.share) - 1)
        ratio = u["size"] if self.config.spread == "uniform" else log_spread(u["size"], low, high + 1)
        n = low + (ratio * (high - low + 1)).long().clamp_(max=high - low)  # crop size; the scale is n / P
        which = self.owner[drawn] if self.config.detail else drawn
        room = torch.stack([self.height[which], self.width[which]], 1) - n[:, None]
        corner = (u["corner"] * (room + 1)).long()
        if self.config.detail:  # the crop's centre lies in the block
            corner = (self.block[drawn] + u["corner"] * BLOCK - n[:, None] / 2).long()
            corner = torch.minimum(corner.clamp_(min=0), room)
        crop = self._crop(which, n, corner, u["turn"])
        weights = bicubic_weights(n, P, high)  # N×P×high
        rows = torch.bmm(weights, crop.reshape(len(n), high, high * 3)).view(-1, P, high, 3)
        source = torch.einsum("npj,nijc->ncip", weights, rows).clamp_(0, 255).round_() / 255

        scale = n / P
        at, x = stratified(u["target"], scale)
        flat = at[..., 0] * high + at[..., 1]
        target = crop.reshape(len(n), -1, 3).gather(1, flat.view(len(n), -1, 1).expand(-1, -1, 3))
        return Batch(source, target.view(*flat.shape, 3) / 255, x, scale**-2)

    def _crop(self, which: Tensor, n: Tensor, corner: Tensor, turn: Tensor) -> Tensor:
        """N×high×high×3 float: each sample's crop in its first n rows and columns, flipped and turned."""
        i = torch.arange(self.crops[1], device=self.device)
        i = torch.minimum(i, n[:, None] - 1)
        flip = (turn < 0.5).long()
        u, v = (torch.where(flip[:, k, None] == 1, n[:, None] - 1 - i, i) for k in (0, 1))
        top, left = corner.unbind(1)
        transposed = (flip[:, 2] == 1)[:, None, None]
        y = top[:, None, None] + torch.where(transposed, v[:, None, :], u[:, :, None])
        x = left[:, None, None] + torch.where(transposed, u[:, :, None], v[:, None, :])
        index = self.first[which][:, None, None] + y * self.width[which][:, None, None] + x
        return self.pixels[index].float()


def log_spread(u: Tensor, low: float, high: float) -> Tensor:
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
