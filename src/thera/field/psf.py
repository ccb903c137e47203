"""Filters: the point spread functions of output pixels.

Multiplying a sinusoid by the filter's transfer function is an exact convolution. So a filter is a function of
the frequency in the output, ν = Jᵀw in radians per output pixel. The columns of J are the sides of an output
pixel in input pixels (diag(1/s₁, 1/s₂) for a resize). The output's Nyquist frequency is |ν| = π.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import array_api_compat
import numpy as np

from thera.errors import InvalidInput
from thera.field.namespace import array_namespace

Array = Any  # a NumPy or torch array; see array-api-compat
FilterName = Literal["gaussian", "box", "butterworth", "ideal", "none"]

# The paper's κ: a Gaussian of covariance 2κ passes half of the amplitude at the Nyquist frequency. A trained
# κ is smaller and passes ¾ there, which would let a downscaled picture alias.
NYQUIST_KAPPA = math.log(4) / (2 * math.pi**2)

FINEST = 1 / 8  # in input pixels; networks are trained at scales below ×8
# Zeros of jinc(r) = 2 J₁(πr) / (πr), the transform of a disc of diameter 1.
JINC_ZEROS = (1.2196699, 2.2331306, 3.2383155)


class Filter(ABC):
    """A point spread function, given by its transfer function."""

    @property
    def footprint(self) -> float | None:
        """Its size in output pixels, or None if it never reaches beyond one cell.

        A footprint larger than an input pixel averages several cells (see `spread`).
        """
        return 1.0

    @property
    def finest(self) -> float:
        """Output pixels smaller than this, in input pixels, use this size and blend cells at their borders
        (`grid.blend_cells`). At 0 there is no smallest size and no blending."""
        return 0.0

    @property
    def neighbours(self) -> int:
        """The cells on each side of its own that an output pixel is decoded from: 0 for a heat field."""
        return 0

    @abstractmethod
    def response(self, nu1: Array, nu2: Array, kappa: float) -> Array:
        """The gain at the frequencies ν₁ (down the rows) and ν₂ (along the columns)."""

    def transfer(self, components: Array, jacobian: Array, kappa: float) -> Array:
        """The gain of each component: (2, c) and (..., 2, 2) to (..., c)."""
        w1, w2 = components[0, :], components[1, :]
        # ν = Jᵀw, not as a matrix product, which a GPU may compute in lower precision.
        nu1 = jacobian[..., 0, 0, None] * w1 + jacobian[..., 1, 0, None] * w2
        nu2 = jacobian[..., 0, 1, None] * w1 + jacobian[..., 1, 1, None] * w2
        return self.response(nu1, nu2, kappa)

    def variance(self, size: Array, kappa: float) -> Array:
        """Variance, in input pixels², of a footprint of `size` input pixels.

        It uses the field's own κ up to one input pixel, and the paper's beyond.
        """
        return 2 * kappa * np.minimum(size, 1) ** 2 + 2 * NYQUIST_KAPPA * (np.maximum(size, 1) ** 2 - 1)

    def spread(
        self, distance: np.ndarray, size: float, fine: float, kappa: float, order: int
    ) -> list[np.ndarray]:
        """Weights, up to a common factor, of samples at `distance` input pixels from an output pixel, and
        their derivatives by the output pixel's position up to `order`.

        `size` is the footprint and `fine` the samples' spacing, both in input pixels. The samples are already
        filtered with a footprint of `fine`. The rest of the filter is a Gaussian, also for filters without a
        spatial form.
        """
        sigma = self.remaining(size, fine, kappa)
        weight = np.exp(-0.5 * (distance / sigma) ** 2)
        hermite = [np.polynomial.hermite_e.HermiteE.basis(k) for k in range(order + 1)]
        return [weight * hermite[k](distance / sigma) / sigma**k for k in range(order + 1)]

    def radius(self, size: float, fine: float, kappa: float) -> float:
        """The distance in input pixels beyond which `spread` is negligible (3e-4 of its peak)."""
        return 4 * self.remaining(size, fine, kappa)

    def remaining(self, size: Array, fine: Array, kappa: float) -> Array:
        """Standard deviation still to apply to samples of footprint `fine` for a footprint of `size`."""
        return np.sqrt(self.variance(size, kappa) - self.variance(fine, kappa))


@dataclass(frozen=True)
class Gaussian(Filter):
    """The paper's heat kernel, of covariance 2κ·bandwidth²·JJᵀ: t = 1/s² at scale s.

    `bandwidth` below 1 sharpens, above 1 blurs. `t` sets the paper's t instead, whatever the scale: each cell
    shows its own Φ(x, t), as in the published code.

    >>> Gaussian(bandwidth=0.8)
    Gaussian(bandwidth=0.8, t=None)
    """

    bandwidth: float = 1.0
    t: float | None = None

    def __post_init__(self) -> None:
        _require_positive("bandwidth", self.bandwidth)
        if self.t is not None and not (math.isfinite(self.t) and self.t >= 0):
            raise InvalidInput(f"Gaussian got t={self.t!r}; t must be a finite number of at least 0.")

    @property
    def footprint(self) -> float | None:
        return self.bandwidth if self.t is None else None

    def transfer(self, components: Array, jacobian: Array, kappa: float) -> Array:
        if self.t is None:
            return super().transfer(components, jacobian, kappa)
        xp = array_namespace(components, jacobian)
        return xp.exp(-kappa * self.t * xp.sum(components**2, axis=0))

    def response(self, nu1: Array, nu2: Array, kappa: float) -> Array:
        xp = array_namespace(nu1)
        return xp.exp(-kappa * self.bandwidth**2 * (nu1**2 + nu2**2))


@dataclass(frozen=True)
class Seamless(Gaussian):
    """The Gaussian, but without noise and seams beyond ×8.

    A network learns each cell by itself, at scales below ×8. Finer detail in its field is noise, and the
    field may jump by a grey level or two from cell to cell. So output pixels smaller than `finest` use that
    size, and cells are blended over a fifth of their width.
    """

    @property
    def finest(self) -> float:
        return FINEST if self.t is None else 0.0


@dataclass(frozen=True)
class Covariance(Gaussian):
    """The Gaussian with exactly the covariance 2κJJᵀ, also where it is larger than an input pixel."""

    def variance(self, size: Array, kappa: float) -> Array:
        return 2 * kappa * size**2


@dataclass(frozen=True)
class Lanczos(Seamless):
    """Crisp when scaling down: it keeps nearly all that the output can show, and nearly nothing beyond.

    Footprints larger than an input pixel use the weights of `falloff` by the distance in output pixels: the
    kernel that passes the disc of frequencies up to Nyquist's, windowed by its own main lobe. It dips below
    0, so hard edges ring. Smaller footprints are those of `Seamless`.

    >>> Lanczos().falloff(np.array([0.0, 1.0, 4.0])).round(3)
    array([1.   , 0.151, 0.   ])
    """

    def radius(self, size: float, fine: float, kappa: float) -> float:
        return JINC_ZEROS[-1] * size

    def falloff(self, distance: np.ndarray) -> np.ndarray:
        """jinc(r) · jinc(r·z₁/z₃) up to the third zero z₃ of jinc."""
        return np.interp(distance, *_lanczos_table())

    def spread(
        self, distance: np.ndarray, size: float, fine: float, kappa: float, order: int
    ) -> list[np.ndarray]:
        """On a regular grid, sinc(x) · sinc(x/3) along each axis; for derivatives the Gaussian's weights."""
        if order:
            return super().spread(distance, size, fine, kappa, order)
        x = distance / size
        return [np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)]


