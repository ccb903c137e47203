"""What a picture shows of its past: the quality of a JPEG, zeros on the grid of its blocks, noise.

By these `--model auto` chooses between a clean model and one that restores.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .picture import Picture

GRID = 8  # pixels on a side of JPEG's blocks
PATCH = 16  # pixels on a side whose noise is measured together
FEWEST = 64  # pixels on a side in which a grid and noise can be told from the picture itself
FEWEST_BLOCKS = 40  # with something in them, to tell a grid
EMPTY, FLAT = 0.6, 2.0  # coefficients below are zeros that were rounded; blocks without larger ones are flat
QUIETEST = 0.25  # share of the patches that show noise rather than texture
LOOKED_AT = 2048  # pixels on a side, at most: the middle of a larger picture says enough
LOOKED_AT_FOR_GRID = 1024

# Beyond these a picture is restored. Chosen on held-out pictures: docs/models.md.
MOST_GRID, MOST_NOISE = 0.025, 1.0
DITHERED = 15.0  # of 255: models that restore have seen noise up to 10, and more of it is a pattern of dots


class Traces(NamedTuple):
    """`quality`: of the JPEG file, as libjpeg counts it; None for other files.

    `grid`: how clearly the coefficients show JPEG's grid, also in a file of another kind: 0 without one.
    `noise`: its standard deviation, of 255. `small`: too few pixels to tell grid and noise; both are 0.
    `codec`: the name of another lossy format that the file has.
    """

    quality: int | None
    grid: float
    noise: float
    small: bool = False
    codec: str | None = None

    def reason(self) -> str | None:
        """Why the picture should be restored, or None if it should not."""
        if self.quality is not None:
            return f"it is a JPEG of quality {self.quality}"
        if self.codec is not None:
            return f"it is a lossy {self.codec}"
        if self.grid > MOST_GRID:
            return "a grid of 8×8 blocks shows, as JPEG leaves it"
        if MOST_NOISE < self.noise <= DITHERED:
            return f"it has noise of {self.noise:.1f}/255"
        return None

    def __str__(self) -> str:
        """Why the picture is left as it is."""
        if self.small:
            return f"it is too small to tell if it is clean (under {FEWEST} pixels)"
        if self.noise > DITHERED:
            return f"its noise of {self.noise:.0f}/255 is taken for dots of the picture"
        return f"it shows no blocks and little noise ({self.noise:.1f}/255)"


def traces(path: Path, picture: Picture) -> Traces:
    """The traces of a picture that was read from a file."""
    quality, (height, width) = jpeg_quality(path), picture.layout.size
    codec = lossy_codec(path) if picture.samples.dtype == np.uint8 else None
    if min(height, width) < FEWEST:
        return Traces(quality, 0.0, 0.0, small=True, codec=codec)
    samples = _middle(picture.samples[..., :-1] if picture.alpha else picture.samples, LOOKED_AT)
    dtype = picture.samples.dtype
    level = 255 / np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else 255.0
    coded = _middle(samples, LOOKED_AT_FOR_GRID).astype(np.float32)
    brightness = (level * (coded @ BRIGHTNESS if coded.shape[-1] == 3 else coded[..., 0])).astype(np.float32)
    green = level * samples[..., samples.shape[-1] // 2].astype(np.float32)  # a mean would hide noise
    return Traces(quality, grid(brightness), noise(green), codec=codec)


def _middle(samples: NDArray, side: int) -> NDArray:
    top, left = (max(0, (n - side) // 2) for n in samples.shape[:2])
    return samples[top : top + side, left : left + side]


def lossy_codec(path: Path) -> str | None:
    """WebP or AVIF, if the file is one that lost something."""
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WebP" if b"VP8 " in head else None
    if head[4:12] == b"ftypavif":
        at = head.find(b"colrnclx")
        lossless = 0 <= at < len(head) - 14 and head[at + 12 : at + 14] == b"\0\0"  # RGB as it is
        return None if lossless else "AVIF"
    return None


def jpeg_quality(path: Path) -> int | None:
    """The quality of a JPEG file, from the sum of its luminance steps; None for other files.

    Other encoders than libjpeg have other tables: for them it is the nearest quality of libjpeg's.
    """
    from PIL.JpegImagePlugin import JpegImageFile

    try:
        with JpegImageFile(path) as image:  # Image.open would refuse large ones, and try other formats
            tables = image.quantization
    except (OSError, ValueError, SyntaxError):
        return None  # it is no JPEG
    if not tables:
        return None
    total = sum(tables[min(tables)])
    return min(range(1, 101), key=lambda quality: (abs(sum(luminance_table(quality)) - total), -quality))


def luminance_table(quality: int) -> list[int]:
    """libjpeg's 64 steps for luminance, row by row.

    >>> luminance_table(50)[:3], luminance_table(90)[:3]
    ([16, 11, 10], [3, 2, 2])
    """
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return [min(max((step * percent + 50) // 100, 1), 255) for step in LUMINANCE]


# The table of the standard's annex K, for quality 50.
LUMINANCE = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip


BRIGHTNESS = np.array([0.299, 0.587, 0.114], np.float32)  # JPEG's Y
_k, _i = np.mgrid[:GRID, :GRID]
_COSINES = np.sqrt(np.where(_k, 2, 1) / GRID) * np.cos(np.pi * (2 * _i + 1) * _k / (2 * GRID))
TRANSFORM = np.kron(_COSINES, _COSINES).T.astype(np.float32)  # of a block of 64 pixels


def grid(brightness: NDArray[np.float32]) -> float:
    """The share of a block's coefficients that are zero on the best of 64 grids, minus that on the second.

    JPEG rounds most coefficients to zero, and they stay zero only on its own grid, whatever file the pixels
    are stored in later. Flat blocks are left out: drawings on a grid of their own have many of them.
    """
    height, width = ((n - GRID + 1) // GRID * GRID for n in brightness.shape)
    zeros = [0.0, 0.0]
    for top, left in np.ndindex(GRID, GRID):
        here = brightness[top : top + height, left : left + width]
        pixels = here.reshape(height // GRID, GRID, width // GRID, GRID).swapaxes(1, 2).reshape(-1, GRID**2)
        coefficients = np.abs(pixels @ TRANSFORM)[:, 1:]
        full = coefficients[coefficients.max(axis=1) > FLAT]
        zeros.append(float((full < EMPTY).mean()) if len(full) >= FEWEST_BLOCKS else 0.0)
    second, best = sorted(zeros)[-2:]
    return best - second


def noise(grey: NDArray[np.float32]) -> float:
    """The standard deviation of noise in the quietest patches.

    Means of 2×2 pixels have half of the noise, but at least as much texture: what the differences between
    neighbours lose by them is noise. The differences cancel ramps.
    """
    height, width = (n // PATCH * PATCH for n in grey.shape)
    if not (height and width):
        return 0.0
    fine = grey[:height, :width]
    coarse = fine.reshape(height // 2, 2, width // 2, 2).mean(axis=(1, 3))
    energy = [_energy(level, side) for level, side in ((fine, PATCH), (coarse, PATCH // 2))]
    lost = (energy[0] - energy[1]).ravel() / 0.75
    quiet = lost[energy[0].ravel() <= np.quantile(energy[0], QUIETEST)]
    return float(np.sqrt(max(np.median(quiet), 0.0)))


def _energy(grey: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """The mean square of diagonal differences in each patch, which is the variance of white noise."""
    patches = grey.reshape(grey.shape[0] // side, side, -1, side).swapaxes(1, 2)
    return (np.diff(np.diff(patches, axis=2), axis=3) ** 2).mean(axis=(2, 3)) / 4
