"""What cameras and codecs do to a picture, done to a batch of inputs: blur, noise, sharpening, JPEG.

The targets stay clean, so the network learns to see through it. Every input draws its own mixture. Nothing
waits for the host and no shape depends on data, so that this is a part of the captured step.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from thera.training.config import Degradation
from thera.training.jpeg import MCU, jpeg_of_crop

RADIUS = 4  # of a blur's kernel, in pixels: 3 deviations of the widest
ROUND = 0.5  # share of Gaussians that are isotropic
NARROWEST = 0.3  # ratio of the others' axes, at least
HALO = 0.5, 1.5  # deviations of the blur whose difference from the image sharpens it
DARKEST = 0.4  # noise of a black pixel over that of a white one, where noise depends most on the signal
CORRELATION = 0.8  # of the noise of two channels, at most
NEIGHBOURS = 0.6  # weight of a pixel's neighbours in its noise, at most
COLOURED = "correlation", "neighbours"  # what makes noise other than white
#: What an input draws: one uniform number each.
DRAWN = (
    "clean", "kernel", "blur", "round", "disc", "sigma", "ratio", "angle", "noise", "level", "signal",
    "correlation", "neighbours", "sharpen", "amount", "halo", "jpeg", "quality", "420", "row", "column",
    "twice", "quality again", "row again", "column again",
)  # fmt: skip


def drawn_numbers(n: int, patch: int, config: Degradation, device: torch.device) -> dict[str, Tensor]:
    """The random numbers for n inputs: uniform ones for every decision, normal ones for the noise."""
    if not config.on:
        return {}
    numbers = {"degradation": torch.rand(n, len(DRAWN), device=device)}
    if config.noise:
        numbers["noise"] = torch.randn(n, 4, patch, patch, device=device)
    return numbers


def by_name(u: dict[str, Tensor]) -> dict[str, Tensor]:
    return dict(zip(DRAWN, u["degradation"].unbind(1), strict=True))


def degraded(source: Tensor, u: dict[str, Tensor], config: Degradation) -> Tensor:
    """N×3×P×P inputs (multiples of 1/255) after what the configuration and the numbers say, rounded again."""
    d, x = by_name(u), 255 * source
    if config.blur:
        sigma = _between(d["sigma"], *config.blur_sigma)
        other = sigma * torch.where(d["round"] < ROUND, 1.0, _between(d["ratio"], NARROWEST, 1.0))
        kernel = gaussians(sigma, other, math.pi * d["angle"])
        kernel = torch.where(_each(d["disc"] < config.discs, 3), discs(2 * sigma), kernel)
        x = torch.where(_each(d["blur"] < config.blur), filtered(x, kernel), x)
    if config.noise:
        # Below `white` it is 0, and uniform above: pixels, and apart from them channels, are independent.
        among, beside = (((d[k] - config.white) / (1 - config.white)).clamp(min=0) for k in COLOURED)
        noise = camera_noise(u["noise"], among * CORRELATION, beside * NEIGHBOURS)
        signal = _each(d["signal"]) * (1 - DARKEST**2) * (1 - x.clamp(0, 255) / 255)
        deviation = (1 - signal).sqrt() * _each(_between(d["level"].square(), *config.noise_level))
        x = torch.where(_each(d["noise"] < config.noise), x + deviation * noise, x)
    if config.sharpen:
        sigma = _between(d["halo"], *HALO)
        amount = _each(_between(d["amount"], *config.sharpen_amount))
        sharp = x + amount * (x - filtered(x, gaussians(sigma, sigma, sigma)))
        x = torch.where(_each(d["sharpen"] < config.sharpen), sharp, x)
    x = x.clamp(0, 255).round()
    if config.jpeg:
        coded, halved = d["jpeg"] < config.jpeg, d["420"] < config.jpeg_420
        x = torch.where(_each(coded), _coded(x, d, "", halved, config), x)
        if config.jpeg_twice:
            twice = coded & (d["twice"] < config.jpeg_twice)
            x = torch.where(_each(twice), _coded(x, d, " again", halved, config), x)
    return torch.empty_like(source).copy_(torch.where(_each(d["clean"] < config.clean), source, x / 255))


def _coded(x: Tensor, d: dict[str, Tensor], time: str, halved: Tensor, config: Degradation) -> Tensor:
    low, high = config.jpeg_quality
    quality = torch.floor(_between(d["quality" + time], low, high + 1)).clamp(max=high)
    offset = (torch.stack([d["row" + time], d["column" + time]], 1) * MCU).long()
    return jpeg_of_crop(x, quality, halved, offset)


def _between(u: Tensor, low: float, high: float) -> Tensor:
    return low + u * (high - low)


def _each(values: Tensor, axes: int = 4) -> Tensor:
    """One value for each input, to go with a tensor of so many axes."""
    return values.view(-1, *[1] * (axes - 1))


def _offsets(device: torch.device) -> tuple[Tensor, Tensor]:
    at = torch.arange(-RADIUS, RADIUS + 1, device=device, dtype=torch.float32)
    return at[:, None], at[None, :]


def gaussians(sigma: Tensor, other: Tensor, angle: Tensor) -> Tensor:
    """N×9×9 Gaussians whose axes have these deviations, the first turned by `angle`; each sums to one."""
    y, x = _offsets(sigma.device)
    cos, sin = _each(angle.cos(), 3), _each(angle.sin(), 3)
    along, across = (cos * x + sin * y) / _each(sigma, 3), (cos * y - sin * x) / _each(other, 3)
    kernel = torch.exp(-0.5 * (along * along + across * across))
    return kernel / kernel.sum((1, 2), keepdim=True)


def discs(radius: Tensor) -> Tensor:
    """N×9×9 discs with soft edges, as of a lens out of focus; each sums to one."""
    y, x = _offsets(radius.device)
    kernel = (_each(radius, 3) + 0.5 - (x * x + y * y).sqrt()).clamp(0, 1)
    return kernel / kernel.sum((1, 2), keepdim=True)


def filtered(x: Tensor, kernel: Tensor) -> Tensor:
    """N×C×P×P, each input convolved with its own kernel; borders are repeated."""
    N, C, H, W = x.shape
    wide = F.pad(x, [RADIUS] * 4, mode="replicate").reshape(1, N * C, H + 2 * RADIUS, W + 2 * RADIUS)
    weight = kernel[:, None].expand(-1, C, -1, -1).reshape(N * C, 1, *kernel.shape[1:])
    return F.conv2d(wide, weight, groups=N * C).view_as(x)


def camera_noise(normal: Tensor, correlation: Tensor, neighbours: Tensor) -> Tensor:
    """N×3×P×P noise of deviation one. Channels correlate, and so do neighbours, as after demosaicing.

    normal: N×4×P×P; correlation: of two channels, N; neighbours: their weight, N.
    """
    common, a = _each(correlation), _each(neighbours)
    noise = common.sqrt() * normal[:, :1] + (1 - common).sqrt() * normal[:, 1:]
    for axis in (2, 3):
        noise = (noise + a * (noise.roll(1, axis) + noise.roll(-1, axis))) / (1 + 2 * a * a).sqrt()
    return noise
