"""JPEG as libjpeg-turbo encodes and decodes it, as tensor operations on whole batches.

Its arithmetic is on integers: colours with 16 binary digits after the point, the accurate ("islow") transform
with 13, and the triangular ("fancy") interpolation of chroma. A pass of the transform is a product with an
integer matrix, then a rounding. Float64 holds these products exactly, so the result is that of the library.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from thera.imaging.traces import LUMINANCE

BLOCK = 8
MCU = 16  # pixels on a side that share one block of chroma in 4:2:0

# The table of the standard's annex K, for quality 50.
CHROMINANCE = (
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99,
    47, 66, *[99] * 38,
)  # fmt: skip

# The transform of sums and of differences of opposite samples, times 2¹³·√8.
EVEN = (
    (8192, 8192, 8192, 8192),
    (10703, 4433, -4433, -10703),
    (8192, -8192, -8192, 8192),
    (4433, -10704, 10704, -4433),
)
ODD = (
    (11363, 9633, 6437, 2260),
    (9633, -2259, -11362, -6436),
    (6437, -11362, 2261, 9633),
    (2260, -6436, 9633, -11363),
)
# Colour conversions, times 2¹⁶.
TO_YCC = (19595, 38470, 7471), (-11059, -21709, 32768), (32768, -27439, -5329)
TO_YCC_OFFSET = 32768, (128 << 16) + 32767, (128 << 16) + 32767


@cache
def _constant(name: str, device: torch.device) -> Tensor:
    """Constants in float64. They are made once: a captured step may not copy from the host."""
    if name == "transform":
        rows = [[*e, *reversed(e)] for e in EVEN], [[*o, *(-v for v in reversed(o))] for o in ODD]
        values = [row for pair in zip(*rows, strict=True) for row in pair]
        return torch.tensor(values, dtype=torch.float64, device=device)
    table = {"colours": TO_YCC, "offsets": TO_YCC_OFFSET, "tables": (LUMINANCE, CHROMINANCE)}[name]
    return torch.tensor(table, dtype=torch.float64, device=device)


def _rounded(x: Tensor) -> Tensor:
    """x rounded to the nearest integer, halves up, in place."""
    return x.add_(0.5).floor_()


def _blocks(x: Tensor) -> Tensor:
    """…×H×W → …×(H/8)×(W/8)×8×8, a view."""
    return x.unflatten(-1, (-1, BLOCK)).unflatten(-3, (-1, BLOCK)).transpose(-3, -2)


def _coded(x: Tensor, table: Tensor) -> Tensor:
    """Levels after the transform, quantisation and their inverses. x: N×…×H×W levels; table: N×…×8×8."""
    m = _constant("transform", x.device)
    blocks = _blocks(x - 128)
    step = table.view(*table.shape[:-2], 1, 1, BLOCK, BLOCK)
    # The factors take off the binary digits after the point, and the 8 that the transform multiplies by.
    levels = _rounded(m * 2.0**-15 @ _rounded(blocks @ (m.T * 2.0**-11))).div_(8 * step)
    levels = levels.add_(levels.sign().mul_(0.5)).trunc_()  # halves away from zero
    decoded = _rounded(_rounded(m.T * 2.0**-11 @ levels.mul_(step)) @ (m * 2.0**-18))
    pixels = decoded.transpose(-3, -2).flatten(-4, -3).flatten(-2, -1)
    return pixels.add_(128).clamp_(0, 255)


def quantisation_tables(quality: Tensor) -> Tensor:
    """N×2×8×8 steps for luminance and chrominance, by libjpeg's quality from 1 to 100 (N whole numbers)."""
    q = quality.double()[:, None, None]
    percent = torch.where(q < 50, torch.floor(5000 / q), 200 - 2 * q)
    scaled = torch.floor((_constant("tables", quality.device) * percent + 50) / 100)
    return scaled.clamp_(1, 255).unflatten(-1, (BLOCK, BLOCK))


def _halved(x: Tensor) -> Tensor:
    """Means of 2×2 levels; halves are rounded down and up in turn along a row."""
    total = F.avg_pool2d(x, 2) * 4
    bias = 1 + torch.arange(total.shape[-1], device=x.device) % 2
    return torch.floor((total + bias) / 4)


def _doubled(x: Tensor) -> Tensor:
    """Each level becomes 2×2: three quarters of it and a quarter of the next, first down, then across."""
    above = torch.cat([x[..., :1, :], x[..., :-1, :]], -2)
    below = torch.cat([x[..., 1:, :], x[..., -1:, :]], -2)
    rows = torch.stack([3 * x + above, 3 * x + below], -2).flatten(-3, -2)
    left = torch.cat([rows[..., :1], rows[..., :-1]], -1)
    right = torch.cat([rows[..., 1:], rows[..., -1:]], -1)
    return torch.stack(
        [torch.floor((3 * rows + left + 8) / 16), torch.floor((3 * rows + right + 7) / 16)], -1
    ).flatten(-2)


def jpeg(image: Tensor, quality: Tensor, halved: Tensor) -> Tensor:
    """N×3×H×W levels (0 … 255, whole numbers) after JPEG at N qualities; 4:2:0 where `halved`, else 4:4:4.

    H and W are multiples of 16.
    """
    tables = quantisation_tables(quality)
    rgb = image.double().permute(0, 2, 3, 1)
    ycc = torch.floor(
        (rgb @ _constant("colours", image.device).T + _constant("offsets", image.device)) / 65536
    )
    ycc = ycc.permute(0, 3, 1, 2)
    both = tables[:, 1:].expand(-1, 2, -1, -1)
    full = _coded(ycc, torch.cat([tables[:, :1], both], 1))
    chroma = _doubled(_coded(_halved(ycc[:, 1:]), both))
    cb, cr = (torch.where(halved.view(-1, 1, 1, 1), chroma, full[:, 1:]) - 128).unbind(1)
    y = full[:, 0]
    red, blue = y + _rounded(cr * (91881 / 65536)), y + _rounded(cb * (116130 / 65536))
    green = y + _rounded(cb * (-22554 / 65536) - cr * (46802 / 65536))
    return torch.stack([red, green, blue], 1).clamp_(0, 255).to(image.dtype)


def jpeg_of_crop(image: Tensor, quality: Tensor, halved: Tensor, offset: Tensor) -> Tensor:
    """`jpeg` of pictures of any size P×P that begin `offset` (N×2, in 0 … 15) pixels after the block grid.

    What lies around a picture repeats its border, as at the edge of a file.
    """
    P = image.shape[-1]
    side = -(-(P + MCU - 1) // MCU) * MCU
    at = torch.arange(side, device=image.device)
    wide = (at - offset[..., None]).clamp_(0, P - 1)  # N×2×side
    rows, columns = wide[:, 0, None, :, None], wide[:, 1, None, None, :]
    canvas = image.gather(2, rows.expand(-1, 3, -1, P)).gather(3, columns.expand(-1, 3, side, -1))
    coded = jpeg(canvas, quality, halved)
    back = torch.arange(P, device=image.device) + offset[..., None]  # N×2×P
    rows, columns = back[:, 0, None, :, None], back[:, 1, None, None, :]
    return coded.gather(2, rows.expand(-1, 3, -1, side)).gather(3, columns.expand(-1, 3, P, -1))