@dataclass(frozen=True)
class Box(Filter):
    """The mean over an area of `width`×`width` output pixels: at width 1, a sensor without gaps.

    >>> Box(2.0).response(np.asarray([0.0, np.pi]), np.zeros(2), 0.03).round(6)
    array([1., 0.])
    """

    width: float = 1.0

    def __post_init__(self) -> None:
        _require_positive("width", self.width)

    @property
    def footprint(self) -> float:
        return self.width

    def response(self, nu1: Array, nu2: Array, kappa: float) -> Array:
        return _sinc(nu1 * self.width / 2) * _sinc(nu2 * self.width / 2)

    def spread(
        self, distance: np.ndarray, size: float, fine: float, kappa: float, order: int
    ) -> list[np.ndarray]:
        """The area of each sample within the box; for derivatives the Gaussian's weights."""
        if order:
            return super().spread(distance, size, fine, kappa, order)
        overlap = np.minimum(size / 2, distance + fine / 2) - np.maximum(-size / 2, distance - fine / 2)
        return [np.maximum(overlap, 0)]


@dataclass(frozen=True)
class Butterworth(Filter):
    """A maximally flat low-pass: half the power at `cutoff`, relative to the output's Nyquist frequency.

    >>> Butterworth(order=3).response(np.asarray([0.0, np.pi]), np.zeros(2), 0.03).round(4)
    array([1.    , 0.7071])
    """

    order: int = 2
    cutoff: float = 1.0

    def __post_init__(self) -> None:
        _require_positive("order", self.order)
        _require_positive("cutoff", self.cutoff)

    def response(self, nu1: Array, nu2: Array, kappa: float) -> Array:
        relative = (nu1**2 + nu2**2) / (math.pi * self.cutoff) ** 2
        return (1 + relative**self.order) ** -0.5


