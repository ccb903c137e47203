"""Image quality metrics: PSNR in RGB and in Y, SSIM, GMSD.

Every function takes two H×W×3 images with values in [0, 1]. Cropping, clipping and rounding are left to the
protocol.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thera.errors import InvalidInput

Image = NDArray[np.floating]

# Rec. 601 luma in the 16…235 range of 8-bit video, as in all published benchmark tables.
Y_WEIGHTS = np.array([65.738, 129.057, 25.064]) / 256

# The luma of YIQ, which GMSD uses.
LUMA_WEIGHTS = np.array([0.299, 0.587, 0.114])


def _pair(image: ArrayLike, target: ArrayLike) -> tuple[Image, Image]:
    a, b = np.asarray(image), np.asarray(target)
    if a.shape != b.shape or a.ndim != 3 or a.shape[2] != 3 or a.size == 0:
        raise InvalidInput(f"Expected two H×W×3 images of one size, got {a.shape} and {b.shape}.")
    return a, b


def _psnr_of(difference: Image) -> float:
    mse = float(np.mean(np.square(difference, dtype=np.float64)))
    return math.inf if mse == 0 else -10 * math.log10(mse)


def psnr_rgb(image: ArrayLike, target: ArrayLike) -> float:
    """Peak signal-to-noise ratio in dB over all three channels.

    >>> psnr_rgb(np.full((4, 4, 3), 0.6), np.full((4, 4, 3), 0.5))
    20.0
    """
    a, b = _pair(image, target)
    return _psnr_of(a - b)


def psnr_y(image: ArrayLike, target: ArrayLike) -> float:
    """Peak signal-to-noise ratio in dB of the luminance Y.

    >>> round(psnr_y(np.full((4, 4, 3), 0.6), np.full((4, 4, 3), 0.5)), 4)
    21.3219
    """
    a, b = _pair(image, target)
    return _psnr_of((a - b) @ Y_WEIGHTS)


def psnr_y8(image: ArrayLike, target: ArrayLike) -> float:
    """PSNR in dB of Y rounded to 8 bits, as by MATLAB's `rgb2ycbcr` and in tables from before 2020.

    Well-known values, such as 33.66 dB of bicubic on Set5 ×2, include this rounding; without it: 33.69 dB.

    >>> round(psnr_y8(np.full((4, 4, 3), 0.6), np.full((4, 4, 3), 0.4)), 4)  # 147 against 104
    15.4614
    """
    a, b = (np.floor(255 * (x @ Y_WEIGHTS) + 16.5) / 255 for x in _pair(image, target))
    return _psnr_of(a - b)


def _gaussian_window(sigma: float = 1.5, radius: int = 5) -> NDArray[np.float32]:
    x = np.arange(-radius, radius + 1)
    window = np.exp(-(x**2) / (2 * sigma**2))
    return (window / window.sum()).astype(np.float32)


def _smooth(maps: Image, window: NDArray[np.float32]) -> Image:
    """`maps` (H×W×n) convolved with window⊗window, without a border where the window does not fit."""
    height, width = (n - len(window) + 1 for n in maps.shape[:2])
    rows = sum(g * maps[i : i + height] for i, g in enumerate(window))
    return sum(g * rows[:, i : i + width] for i, g in enumerate(window))


def ssim(image: ArrayLike, target: ArrayLike) -> float:
    """Structural similarity: Gaussian window of σ = 1.5 over 11 pixels, K = (0.01, 0.03), mirrored borders.

    The mean over all pixels and channels, as torchmetrics computes it for a data range of 1.

    >>> x = np.linspace(0, 1, 16 * 16 * 3).reshape(16, 16, 3)
    >>> round(ssim(x, x), 6)
    1.0
    """
    a, b = (x.astype(np.float32) for x in _pair(image, target))
    height = a.shape[0]
    window = _gaussian_window()
    pad = len(window) // 2
    if min(a.shape[:2]) <= pad:
        raise InvalidInput(f"SSIM needs images of more than {pad} pixels a side, got {a.shape[:2]}.")
    a, b = (np.pad(x, ((pad, pad), (pad, pad), (0, 0)), mode="reflect") for x in (a, b))
    c1, c2 = 0.01**2, 0.03**2
    total = 0.0
    band = 32  # rows at a time, so that intermediate results stay in the processor's cache
    for top in range(0, height, band):
        x, y = (z[top : top + band + 2 * pad] for z in (a, b))
        mean_x, mean_y, xx, yy, xy = (_smooth(z, window) for z in (x, y, x * x, y * y, x * y))
        variances = np.maximum(xx - mean_x**2, 0) + np.maximum(yy - mean_y**2, 0)
        covariance = xy - mean_x * mean_y
        similarity = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
        similarity /= (mean_x**2 + mean_y**2 + c1) * (variances + c2)
        total += float(similarity.sum(dtype=np.float64))
    return total / np.asarray(target).size


def _gradient_magnitude(luma: Image) -> Image:
    """Prewitt gradient magnitude of the half-size image (H/2×W/2), padded with black."""
    height, width = luma.shape
    luma = np.pad(luma, ((0, height % 2), (0, width % 2)))
    half = (luma[::2, ::2] + luma[1::2, ::2] + luma[::2, 1::2] + luma[1::2, 1::2]) / 4
    padded = np.pad(half, 1)
    across = (padded[:, :-2] - padded[:, 2:]) / 3
    down = (padded[:-2] - padded[2:]) / 3
    dx = across[:-2] + across[1:-1] + across[2:]
    dy = down[:, :-2] + down[:, 1:-1] + down[:, 2:]
    return np.sqrt(dx**2 + dy**2)


def gmsd(image: ArrayLike, target: ArrayLike) -> float:
    """Gradient magnitude similarity deviation (Xue et al. 2013) of the luma, T = 170/255²; lower is better.

    >>> x = np.linspace(0, 1, 16 * 16 * 3).reshape(16, 16, 3)
    >>> gmsd(x, x)
    0.0
    """
    a, b = (_gradient_magnitude(x @ LUMA_WEIGHTS) for x in _pair(image, target))
    t = 170 / 255**2
    return float(np.std((2 * a * b + t) / (a**2 + b**2 + t)))
