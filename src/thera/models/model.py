"""`Model` turns an image into a heat field, or into a resized image."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

from thera.errors import InvalidInput, ModelError
from thera.field import Filter, Gaussian, HeatField, Seamless
from thera.field.ensemble import ROTATIONS, mean
from thera.field.grid import axes
from thera.field.namespace import array_namespace
from thera.field.psf import as_filter, to_numpy
from thera.field.render import Band, deterministic, plan, whole
from thera.models.engine import Array, Engine, ReplayEngine
from thera.networks.spec import MEAN, Spec


@dataclass(frozen=True)
class Info:
    """What a model is, where it runs and at which precision."""

    name: str
    spec: Spec
    parameters: int
    components: int  # the number of frequencies
    kappa: float
    halo: int  # input pixels around a tile that its fields depend on
    alignment: int  # tiles must start at multiples of this many input pixels
    engine: str
    device: str
    precision: str
    metadata: dict[str, Any]  # the description stored in the file
    why: str = ""  # this engine was chosen, if several could run the model
    threads: int = 1  # that images encoded side by side can share; 1 if there is no gain in it

    @property
    def restores(self) -> bool:
        """True if it was trained to see through blur, noise and JPEG: it changes pictures even at scale 1."""
        return bool(self.metadata.get("restores"))

    @property
    def members(self) -> int:
        """How many networks encode a picture: two for a mixture."""
        return int(self.metadata.get("members", 1))


class Shared(NamedTuple):
    """The threads of a model, and how to make its engine again for several calls at once.

    `make(threads, calls)`: the engine with so many threads for each of the calls.
    """

    threads: int
    make: Callable[[int, int], Engine]


class Model:
    """A network ready to run. Made by `thera.load`.

    Images are H×W×3, floats in [0, 1], NumPy arrays or PyTorch tensors. A field lives where the engine
    computes: in tensors on the engine's device with PyTorch, in NumPy arrays with all others.
    """

    def __init__(
        self, engine: Engine, metadata: dict[str, Any], why: str = "", shared: Shared | None = None
    ) -> None:
        spec = Spec.from_dict(metadata)
        self._engine, self._shared = engine, shared
        self._beside: dict[int, Model] = {}  # what `beside` made, by the number of threads
        self._replay = engine if isinstance(engine, ReplayEngine) else None
        self._heads = [engine.head]  # one for each rotation of the image by a quarter turn
        for _ in range(ROTATIONS - 1):
            self._heads.append(self._heads[-1].turned())
        self._axes = lru_cache(maxsize=16)(axes)  # computing them takes as long as a replay
        self._pixel_bias = engine.asarray(np.array(MEAN, np.float32)) if spec.published else None
        self.info = Info(
            name=str(metadata["name"]),
            spec=spec,
            parameters=int(metadata["parameters"]),
            components=spec.components,
            kappa=engine.head.kappa,
            halo=spec.halo,
            alignment=spec.alignment,
            engine=engine.name,
            device=engine.device,
            precision=engine.precision,
            metadata=metadata,
            why=why,
            threads=1 if shared is None else shared.threads,
        )

    @property
    def name(self) -> str:
        return self.info.name

    def __repr__(self) -> str:
        i = self.info
        return f"Model({i.name}, {i.parameters:,} parameters, {i.engine} on {i.device}, {i.precision})"

    def compile(self) -> None:
        """Spend up to a minute to make all later pictures faster. It helps other methods on GPUs alone."""

    def encode(self, image: Array) -> HeatField:
        """The heat field of an image. It can be rendered at any size, as often as needed.

        >>> import thera
        >>> field = thera.load("edsr-air").encode(np.full((5, 6, 3), 0.5))
        >>> field.render(scale=4).shape
        (20, 24, 3)
        """
        check_image(image)
        return self._field(self._engine.asarray(image), 0, self._engine.features)

    def beside(self, count: int) -> Model:
        """The same model for `count` threads that encode at once and share its own threads.

        It is this model itself if its file was changed or removed since it was loaded.
        """
        if count == 1 or self._shared is None:
            return self
        if count not in self._beside:
            try:
                engine = self._shared.make(max(1, self._shared.threads // count), count)
            except (OSError, ModelError):
                return self
            mine, again = (to_numpy(each.head.weight) for each in (self._engine, engine))
            if not np.array_equal(mine, again):
                return self
            made = copy(self)
            made._engine = engine
            self._beside[count] = made
        return self._beside[count]

    def encode_rotations(self, image: Array) -> Iterator[HeatField]:
        """The four fields whose renderings the ensemble averages, one at a time.

        Each is computed from the image rotated by one more quarter turn, and then rotated back. This is
        exact: a rotated sum of sinusoids is a sum of sinusoids with rotated frequencies.
        """
        check_image(image)
        pixels = self._engine.asarray(image)
        return (self._field(pixels, quarters, self._engine.features) for quarters in range(ROTATIONS))

    def _field(self, image: Array, quarters: int, features_of: Callable[[Array], Array]) -> HeatField:
        """The field of `image`, computed from the image rotated by so many quarter turns."""
        turned = image if quarters == 0 else self._engine.asarray(quarter_turns(image, quarters))
        features = quarter_turns(features_of(turned), -quarters)
        pixels = image if self._pixel_bias is None else image + self._pixel_bias
        return HeatField.of(self._heads[quarters], pixels, features)

    def psf(self, steps: Sequence[float], quarters: int = 0) -> Filter:
        """The model's own filter for output pixels of height H/H' and width W/W', in input pixels.

        It is the paper's Gaussian, without the seams that would show beyond ×8. The published models use one
        t for both axes: (H/H')², or (W/W')² if the image was rotated by an odd number of `quarters`.
        """
        if not self.info.spec.published:
            return Seamless()
        return Gaussian(t=steps[quarters % 2] ** 2)

    def check_output(self, size: Sequence[int]) -> None:
        """Refuse an output of `size` = (height, width) that is made at once and does not fit in memory.

        Heat fields are rendered part by part: they refuse none.
        """

    def upscale(
        self,
        image: Array,
        scale: float | Sequence[float] | None = None,
        size: Sequence[int] | None = None,
        ensemble: bool = False,
        psf: object = None,
    ) -> Array:
        """The image at a scale or of a size (H', W'): float32, not clipped, NumPy or PyTorch as the image is.

        `ensemble` takes the mean over four rotations: slightly better, at four times the cost.

        >>> import thera
        >>> thera.load("edsr-air").upscale(np.full((4, 6, 3), 0.5), scale=2.5).shape
        (10, 15, 3)
        """
        check_image(image)
        shape = tuple(image.shape[:2])
        try:
            rows, cols = self._axes(shape, scale, size, None)
        except TypeError:  # a list or an array cannot be a cache key
            rows, cols = axes(shape, scale, size, None)
        size = len(rows), len(cols)
        turns, steps = range(ROTATIONS if ensemble else 1), (rows.step, cols.step)
        filters = [self.psf(steps, turn) if psf is None else as_filter(psf) for turn in turns]
        features_of = self._engine.features if self._replay is None else self._replay.compute
        plans: dict[int, list[Band]] = {}  # kept, because a replayed computation reads them again

        def render(pixels: Array, turn: int) -> Array:
            field = self._field(pixels, turn, features_of)
            if turn not in plans:
                plans[turn] = list(plan(field, rows, cols, filters[turn], (0, 0), field.memory))
            return whole(field, size, plans[turn])

        def compute(pixels: Array) -> Array:
            return mean(render(pixels, turn) for turn in turns)

        if self._replay is None:
            return like(compute(self._engine.asarray(image)), image)
        replayable = all(deterministic(filter_) for filter_ in filters)
        key = ("upscale", shape, size, ensemble, *filters) if replayable else None
        return like(self._replay.replay(key, compute, image, outputs=size[0] * size[1]), image)


def quarter_turns(array: Array, quarters: int) -> Array:
    return array_namespace(array).rot90(array, quarters, (0, 1))


def like(array: Array, image: Array) -> Array:
    """`array` as a NumPy array or as a tensor on the same device, as `image` is."""
    if array_api_compat.is_torch_array(image):
        import torch

        return torch.as_tensor(array, device=image.device)
    return to_numpy(array)


def check_image(image: Any) -> None:
    """Refuse what is not an H×W×3 image of floats. They must be finite, which is checked on the CPU only."""
    if not (array_api_compat.is_numpy_array(image) or array_api_compat.is_torch_array(image)):
        kind = type(image).__name__
        raise InvalidInput(f"The image is of type {kind}: give a NumPy array or a PyTorch tensor, H×W×3.")
    shape = tuple(image.shape)
    if len(shape) != 3 or shape[2] != 3:
        hint = " (channels come last)" if len(shape) == 3 and shape[0] == 3 else ""
        raise InvalidInput(f"The image has the shape {shape}: give H×W×3{hint}.")
    if 0 in shape:
        raise InvalidInput(f"The image has the shape {shape}: give at least one pixel.")
    xp = array_namespace(image)
    if not xp.isdtype(image.dtype, "real floating"):
        raise InvalidInput(
            f"The image holds {image.dtype}: give floats in [0, 1], so divide integers by their range."
        )
    if str(array_api_compat.device(image)) == "cpu" and not bool(xp.all(xp.isfinite(image))):
        raise InvalidInput("The image has NaN or infinite values: replace them by floats in [0, 1] first.")
