"""From samples of a picture to light and back, by the numbers that H.273 gives transfer functions."""

import numpy as np
from numpy.typing import NDArray

SRGB, LINEAR, PQ, HLG = 13, 8, 16, 18

_M1, _M2 = 2610 / 16384, 2523 / 32
_C1, _C2, _C3 = 3424 / 4096, 2413 / 128, 2392 / 128
_A, _B, _C = 0.17883277, 0.28466892, 0.55991073
#: White paper, as a part of the brightest light that PQ and HLG can say (ITU-R BT.2408): 203 cd/m² of 10,000
#: in PQ, and the light of a signal of 75 % in HLG.
WHITE = {PQ: 0.0203, HLG: 0.26496256}


def to_light(values: NDArray[np.float32], transfer: int) -> NDArray[np.float32]:
    """Values, black at 0, as light, white paper at 1. Other functions than these four count as sRGB's.

    PQ and HLG end at values of 0 and 1. sRGB goes on above white, and below black as its mirror image.

    >>> to_light(np.float32([0, 0.5, 1]), SRGB).round(3)
    array([0.   , 0.214, 1.   ], dtype=float32)
    """
    if transfer == LINEAR:
        return values
    # PQ's powers need float64.
    v: NDArray = np.clip(values, 0, 1, dtype=np.float64) if transfer in WHITE else np.abs(values)
    if transfer == PQ:
        power = v ** (1 / _M2)
        light = (np.maximum(power - _C1, 0) / (_C2 - _C3 * power)) ** (1 / _M1)
    elif transfer == HLG:
        light = np.where(v <= 0.5, v**2 / 3, (np.exp((v - _C) / _A) + _B) / 12)
    else:
        light = np.copysign(np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4), values)
    return (light / WHITE.get(transfer, 1.0)).astype(np.float32)


def from_light(light: NDArray[np.float32], transfer: int) -> NDArray[np.float32]:
    """Light, white paper at 1, as values. Undoes `to_light`.

    >>> from_light(to_light(np.float32([0, 0.25, 1]), PQ), PQ).round(4)
    array([0.  , 0.25, 1.  ], dtype=float32)
    """
    if transfer == LINEAR:
        return light
    x: NDArray = np.abs(light)
    if transfer in WHITE:
        x = WHITE[transfer] * np.maximum(light, 0, dtype=np.float64)
    if transfer == PQ:
        power = x**_M1
        values = ((_C1 + _C2 * power) / (1 + _C3 * power)) ** _M2
    elif transfer == HLG:
        bright = _A * np.log(np.maximum(12 * x - _B, 1e-9)) + _C
        values = np.where(x <= 1 / 12, np.sqrt(3 * x), bright)
    else:
        values = np.copysign(np.where(x <= 0.0031308, 12.92 * x, 1.055 * x ** (1 / 2.4) - 0.055), light)
    return values.astype(np.float32)


def recoded(values: NDArray[np.float32], old: int, new: int) -> NDArray[np.float32]:
    """Values of one transfer function as those of another, for the same light."""
    return values if old == new else from_light(to_light(values, old), new)
