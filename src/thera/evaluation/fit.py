"""Fit heat fields to an image by least squares: what a frequency bank can represent, without any network.

With the bank, κ and t given, a field is linear in a·cos φ and a·sin φ:

    Φ(x, t) = I + Σₖ exp(-|wₖ|² κ t) · [aₖ cos φₖ · sin(wₖ·x) + aₖ sin φₖ · cos(wₖ·x)]

so its best coefficients are a linear least-squares solution. A cell of n×n pixels is sampled like an input
pixel enlarged n times. Its t = 1/n² is t = 1 in pixels: only the image's own resolution supervises the fit.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.field import HeatField
from thera.field.psf import NYQUIST_KAPPA
from thera.optional import require

Array = NDArray[np.float64]


def random_bank(count: int = 512, radius: float = 8 * math.pi, seed: int = 0) -> Array:
    """2×count frequencies in all directions, p(|w|) ∝ |w| up to `radius`, as at the start of training."""
    rng = np.random.default_rng(seed)
    length, angle = radius * np.sqrt(rng.random(count)), 2 * math.pi * rng.random(count)
    return length * np.stack([np.cos(angle), np.sin(angle)])


def positions(cell: int) -> Array:
    """The pixel centres of a cell, n²×2, in [-½, ½]².

    >>> positions(2)[0]
    array([-0.25, -0.25])
    """
    axis = (np.arange(cell) + 0.5) / cell - 0.5
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)


def design(cell: int, components: Array, kappa: float) -> Array:
    """n²×2c: the contribution of each sine, then of each cosine, to the pixels of a cell."""
    argument = positions(cell) @ components
    decay = np.exp(-(components**2).sum(0) * kappa / cell**2)
    return np.concatenate([decay * np.sin(argument), decay * np.cos(argument)], axis=1)


def cells_of(image: Array, cell: int) -> tuple[Array, Array]:
    """The mean colour of each whole cell (h×w×3), and its pixels minus that mean (n²×(h·w·3))."""
    height, width = (n // cell for n in image.shape[:2])
    if min(height, width) < 1:
        raise InvalidInput(
            f"An image of {image.shape[:2]} holds no cell of {cell}×{cell} pixels: use smaller cells."
        )
    blocks = image[: height * cell, : width * cell].reshape(height, cell, width, cell, -1)
    mean = blocks.mean((1, 3))
    rest = blocks - mean[:, None, :, None]
    return mean, rest.transpose(1, 3, 0, 2, 4).reshape(cell * cell, -1)


def fit_grid(
    image: Array, cell: int, components: Array, kappa: float = NYQUIST_KAPPA, rcond: float = 1e-6
) -> HeatField:
    """The grid of local fields, with cells of n×n pixels, that is closest to `image` (H×W×3, [0, 1]).

    It is the solution of least norm. Singular values below `rcond` times the largest count as zero, so that
    the coefficients stay small enough for float32. Each channel has its own phases, so the field has the bank
    twice, as sines and as cosines.

    >>> image = np.random.default_rng(0).random((12, 9, 3))
    >>> field = fit_grid(image, 3, random_bank())
    >>> bool(np.abs(field.render(scale=3) - image).max() < 1e-4)
    True
    """
    mean, rest = cells_of(np.asarray(image, np.float64), cell)
    height, width, channels = mean.shape
    coefficients = np.linalg.pinv(design(cell, components, kappa), rcond=rcond) @ rest
    amplitude = coefficients.reshape(-1, height, width, channels).transpose(1, 2, 0, 3)
    phases = np.repeat([0.0, math.pi / 2], components.shape[1])  # sines, then cosines
    return HeatField.from_coefficients(
        mean.astype(np.float32),
        amplitude.astype(np.float32),
        np.broadcast_to(phases, amplitude.shape[:3]).astype(np.float32),
        np.concatenate([components, components], axis=1),
        kappa,
    )


def learn_bank(
    images: list[Array], cell: int, components: Array, kappa: float = NYQUIST_KAPPA, steps: int = 200
) -> Array:
    """A bank that fits `images` better than the given one, by gradient descent.

    Only the bank is optimised. The coefficients are the least-squares ones for each bank, so the loss is what
    remains of the pixels after projecting them onto the bank.
    """
    torch = require("torch", "torch", "A learnt bank")
    rest = torch.tensor(np.concatenate([cells_of(image, cell)[1] for image in images], axis=1))
    # The loss only needs the n²×n² second moment of the pixels.
    moment = rest @ rest.T / rest.shape[1]
    x = torch.tensor(positions(cell))
    bank = torch.tensor(components, requires_grad=True)
    optimiser = torch.optim.Adam([bank], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    eye = torch.eye(len(x), dtype=torch.float64)
    for _ in range(steps):
        decay = torch.exp(-(bank**2).sum(0) * kappa / cell**2)
        matrix = torch.cat([decay * torch.sin(x @ bank), decay * torch.cos(x @ bank)], dim=1)
        # I - A(AᵀA + λ)⁻¹Aᵀ = λ(AAᵀ + λ)⁻¹
        ridge = 1e-6 * matrix.square().sum(0).max()
        left = ridge * torch.linalg.solve(
            matrix @ matrix.T + ridge * eye, torch.linalg.cholesky(moment + 1e-9 * eye)
        )
        loss = left.square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return bank.detach().numpy()


def fit_whole(image: Array, kappa: float = NYQUIST_KAPPA) -> HeatField:
    """One heat field over the whole image (n×n×3), exact at t = 1; `kappa` is in pixels.

    Its bank is that of the cosine transform, w = π(k₁, ±k₂), which represents every image exactly and mirrors
    it at the borders: the fit is two matrix products. Φ(x, S²) is then the image filtered for ×1/S.

    >>> image = np.random.default_rng(0).random((8, 8, 3))
    >>> field = fit_whole(image)
    >>> bool(np.abs(filtered(field, 8, 1) - image).max() < 1e-5)
    True
    """
    n = len(image)
    if image.shape[:2] != (n, n):
        raise InvalidInput(f"One field covers a square image, got {image.shape[:2]}: crop it first.")
    k = np.arange(n)
    x = (k + 0.5) / n
    cosines = np.cos(math.pi * np.outer(k, x)) * np.where(k == 0, 1, 2)[:, None] / n
    spectrum = np.einsum("ai,bj,ijc->abc", cosines, cosines, image)
    mean = spectrum[0, 0].copy()
    spectrum[0, 0] = 0
    wave = math.pi * np.stack(np.meshgrid(k, k, indexing="ij")).reshape(2, -1)
    amplitude = spectrum.reshape(n * n, -1) / np.exp(-(wave**2).sum(0) * kappa / n**2)[:, None]
    # cos a · cos b = ½ cos(a + b) + ½ cos(a - b), and cos(πk(x + ½)) = sin(πkx + πk/2 + π/2)
    components = np.concatenate([wave, wave * [[1], [-1]]], axis=1)
    phase = components.sum(0) / 2 + math.pi / 2
    return HeatField.from_coefficients(
        mean[None, None].astype(np.float32),
        (np.concatenate([amplitude, amplitude]) / 2)[None, None].astype(np.float32),
        np.mod(phase, 2 * math.pi)[None, None].astype(np.float32),
        components,
        kappa / n**2,
    )


def filtered(field: HeatField, size: int, subsampling: float) -> NDArray[np.float32]:
    """Φ(x, S²) of a whole-image field at size×size pixels. S = 1 is the fitted image."""
    from thera.field import Gaussian

    return field.render(size=(size, size), psf=Gaussian(t=subsampling**2))


def gaussian_filter(image: Array, variance: float) -> Array:
    """The image (H×W×3) convolved with a sampled Gaussian, mirrored at its borders."""
    if variance == 0:
        return image
    radius = math.ceil(6 * math.sqrt(variance))
    x = np.arange(-radius, radius + 1)
    kernel = np.exp(-(x**2) / (2 * variance))
    kernel /= kernel.sum()

    def along(line: Array) -> Array:
        return np.convolve(np.pad(line, radius, mode="symmetric"), kernel, mode="valid")

    return np.apply_along_axis(along, 1, np.apply_along_axis(along, 0, image))
