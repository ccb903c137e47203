"""Image quality metrics: PSNR in RGB and in Y, SSIM, GMSD.

Every function takes two H×W×3 images with values in [0, 1], both NumPy arrays or both tensors on one device.
Cropping, clipping and rounding are left to the protocol.
"""

from __future__ import annotations

import math
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.field.namespace import array_namespace

Image = Any  # a NumPy array or a PyTorch tensor

# Rec. 601 luma in the 16…235 range of 8-bit video, as in all published benchmark tables.
Y_WEIGHTS = np.array([65.738, 129.057, 25.064]) / 256

# The luma of YIQ, which GMSD uses.
LUMA_WEIGHTS = np.array([0.299, 0.587, 0.114])


def _pair(image: Image, target: Image) -> tuple[Image, Image]:
    shapes = tuple(image.shape), tuple(target.shape)
    if shapes[0] != shapes[1] or len(shapes[0]) != 3 or shapes[0][2] != 3 or 0 in shapes[0]:
        raise InvalidInput(f"Expected two H×W×3 images of one size, got {shapes[0]} and {shapes[1]}.")
    return image, target


def _weighted(image: Image, weights: NDArray[np.float64]) -> Image:
    """The sum of the channels with these weights, H×W, in float64."""
    xp = array_namespace(image)
    return xp.astype(image, xp.float64) @ xp.asarray(weights, device=array_api_compat.device(image))


def _psnr_of(difference: Image) -> float:
    xp = array_namespace(difference)
    mse = float(xp.mean(xp.astype(difference, xp.float64) ** 2))
    return math.inf if mse == 0 else -10 * math.log10(mse)


def psnr_rgb(image: Image, target: Image) -> float:
    """Peak signal-to-noise ratio in dB over all three channels.

    >>> psnr_rgb(np.full((4, 4, 3), 0.6), np.full((4, 4, 3), 0.5))
    20.0
    """
    a, b = _pair(image, target)
    return _psnr_of(a - b)


def psnr_y(image: Image, target: Image) -> float:
    """Peak signal-to-noise ratio in dB of the luminance Y.

    >>> round(psnr_y(np.full((4, 4, 3), 0.6), np.full((4, 4, 3), 0.5)), 4)
    21.3219
    """
    a, b = _pair(image, target)
    return _psnr_of(_weighted(a - b, Y_WEIGHTS))


def psnr_y8(image: Image, target: Image) -> float:
    """PSNR in dB of Y rounded to 8 bits, as by MATLAB's `rgb2ycbcr` and in tables from before 2020.

    Well-known values, such as 33.66 dB of bicubic on Set5 ×2, include this rounding; without it: 33.68 dB.

    >>> round(psnr_y8(np.full((4, 4, 3), 0.6), np.full((4, 4, 3), 0.4)), 4)  # 147 against 104
    15.4614
    """
    a, b = (255 * _weighted(x, Y_WEIGHTS) + 16.5 for x in _pair(image, target))
    xp = array_namespace(a)
    return _psnr_of((xp.floor(a) - xp.floor(b)) / 255)


def _gaussian_window(sigma: float = 1.5, radius: int = 5) -> list[float]:
    x = np.arange(-radius, radius + 1)
    window = np.exp(-(x**2) / (2 * sigma**2))
    return (window / window.sum()).tolist()


def _smooth(maps: Image, window: list[float]) -> Image:
    """`maps` (H×W×n) convolved with window⊗window, without a border where the window does not fit."""
    height, width = (n - len(window) + 1 for n in maps.shape[:2])
    rows = sum(g * maps[i : i + height] for i, g in enumerate(window))
    return sum(g * rows[:, i : i + width] for i, g in enumerate(window))


def ssim(image: Image, target: Image) -> float:
    """Structural similarity: Gaussian window of σ = 1.5 over 11 pixels, K = (0.01, 0.03), mirrored borders.

    The mean over all pixels and channels, as torchmetrics computes it for a data range of 1.

    >>> x = np.linspace(0, 1, 16 * 16 * 3).reshape(16, 16, 3)
    >>> round(ssim(x, x), 6)
    1.0
    """
    a, b = _pair(image, target)
    xp, (height, width) = array_namespace(a, b), a.shape[:2]
    window = _gaussian_window()
    pad = len(window) // 2
    if min(height, width) <= pad:
        raise InvalidInput(f"SSIM needs images of more than {pad} pixels a side, got {(height, width)}.")
    rows, columns = (np.pad(np.arange(n), pad, mode="reflect") for n in (height, width))
    a, b = (xp.astype(x, xp.float32)[rows][:, columns] for x in (a, b))
    c1, c2 = 0.01**2, 0.03**2
    total = 0.0
    # On a CPU 32 rows at a time, so that intermediate results stay in the processor's cache.
    band = 32 if xp is np else height
    for top in range(0, height, band):
        x, y = (z[top : top + band + 2 * pad] for z in (a, b))
        mean_x, mean_y, xx, yy, xy = (_smooth(z, window) for z in (x, y, x * x, y * y, x * y))
        variances = xp.clip(xx - mean_x**2, 0, None) + xp.clip(yy - mean_y**2, 0, None)
        covariance = xy - mean_x * mean_y
        similarity = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
        similarity /= (mean_x**2 + mean_y**2 + c1) * (variances + c2)
        total += float(xp.sum(similarity, dtype=xp.float64))
    return total / (height * width * 3)


def _gradient_magnitude(luma: Image) -> Image:
    """Prewitt gradient magnitude of the half-size image (H/2×W/2), padded with black."""
    xp = array_namespace(luma)
    height, width = ((n + 1) // 2 for n in luma.shape)
    black = xp.zeros((2 * height + 4, 2 * width + 4), dtype=luma.dtype, device=array_api_compat.device(luma))
    black[2 : 2 + luma.shape[0], 2 : 2 + luma.shape[1]] = luma
    half = (black[::2, ::2] + black[1::2, ::2] + black[::2, 1::2] + black[1::2, 1::2]) / 4
    across = (half[:, :-2] - half[:, 2:]) / 3
    down = (half[:-2] - half[2:]) / 3
    dx = across[:-2] + across[1:-1] + across[2:]
    dy = down[:, :-2] + down[:, 1:-1] + down[:, 2:]
    return xp.sqrt(dx**2 + dy**2)


def gmsd(image: Image, target: Image) -> float:
    """Gradient magnitude similarity deviation (Xue et al. 2013) of the luma, T = 170/255²; lower is better.

    >>> x = np.linspace(0, 1, 16 * 16 * 3).reshape(16, 16, 3)
    >>> gmsd(x, x)
    0.0
    """
    a, b = (_gradient_magnitude(_weighted(x, LUMA_WEIGHTS)) for x in _pair(image, target))
    t = 170 / 255**2
    return float(array_namespace(a).std((2 * a * b + t) / (a**2 + b**2 + t)))
