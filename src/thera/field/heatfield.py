"""`HeatField`: the continuous picture between encoding and rendering."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypedDict, Unpack

import array_api_compat
import numpy as np

from thera.errors import FieldFileError, InvalidInput
from thera.field import files, render
from thera.field.grid import Axis, axes, output_size
from thera.field.head import Head, float32
from thera.field.namespace import array_namespace
from thera.field.psf import Covariance, Filter, as_filter, to_numpy
from thera.field.warp import as_mapping
from thera.field.wide import Outside, sample

Array = Any  # a NumPy or torch array; see array-api-compat
MEMORY, ACCELERATOR_MEMORY = 256 << 20, 1 << 30  # default working memory in bytes


class RenderOptions(TypedDict, total=False):
    """The options of `HeatField.render` and of the methods that call it."""

    scale: float | Sequence[float] | None
    size: Sequence[int] | None
    region: Sequence[float] | None
    psf: object
    memory: int | None


class HeatField:
    """An H×W grid of local fields, one over the cell of each input pixel, x = (row, column) from its centre:

        Φ(x, t) = I + Σₖ aₖ · exp(-|wₖ|² κ t) · sin(wₖ·x + φₖ)

    | argument | shape | meaning |
    | --- | --- | --- |
    | pixels | H×W×channels | I, the colour each local field oscillates about |
    | features | H×W×C | input of the head, which makes the coefficients; without a head, the coefficients |
    | head_weight, head_bias | C×(channels + 1)c, (channels + 1)c | `features @ head_weight + head_bias` are \
