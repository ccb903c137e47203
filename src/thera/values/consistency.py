"""Results that agree with their input: the mean over an input pixel is that pixel's value, or near to it."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput

#: Passes in which integers at the end of their type hand on what they cannot take.
PASSES = 8
#: Input pixels around a window that `cubic_slack` looks at: two for the kernel, one for the mean.
AROUND = 3


def whole_factors(source: tuple[int, int], size: tuple[int, int]) -> tuple[int, int] | None:
    """How many output pixels lie along each side of an input pixel; None if they do not fit in it."""
    if any(N % n for n, N in zip(source, size, strict=True)):
        return None
    return size[0] // source[0], size[1] // source[1]


def check_whole(source: tuple[int, int], size: tuple[int, int]) -> None:
    """Refuses sizes at which output pixels lie in several input pixels."""
    if whole_factors(source, size) is None:
        raise InvalidInput(
            f"{source[1]}×{source[0]} to {size[1]}×{size[0]} is no whole-number scale, which consistent"
            " results need: choose one like 2 or 3."
        )


def with_means(output: NDArray, samples: NDArray, slack: NDArray | None = None) -> NDArray:
    """Output samples, changed so that their mean over each block is its input sample, h×w×n.

    All pixels of a block change by the same amount, which is the smallest change there is. Integers reach the
    mean exactly, except where the ends of their type are in the way. `slack`, h×w×n: means that differ by no
    more are left as they are, and others come as near as that.

    >>> with_means(np.uint8([[[3], [5]], [[3], [6]]]), np.uint8([[[5]]]))[..., 0]
    array([[4, 6],
           [4, 6]], dtype=uint8)
    """
    h, w, n = samples.shape
    a, b = output.shape[0] // h, output.shape[1] // w
    blocks = output.reshape(h, a, w, b, n)
    if output.dtype.kind == "f":
        missing = samples - blocks.mean(axis=(1, 3), dtype=np.float64)
        if slack is not None:
            missing -= np.clip(missing, -slack, slack)
        return (blocks + missing[:, None, :, None]).astype(output.dtype).reshape(output.shape)
    limits = np.iinfo(output.dtype)
    # Half the time with short integers, where they hold the sums.
    integer = np.dtype("i4" if output.dtype.itemsize <= 2 and a * b < 1 << 12 else "i8")
    target: NDArray = samples.astype(integer) * (a * b)
    sums: NDArray = np.zeros(samples.shape, integer)
    for i in range(a):
        for j in range(b):
            sums += blocks[:, i, :, j]
    if slack is not None:
        most = np.floor(slack * (a * b)).astype(integer)
        target = np.clip(sums, target - most, target + most)
    changed = np.nonzero(target != sums)
    result = blocks.copy()
    wide: NDArray = result[changed[0], :, changed[1], :, changed[2]].reshape(-1, a * b).astype(integer)
    for _ in range(PASSES):
        missing = target[changed][:, None] - wide.sum(axis=-1, keepdims=True)
        if not missing.any():
            break
        free = np.where(missing > 0, wide < limits.max, (wide > limits.min) & (missing < 0))
        each, rest = np.divmod(missing, np.maximum(free.sum(axis=-1, keepdims=True), 1))
        wide += free * (each + (np.cumsum(free, axis=-1) <= rest))
        np.clip(wide, limits.min, limits.max, out=wide)
    result[changed[0], :, changed[1], :, changed[2]] = wide.reshape(-1, a, b)
    return result.reshape(output.shape)


def cubic_slack(values: NDArray[np.float32], factors: tuple[int, int]) -> NDArray[np.float32]:
    """How much the means over input pixels differ from them in cubic interpolation, without `AROUND` borders.

    It is the root mean square over 3×3 pixels. So results that differ by no more at every pixel differ by no
    more than cubic interpolation over the whole picture, but for its border, where outer pixels count twice.
    """
    means = values
    for axis, factor in enumerate(factors):
        means = _along(means, axis, _cubic_means(factor))
    squares = np.square(means - values[2:-2, 2:-2])
    for axis in (0, 1):
        squares = _along(squares, axis, (1 / 3, 1 / 3, 1 / 3))
    return np.sqrt(squares)


def _along(values: NDArray, axis: int, weights: tuple[float, ...]) -> NDArray:
    """Values filtered along an axis, where all taps are inside."""
    moved = np.moveaxis(values, axis, 0)
    length = len(moved) - len(weights) + 1
    total = np.zeros((length, *moved.shape[1:]), values.dtype)
    for i, weight in enumerate(weights):
        total += values.dtype.type(weight) * moved[i : i + length]
    return np.moveaxis(total, 0, axis)


@lru_cache
def _cubic_means(factor: int) -> tuple[float, ...]:
    """Weights of five pixels in the mean of `factor` pixels that cubic interpolation puts in the third."""
    at = np.abs(np.arange(-2, 3) - ((np.arange(factor) + 0.5) / factor - 0.5)[:, None])
    near, far = (1.5 * at - 2.5) * at**2 + 1, ((-0.5 * at + 2.5) * at - 4) * at + 2
    return tuple(np.where(at < 1, near, np.where(at < 2, far, 0)).mean(axis=0).tolist())
