"""From samples of a picture to light and back, by the numbers that H.273 gives transfer functions."""

import numpy as np
from numpy.typing import NDArray

SRGB, LINEAR, PQ, HLG = 13, 8, 16, 18

_M1, _M2 = 2610 / 16384, 2523 / 32
_C1, _C2, _C3 = 3424 / 4096, 2413 / 128, 2392 / 128
_A, _B, _C = 0.17883277, 0.28466892, 0.55991073


def to_light(values: NDArray[np.float32], transfer: int) -> NDArray[np.float32]:
    """Values in [0, 1] as light in [0, 1]. Other functions than these four count as sRGB's.

    >>> to_light(np.float32([0, 0.5, 1]), SRGB).round(3)
    array([0.   , 0.214, 1.   ], dtype=float32)
    """
    v = np.maximum(values, 0)
    if transfer == LINEAR:
        light = v
    elif transfer == PQ:
        power = v ** (1 / _M2)
        light = (np.maximum(power - _C1, 0) / (_C2 - _C3 * power)) ** (1 / _M1)
    elif transfer == HLG:
        light = np.where(v <= 0.5, v**2 / 3, (np.exp((v - _C) / _A) + _B) / 12)
    else:
        light = np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)
    return light.astype(np.float32)


def from_light(light: NDArray[np.float32], transfer: int) -> NDArray[np.float32]:
    """Light in [0, 1] as values in [0, 1].

    >>> from_light(to_light(np.float32([0, 0.25, 1]), PQ), PQ).round(4)
    array([0.  , 0.25, 1.  ], dtype=float32)
    """
    x: NDArray = np.maximum(light, 0).astype(np.float64)
    if transfer == LINEAR:
        values = x
    elif transfer == PQ:
        power = x**_M1
        values = ((_C1 + _C2 * power) / (1 + _C3 * power)) ** _M2
    elif transfer == HLG:
        bright = _A * np.log(np.maximum(12 * x - _B, 1e-9)) + _C
        values = np.where(x <= 1 / 12, np.sqrt(3 * x), bright)
    else:
        values = np.where(x <= 0.0031308, 12.92 * x, 1.055 * x ** (1 / 2.4) - 0.055)
    return values.astype(np.float32)
