"""Results that agree with their input: the mean over an input pixel is that pixel's own value."""

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput

#: Passes in which integers at the end of their type hand on what they cannot take.
PASSES = 8


def whole_factors(source: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """How many output pixels lie along each side of an input pixel, or an error if they do not fit in it."""
    if any(N % n for n, N in zip(source, size, strict=True)):
        raise InvalidInput(
            f"{source[1]}×{source[0]} to {size[1]}×{size[0]} is no whole-number scale, which consistent"
            " results need: choose one like 2 or 3."
        )
    return size[0] // source[0], size[1] // source[1]


def with_means(output: NDArray, samples: NDArray) -> NDArray:
    """Output samples, changed so that their mean over each block is its input sample, h×w×n.

    All pixels of a block change by the same amount, which is the smallest change there is. Integers reach the
    mean exactly, except where the ends of their type are in the way.

    >>> with_means(np.uint8([[[3], [5]], [[3], [6]]]), np.uint8([[[5]]]))[..., 0]
    array([[4, 6],
           [4, 6]], dtype=uint8)
    """
    h, w, n = samples.shape
    a, b = output.shape[0] // h, output.shape[1] // w
    blocks = output.reshape(h, a, w, b, n)
    if output.dtype.kind == "f":
        missing = samples - blocks.mean(axis=(1, 3), dtype=np.float64)
        return (blocks + missing[:, None, :, None]).astype(output.dtype).reshape(output.shape)
    limits = np.iinfo(output.dtype)
    wide = blocks.transpose(0, 2, 4, 1, 3).reshape(h, w, n, a * b).astype(np.int64)
    for _ in range(PASSES):
        missing = (samples.astype(np.int64) * (a * b) - wide.sum(axis=-1))[..., None]
        if not missing.any():
            break
        free = np.where(missing > 0, wide < limits.max, (wide > limits.min) & (missing < 0))
        each, rest = np.divmod(missing, np.maximum(free.sum(axis=-1, keepdims=True), 1))
        wide += free * (each + (np.cumsum(free, axis=-1) <= rest))
        np.clip(wide, limits.min, limits.max, out=wide)
    back = wide.reshape(h, w, n, a, b).transpose(0, 3, 1, 4, 2)
    return back.astype(output.dtype).reshape(output.shape)