@dataclass(frozen=True)
class Ideal(Filter):
    """Passes every frequency up to `cutoff`, relative to the output's Nyquist frequency, and none beyond."""

    cutoff: float = 1.0

    def __post_init__(self) -> None:
        _require_positive("cutoff", self.cutoff)

    def response(self, nu1: Array, nu2: Array, kappa: float) -> Array:
        xp = array_namespace(nu1)
        return xp.astype(nu1**2 + nu2**2 <= (math.pi * self.cutoff) ** 2, nu1.dtype)


@dataclass(frozen=True)
class Point(Filter):
    """No filter: the field as it is, t = 0. It aliases wherever the output is too coarse for the field."""

    @property
    def footprint(self) -> None:
        return None

    def response(self, nu1: Array, nu2: Array, kappa: float) -> Array:
        xp = array_namespace(nu1)
        return xp.ones_like(nu1)


@dataclass(frozen=True)
class Transfer(Filter):
    """Any transfer function g(ν₁, ν₂), vectorised over NumPy arrays of radians per output pixel.

    >>> diagonal = Transfer(lambda nu1, nu2: np.exp(-0.1 * (nu1 + nu2) ** 2))
    """

    function: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def response(self, nu1: Array, nu2: Array, kappa: float) -> Array:
        xp = array_namespace(nu1)
        factor = np.asarray(self.function(to_numpy(nu1), to_numpy(nu2)))
        if factor.shape != tuple(nu1.shape) or not np.isrealobj(factor) or not np.all(np.isfinite(factor)):
            raise InvalidInput(
                f"The filter {self.function!r} gave {factor.dtype} values of shape {factor.shape} for "
                f"frequencies of shape {tuple(nu1.shape)}; it must give one finite real factor for each."
            )
        return xp.asarray(factor, dtype=nu1.dtype, device=array_api_compat.device(nu1))


def as_filter(psf: object) -> Filter:
    """The filter that a `psf` argument means: `Gaussian()` for None, `Transfer` for a function."""
    if psf is None:
        return Gaussian()
    if isinstance(psf, Filter):
        return psf
    if isinstance(psf, type) or not callable(psf):
        raise InvalidInput(
            f"psf={psf!r} is not a filter; give thera.Gaussian(), Lanczos(), Box(), Butterworth(), Ideal(), "
            "Point() or a function of the frequencies (ν₁, ν₂)."
        )
    return Transfer(psf)


def filter_of(shape: str | None, sharpness: float) -> Filter | None:
    """The filter of a name and a sharpness; None stands for the model's own.

    >>> filter_of("box", 2)
    Box(width=0.5)
    """
    if not 0.05 <= sharpness <= 20:
        raise InvalidInput(f"A sharpness of {sharpness:g} cannot be used: give a number from 0.05 to 20.")
    if shape is None:
        return None if sharpness == 1 else Seamless(1 / sharpness)
    if shape in ("box", "gaussian"):
        return (Box if shape == "box" else Gaussian)(1 / sharpness)
    if shape == "none":
        return Point()
    return Ideal(sharpness) if shape == "ideal" else Butterworth(cutoff=sharpness)


def page_filter(name: FilterName, sharpness: float) -> Filter | None:
    """The filter that a page calls by this name: its Gaussian is the model's own, without seams."""
    return filter_of(None if name == "gaussian" else name, sharpness)


def to_numpy(array: Array) -> np.ndarray:
    """The same values as a NumPy array, from any device."""
    if array_api_compat.is_torch_array(array):
        array = array.detach().cpu()
    return np.asarray(array)


@lru_cache
def _lanczos_table() -> tuple[np.ndarray, np.ndarray]:
    """Distances, and the weights of `Lanczos` at them."""
    r = np.linspace(0, JINC_ZEROS[-1], 2049)
    weight = _jinc(r) * _jinc(r * JINC_ZEROS[0] / JINC_ZEROS[-1])
    weight[-1] = 0.0  # and beyond
    return r, weight


def _jinc(r: np.ndarray) -> np.ndarray:
    """2 J₁(πr) / (πr), by J₁(x) = mean of cos(τ - x sin τ) over half a turn."""
    x = np.pi * np.maximum(r, 1e-9)
    tau = (np.arange(256) + 0.5) * (np.pi / 256)
    return 2 * np.cos(tau - x[:, None] * np.sin(tau)).mean(axis=1) / x


def _sinc(z: Array) -> Array:
    """sin z / z."""
    xp = array_namespace(z)
    nonzero = xp.where(z == 0, xp.ones_like(z), z)
    return xp.where(z == 0, xp.ones_like(z), xp.sin(nonzero) / nonzero)


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"The filter got {name}={value!r}; it must be a finite number above 0.")
