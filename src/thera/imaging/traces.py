"""What a picture shows of its past: JPEG's quantisation, edges on its grid of blocks, noise.

By these `--model auto` chooses between a clean model and one that restores.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .picture import Picture

GRID = 8  # pixels between the edges of JPEG's blocks
PATCH = 16  # pixels on a side whose noise is measured together
FEWEST = 128  # pixels on a side in which a grid can be told from the picture's own edges
QUIETEST = 0.25  # share of the patches that show noise rather than texture
LOOKED_AT = 2048  # pixels on a side, at most: the middle of a larger picture says enough

# Beyond these a picture is restored. They leave JPEGs of quality 95 and clean photographs as they are.
MOST_QUALITY, MOST_BLOCKS, MOST_NOISE = 92, 1.12, 2.0


class Traces(NamedTuple):
    """`quality`: of the JPEG file, as libjpeg counts it; None for other files.

    `blocks`: the steps across the edges of 8×8 blocks over those elsewhere: 1 if there are no blocks.
    `noise`: its standard deviation, of 255.
    """

    quality: int | None
    blocks: float
    noise: float

    def reason(self) -> str | None:
        """Why the picture should be restored, or None if it is clean."""
        if self.quality is not None and self.quality <= MOST_QUALITY:
            return f"a JPEG of quality {self.quality}"
        if self.blocks > MOST_BLOCKS:
            return f"JPEG blocks show, {self.blocks - 1:.0%} above the rest"
        if self.noise > MOST_NOISE:
            return f"noise of {self.noise:.1f}/255"
        return None

    def __str__(self) -> str:
        coded = "no JPEG" if self.quality is None else f"a JPEG of quality {self.quality}"
        return f"{coded}, blocks {self.blocks - 1:+.0%}, noise {self.noise:.1f}/255"


def traces(path: Path, picture: Picture) -> Traces:
    """The traces of a picture that was read from a file."""
    height, width = picture.layout.size
    top, left = (max(0, (n - LOOKED_AT) // 2 // GRID * GRID) for n in (height, width))
    samples = picture.samples[top : top + LOOKED_AT, left : left + LOOKED_AT]
    if picture.alpha:
        samples = samples[..., :-1]
    dtype = picture.samples.dtype
    level = 255 / np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else 255.0
    grey = level * samples.mean(axis=-1, dtype=np.float32)
    green = level * samples[..., samples.shape[-1] // 2].astype(np.float32)  # a mean would hide noise
    return Traces(jpeg_quality(path), blocks(grey), noise(green))


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


def blocks(grey: NDArray[np.float32]) -> float:
    """The mean step between neighbours across a grid of 8 pixels, over the median of its seven shifts.

    The grid with the largest steps counts, since pictures are cropped. Both axes must show it.
    """
    found = []
    for axis in (0, 1):
        if grey.shape[axis] < FEWEST:
            return 1.0
        steps = np.abs(np.diff(grey, axis=axis)).mean(axis=1 - axis)
        steps = steps[: len(steps) // GRID * GRID].reshape(-1, GRID).mean(axis=0)
        found.append(float(steps.max() / max(np.median(steps), 1e-3)))
    return min(found)


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