the c×channels amplitudes a (row-major), then the c phases φ |
    | components | 2×c | the frequencies w: down the rows, along the columns; radians per input pixel |
    | kappa | number | the diffusivity κ |

    Arrays are NumPy's or torch's, on any device. Renderings are of the same kind, in float32. Positions
    are (row, column) in input pixels from the top left corner; pixel p spans [p, p + 1).

    >>> rng = np.random.default_rng(0)
    >>> field = HeatField.from_coefficients(
    ...     pixels=rng.random((5, 4, 3)),
    ...     amplitude=0.1 * rng.standard_normal((5, 4, 8, 3)),
    ...     phase=rng.uniform(-np.pi, np.pi, (5, 4, 8)),
    ...     components=rng.uniform(-6, 6, (2, 8)),
    ...     kappa=0.03,
    ... )
    >>> field.render(scale=2.5).shape
    (12, 10, 3)
    """

    def __init__(
        self,
        pixels: Array,
        features: Array,
        head_weight: Array | None,
        head_bias: Array | None,
        components: Array,
        kappa: float,
    ) -> None:
        if (head_weight is None) != (head_bias is None):
            raise InvalidInput("A field got half of a head; give head_weight and head_bias, or neither.")
        _library(pixels=pixels, features=features, head_weight=head_weight, head_bias=head_bias)
        head = Head(head_weight, head_bias, components, kappa)
        self.head, self.pixels, self.features = head, float32(pixels), float32(features)
        self._check()

    @classmethod
    def of(cls, head: Head, pixels: Array, features: Array) -> HeatField:
        """A field with a head, and therefore cached tables, that it shares with other fields."""
        field = cls.__new__(cls)
        field.head, field.pixels, field.features = head, float32(pixels), float32(features)
        field._check()
        return field

    @classmethod
    def from_coefficients(
        cls, pixels: Array, amplitude: Array, phase: Array, components: Array, kappa: float
    ) -> HeatField:
        """A field with known coefficients: pixels H×W×channels, amplitude H×W×c×channels, phase H×W×c."""
        xp = _library(pixels=pixels, amplitude=amplitude, phase=phase)
        if amplitude.ndim != 4 or tuple(phase.shape) != tuple(amplitude.shape[:3]):
            raise InvalidInput(
                f"amplitude has shape {tuple(amplitude.shape)} and phase {tuple(phase.shape)}; "
                "they must be H×W×c×channels and H×W×c."
            )
        H, W = amplitude.shape[:2]
        features = xp.concat([xp.reshape(float32(amplitude), (H, W, -1)), float32(phase)], axis=2)
        return cls(pixels, features, None, None, components, kappa)

    def _check(self) -> None:
        c = self.components.shape[-1]
        if self.components.shape != (2, c) or not np.all(np.isfinite(self.components)):
            raise InvalidInput(f"components of shape {self.components.shape} must be 2×c finite numbers.")
        if not (math.isfinite(self.kappa) and self.kappa >= 0):
            raise InvalidInput(f"kappa={self.kappa!r} must be a finite number of at least 0.")
        if self.pixels.ndim != 3 or min(self.pixels.shape) < 1:
            raise InvalidInput(
                f"pixels of shape {tuple(self.pixels.shape)} must be H×W×channels, all above 0."
            )
        outputs = (self.channels + 1) * c
        width = outputs if self.head_weight is None else self.head_weight.shape[0]
        if tuple(self.features.shape) != (*self.shape, width):
            raise InvalidInput(
                f"features of shape {tuple(self.features.shape)} do not fit; "
                f"with these pixels and this head they must be {(*self.shape, width)}."
            )
        if self.head_weight is None or self.head_bias is None:
            return
        heads = tuple(self.head_weight.shape), tuple(self.head_bias.shape)
        if heads != ((width, outputs), (outputs,)):
            raise InvalidInput(
                f"The head has shapes {heads[0]} and {heads[1]}; "
                f"for {c} components and {self.channels} channels they must be C×{outputs} and {outputs}."
            )

    @property
    def head_weight(self) -> Array | None:
        return self.head.weight

    @property
    def head_bias(self) -> Array | None:
        return self.head.bias

    @property
    def components(self) -> np.ndarray:
        return self.head.components

    @property
    def kappa(self) -> float:
        return self.head.kappa

    @property
    def shape(self) -> tuple[int, int]:
        """(H, W), in input pixels."""
        H, W = self.pixels.shape[:2]
        return H, W

    @property
    def channels(self) -> int:
        return self.pixels.shape[2]

    @property
    def namespace(self) -> Any:
        """The array library of this field."""
        return array_namespace(self.pixels)

    @property
    def device(self) -> Any:
        return array_api_compat.device(self.pixels)

    @property
    def on_cpu(self) -> bool:
        return str(self.device).startswith("cpu")

    def __repr__(self) -> str:
        H, W = self.shape
        kind = "torch" if array_api_compat.is_torch_array(self.pixels) else "numpy"
        return (
            f"HeatField({H}×{W}×{self.channels}, {self.components.shape[1]} components, "
            f"κ={self.kappa:.4g}, {kind} on {self.device})"
        )

    def coefficients(self, features: Array) -> tuple[Array, Array]:
        """Amplitudes (P, channels, c) and phases (P, c) of cells with these features (P, C)."""
        return self.head.coefficients(features)

    def crop(self, rows: slice, cols: slice) -> HeatField:
        """The field of some of the cells: `field.crop(slice(0, 64), slice(32, 96))`."""
        return HeatField.of(self.head, self.pixels[rows, cols, :], self.features[rows, cols, :])

    def blank(self, shape: tuple[int, int]) -> HeatField:
        """A field of `shape` with the same head whose values are still to be filled in."""
        pixels, features = (
            self.namespace.empty((*shape, array.shape[2]), dtype=array.dtype, device=self.device)
            for array in (self.pixels, self.features)
        )
        return HeatField.of(self.head, pixels, features)

    @property
    def memory(self) -> int:
        """Default working memory in bytes. It is larger on an accelerator, which large blocks keep busy."""
        return MEMORY if self.on_cpu else ACCELERATOR_MEMORY

    def render(
        self,
        scale: float | Sequence[float] | None = None,
        size: Sequence[int] | None = None,
        region: Sequence[float] | None = None,
        psf: object = None,
        *,
        derivative: tuple[int, int] = (0, 0),
        memory: int | None = None,
    ) -> Array:
        """The field on a regular grid, H'×W'×channels, float32, unclipped.

        `scale`: a positive number, or one per axis (rows, columns); below 1 scales down. Or `size`: (H', W').
        `region`: (top, left, bottom, right) in input pixels; `size` is then the size of the region's output.
        `psf`: a filter, or a function of the frequencies. The default is the paper's `Gaussian()`.
        `derivative`: orders along (rows, columns), per input pixel.
        `memory`: working memory in bytes besides the result; by default 256 MiB, or 1 GiB on an accelerator.

        >>> field = HeatField(np.ones((2, 2, 3)), np.zeros((2, 2, 4)), None, None, np.ones((2, 1)), 0.03)
        >>> float(field.render(scale=(1.5, 3)).min())
        1.0
        """
        rows, cols = axes(self.shape, scale, size, region)
        return self.on_axes(rows, cols, as_filter(psf), derivative, memory or self.memory)

    def on_axes(self, rows: Axis, cols: Axis, psf: Filter, derivative: tuple[int, int], memory: int) -> Array:
        """The output pixels of two axes, h×w×channels."""
        return render.whole(
            self, (len(rows), len(cols)), render.plan(self, rows, cols, psf, derivative, memory)
        )

    def render_bands(
        self, *, derivative: tuple[int, int] = (0, 0), **options: Unpack[RenderOptions]
    ) -> Iterator[tuple[int, Array]]:
        """The output of `render` as (first row, band) from top to bottom, for outputs larger than memory.

        >>> field = HeatField(np.ones((2, 2, 3)), np.zeros((2, 2, 4)), None, None, np.ones((2, 1)), 0.03)
        >>> sum(len(band) for first_row, band in field.render_bands(scale=100, memory=1_000_000))
        200
        """
        rows, cols = axes(self.shape, options.get("scale"), options.get("size"), options.get("region"))
        memory = options.get("memory") or self.memory
        bands = render.plan(self, rows, cols, as_filter(options.get("psf")), derivative, memory)
        return ((band.start, band.render(self)) for band in bands)

    def gradient(self, **options: Unpack[RenderOptions]) -> Array:
        """∂Φ/∂row and ∂Φ/∂column per input pixel, H'×W'×channels×2; the options are those of `render`.

        >>> field = HeatField(np.ones((2, 2, 3)), np.zeros((2, 2, 4)), None, None, np.ones((2, 1)), 0.03)
        >>> field.gradient(scale=2).shape
        (4, 4, 3, 2)
        """
        parts = [self.render(**options, derivative=order) for order in ((1, 0), (0, 1))]
        return self.namespace.stack(parts, axis=-1)

    def laplacian(self, **options: Unpack[RenderOptions]) -> Array:
        """∇²Φ per input pixel squared, H'×W'×channels; the options are those of `render`."""
        down, along = (self.render(**options, derivative=order) for order in ((2, 0), (0, 2)))
        return down + along

    def sample(
        self,
        points: Array,
        psf: object = None,
        *,
        covariance: Array | None = None,
        jacobian: Array | None = None,
        outside: Outside = "edge",
        memory: int | None = None,
    ) -> Array:
        """The field at points (..., 2), (row, column) in input pixels from the top left: (..., channels).

        Each point is an output pixel, filtered by `psf`. It is as large as an input pixel, unless `jacobian`,
        (2, 2) or (..., 2, 2), gives its two sides as columns. Or `covariance`, of the same shapes, gives the
        covariance in input pixels² of a Gaussian filter. Points outside the image are moved to its edge, or
        get the value `outside`.

        >>> field = HeatField(np.ones((2, 2, 3)), np.zeros((2, 2, 4)), None, None, np.ones((2, 1)), 0.03)
        >>> field.sample([[0.5, 0.5], [1.2, 0.1]]).shape
        (2, 3)
        """
        at = _host(points)
        if at.ndim < 1 or at.shape[-1] != 2:
            raise InvalidInput(f"points of shape {at.shape} must be (..., 2): row and column of each.")
        filter_ = as_filter(psf)
        if covariance is not None:
            if psf is not None or jacobian is not None:
                raise InvalidInput("A covariance is a filter by itself; give it without psf and jacobian.")
            filter_, jacobian = Covariance(), _square_root(_host(covariance), self.kappa)
        steps = np.eye(2) if jacobian is None else _host(jacobian)
        if steps.shape not in ((2, 2), (*at.shape, 2)) or not np.all(np.isfinite(steps)):
            raise InvalidInput(
                f"Footprints of shape {steps.shape} do not fit points of shape {at.shape}; "
                "give finite numbers of shape (2, 2), or one such matrix for each point."
            )
        steps = steps if steps.ndim == 2 else steps.reshape(-1, 2, 2)
        values = sample(self, at.reshape(-1, 2), steps, filter_, outside, memory or self.memory)
        return self.namespace.reshape(values, (*at.shape[:-1], self.channels))

    def warp(
        self,
        mapping: Any,
        size: Sequence[int],
        psf: object = None,
        *,
        outside: Outside = "edge",
        memory: int | None = None,
    ) -> Array:
        """The field warped by a mapping, H'×W'×channels, with elliptical anti-aliasing at every pixel.

        `mapping` takes (row, column) in the output to (row, column) in the input, both in pixels from the top
        left corner: a 3×3 homography, a 2×3 affine matrix, or a function of points (N, 2) in the field's own
        library (float64; differentiated by torch, or by finite differences). `outside` is as in `sample`;
        beyond a horizon there is no edge, so a value must be given.

        >>> field = HeatField(np.ones((2, 2, 3)), np.zeros((2, 2, 4)), None, None, np.ones((2, 1)), 0.03)
        >>> field.warp([[0.5, 0, 0], [0, 0.5, 0]], size=(4, 4)).shape
        (4, 4, 3)
        """
        rows, cols = output_size(size)
        locate, filter_ = as_mapping(mapping, (rows, cols), self), as_filter(psf)
        xp = self.namespace
        out = xp.empty((rows, cols, self.channels), dtype=xp.float32, device=self.device)
        memory = memory or self.memory
        height = max(1, memory // (256 * cols))
        for start in range(0, rows, height):
            band = np.arange(start, min(start + height, rows)) + 0.5
            grid = np.stack(np.meshgrid(band, np.arange(cols) + 0.5, indexing="ij"), axis=-1)
            values = sample(self, *locate(grid.reshape(-1, 2)), filter_, outside, memory)
            out[start : start + len(band), :, :] = xp.reshape(values, (len(band), cols, self.channels))
        return out

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the field to a file, so that it is encoded only once. `HeatField.load` reads it.

        >>> import tempfile
        >>> field = HeatField(np.ones((2, 2, 3)), np.zeros((2, 2, 4)), None, None, np.ones((2, 1)), 0.03)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field.save(f"{folder}/picture.field")
        ...     HeatField.load(f"{folder}/picture.field")
        HeatField(2×2×3, 1 components, κ=0.03, numpy on cpu)
        """
        files.save(self, path)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], asarray: Callable[[np.ndarray], Array] = np.asarray
    ) -> HeatField:
        """The field in a file, with arrays made by `asarray`: `HeatField.load(path, torch.asarray)`."""
        arguments = files.load(path, asarray)
        try:
            return cls(**arguments)
        except InvalidInput as error:
            raise FieldFileError(f"{path} does not hold a field: {error}") from error


def _library(**arrays: Array | None) -> Any:
    """The array library that all these arrays share."""
    given = {name: array for name, array in arrays.items() if array is not None}
    try:
        return array_namespace(*given.values())
    except TypeError as error:
        kinds = ", ".join(f"{name} as {type(array).__name__}" for name, array in given.items())
        raise InvalidInput(f"A field got {kinds}; give all as NumPy arrays, or all as tensors.") from error


def _host(array: Array) -> np.ndarray:
    return to_numpy(array).astype(np.float64)


def _square_root(covariance: np.ndarray, kappa: float) -> np.ndarray:
    """J such that 2κJJᵀ is the covariance."""
    if covariance.shape[-2:] != (2, 2):
        raise InvalidInput(f"A covariance of shape {covariance.shape} was given; it must be (..., 2, 2).")
    symmetric = np.allclose(covariance, np.swapaxes(covariance, -1, -2))
    values, vectors = np.linalg.eigh(covariance)
    if not symmetric or not np.all(values > -1e-12) or kappa == 0:
        raise InvalidInput("A covariance must be symmetric and positive, and the field's κ must be above 0.")
    return vectors * np.sqrt(np.maximum(values, 0) / (2 * kappa))[..., None, :]
