"""Models whose colours are decoded point by point: other methods, and ablations that no heat field holds."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from thera.errors import InvalidInput
from thera.field import Filter
from thera.field.ensemble import ROTATIONS, mean
from thera.field.grid import Axis, axes
from thera.kernels.available import TRITON
from thera.memory import available_memory, human_bytes
from thera.models.engine import Array
from thera.models.model import Info, Model, check_image, like, quarter_turns
from thera.models.torch_engine import as_tensor, precision_of, resolve_device
from thera.networks.decoders import Decoded
from thera.networks.network import Points
from thera.networks.spec import WHOLE, Spec

if TYPE_CHECKING:
    from thera.networks import Network

# Bytes for the points that are decoded at a time: on a CPU they should stay in its caches. A GPU gives up to
# half of what is free.
MEMORY, GPU_MEMORY = 64 << 20, 8 << 30


@dataclass(frozen=True)
class Decoding(Filter):
    """Stands in for a filter: a decoder has learnt its own. `cells`: how many it reads on each side."""

    cells: int

    @property
    def footprint(self) -> None:
        return None

    @property
    def neighbours(self) -> int:
        return self.cells

    def response(self, nu1: Array, nu2: Array, kappa: float) -> Array:
        raise InvalidInput("A decoder has no frequencies: use a model of heat fields.")


class PointModel(Model):
    """A `Model` of a network that says the colour of a point, given features around it."""

    def __init__(
        self, network: Network, metadata: dict[str, Any], device: str = "auto", precision: str = "f32"
    ) -> None:
        self.device = resolve_device(device, precision)
        self.precision = "f32" if precision == "auto" else precision  # 16 bits were not measured here
        self.network = copy.deepcopy(network).eval().requires_grad_(False).to(self.device)
        spec = Spec.from_dict(metadata)
        self.info = Info(
            name=str(metadata["name"]),
            spec=spec,
            parameters=int(metadata["parameters"]),
            components=spec.components,
            kappa=0.0,
            halo=spec.halo,
            alignment=spec.alignment,
            engine="torch",
            device=str(self.device),
            precision=self.precision,
            metadata=metadata,
        )

    def compile(self) -> None:
        """Let PyTorch merge the kernels of a decoder, where it can."""
        if isinstance(self.network, Decoded) and self.device.type == "cuda" and TRITON:
            self.network.compile_decoder()

    def encode(self, image: Array) -> PointField:  # type: ignore[override]
        """The features of an image. They can be decoded at any size, as often as needed."""
        check_image(image)
        return self._encoded(image, 0)

    def encode_rotations(self, image: Array) -> Iterator[PointField]:  # type: ignore[override]
        check_image(image)
        return (self._encoded(image, quarters) for quarters in range(ROTATIONS))

    def _encoded(self, image: Array, quarters: int) -> PointField:
        pixels = as_tensor(image).to(self.device, torch.float32, copy=True)
        turned = pixels.rot90(quarters, (0, 1)).permute(2, 0, 1)[None].contiguous()
        with self.computing():
            features = self.network.features(turned)[0].permute(1, 2, 0).float()
        return PointField(self, pixels, quarter_turns(features, -quarters).contiguous(), quarters)

    def psf(self, steps: Sequence[float], quarters: int = 0) -> Filter:
        return Decoding(self.info.spec.neighbours)

    def upscale(
        self,
        image: Array,
        scale: float | Sequence[float] | None = None,
        size: Sequence[int] | None = None,
        ensemble: bool = False,
        psf: object = None,
        *,
        first: Array | None = None,
    ) -> Array:
        """As `Model.upscale`. `first`: the result of one pass, if known: the ensemble begins with it."""
        check_image(image)
        rows, cols = axes(tuple(image.shape[:2]), scale, size, None)
        self.check_output((len(rows), len(cols)))
        filter_: Any = psf or self.psf(())
        known = [] if first is None else [as_tensor(first).to(self.device, copy=True)]
        fields = (self._encoded(image, q) for q in range(len(known), ROTATIONS if ensemble else 1))
        return like(mean(chain(known, (field.on_axes(rows, cols, filter_) for field in fields))), image)

    def check_output(self, size: Sequence[int]) -> None:
        if not self.network.together:
            return
        pixels, free = math.prod(size), self._free_memory()
        need = pixels * self.network.point_bytes
        if need > free:
            raise InvalidInput(
                f"{self.name} decodes all output pixels at once: {pixels:,} of them need "
                f"{human_bytes(need)}, and {human_bytes(free)} are there. Ask for fewer, or use "
                "another model."
            )

    @property
    def room(self) -> int:
        """Bytes for the points that are decoded at a time."""
        return min(GPU_MEMORY, self._free_memory() // 2) if self.device.type == "cuda" else MEMORY

    def _free_memory(self) -> int:
        if self.device.type != "cuda":
            return available_memory()
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return torch.cuda.mem_get_info(self.device)[0] + unused

    @contextmanager
    def computing(self) -> Iterator[None]:
        """The precision of matrix products, without gradients."""
        products, autocast = precision_of(self.device, self.precision)
        with torch.no_grad(), products, autocast:
            yield


class PointField:
    """The features of a picture, rendered by decoding every output pixel. A `TiledField` can be made of it.

    The picture was encoded after `quarters` quarter turns; pixels and features are turned back.
    """

    def __init__(self, model: PointModel, pixels: Tensor, features: Tensor, quarters: int = 0) -> None:
        self.model, self.pixels, self.features, self.quarters = model, pixels, features, quarters
        self._whole: dict[tuple[int, int], Tensor] = {}  # the outputs of decoders that see the whole picture

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise InvalidInput(
            f"{self.model.name} is no heat field and has no {name}: use a model of heat fields."
        )

    @property
    def shape(self) -> tuple[int, int]:
        return self.pixels.shape[0], self.pixels.shape[1]

    def crop(self, rows: slice, cols: slice) -> PointField:
        """The field of some of the cells."""
        return PointField(self.model, self.pixels[rows, cols], self.features[rows, cols], self.quarters)

    def blank(self, shape: tuple[int, int]) -> PointField:
        """A field of another shape whose cells have no values yet."""
        pixels, features = (f.new_empty(*shape, f.shape[2]) for f in (self.pixels, self.features))
        return PointField(self.model, pixels, features, self.quarters)

    def render(
        self,
        scale: float | Sequence[float] | None = None,
        size: Sequence[int] | None = None,
        region: Sequence[float] | None = None,
        psf: object = None,
        *,
        derivative: tuple[int, int] = (0, 0),
        memory: int | None = None,
    ) -> Tensor:
        """The picture at a scale or of a size, H'×W'×3, float32, unclipped; as `HeatField.render`."""
        rows, cols = axes(self.shape, scale, size, region)
        return self.on_axes(rows, cols, psf or self.model.psf(()), derivative)  # type: ignore[arg-type]

    def on_axes(
        self,
        rows: Axis,
        cols: Axis,
        psf: Filter,
        derivative: tuple[int, int] = (0, 0),
        memory: int = 0,
    ) -> Tensor:
        """The output pixels of two axes, h×w×3."""
        self._check(psf, derivative)
        if self.model.info.spec.neighbours < WHOLE:
            return self._decoded(rows, cols, derivative)
        size = tuple(round(n / axis.step) for n, axis in zip(self.shape, (rows, cols), strict=True))
        if size not in self._whole:
            self.model.check_output(size)
            whole = [Axis.whole(n, N) for n, N in zip(self.shape, size, strict=True)]
            self._whole = {size: self._decoded(whole[0], whole[1])}  # type: ignore[dict-item]
        down, along = (
            torch.from_numpy(np.rint(a.centre / a.step - 0.5).astype(np.int64)) for a in (rows, cols)
        )
        return self._whole[size][down.to(self.pixels.device)][:, along.to(self.pixels.device)]  # type: ignore[index]

    def sample(
        self, points: Array, psf: object = None, *, jacobian: Array | None = None, memory: int = 0
    ) -> Tensor:
        """The picture at points (N, 2), each an output pixel whose sides are the columns of `jacobian`."""
        self._check(psf or self.model.psf(()), (0, 0))
        at = torch.as_tensor(np.asarray(points), dtype=torch.float32)
        sides = np.eye(2) if jacobian is None else np.asarray(jacobian)
        # The rows of a Jacobian are how far an output pixel reaches down and across.
        step = torch.as_tensor(np.linalg.norm(sides, axis=-1), dtype=torch.float32).expand(len(at), 2)
        return self._colours(at, step)

    def _check(self, psf: object, derivative: tuple[int, int]) -> None:
        possible = sum(derivative) <= 2 and not self.quarters and self.model.info.spec.neighbours < WHOLE
        if not isinstance(psf, Decoding) or (any(derivative) and not possible):
            what = "these derivatives" if any(derivative) else "a filter to choose"
            raise InvalidInput(
                f"{self.model.name} is no heat field, so it does not have {what}: leave it out."
            )

    def _decoded(self, rows: Axis, cols: Axis, derivative: tuple[int, int] = (0, 0)) -> Tensor:
        down, along = (torch.as_tensor(axis.centre, dtype=torch.float32) for axis in (rows, cols))
        grid = torch.stack(torch.meshgrid(down, along, indexing="ij"), -1).flatten(0, 1)
        step = torch.tensor([[rows.step, cols.step]], dtype=torch.float32)
        return self._colours(grid, step, derivative).view(len(rows), len(cols), 3)

    def _colours(self, at: Tensor, step: Tensor, derivative: tuple[int, int] = (0, 0)) -> Tensor:
        """The colours of points, decoded in the picture as it was turned when it was encoded."""
        model, turns = self.model, self.quarters
        at, step = _turned(at, step, self.shape, turns)
        image, features = (  # the channels of a cell stay side by side, as most decoders read them
            f.rot90(turns, (0, 1)).permute(2, 0, 1)[None].contiguous(memory_format=torch.channels_last)
            for f in (self.pixels, self.features)
        )
        at, step = at.to(self.pixels.device), step.to(self.pixels.device)
        out = self.pixels.new_empty(len(at), 3)
        with model.computing():
            maps = model.network.maps(features, image)
            for part in self._parts(at, image.shape[3], any(derivative)):
                points = Points(at[part][None], (step if len(step) == 1 else step[part])[None])
                if any(derivative):
                    out[part] = _differentiated(model.network, maps, points, derivative)
                else:
                    out[part] = model.network.colours(maps, points)[0]
        return out

    def _parts(self, at: Tensor, width: int, derivative: bool) -> Iterator[slice] | Iterator[Tensor]:
        """Slices or indices of the points to decode at a time, so that these fit into memory.

        Where points of a cell share work, they are sorted by cell. Derivatives share no work. `width`: cells
        in a row.
        """
        network = self.model.network
        if network.together:
            return iter([slice(None)])
        room = self.model.room
        if derivative or not network.cell_bytes:
            count = max(1, room // (network.point_bytes + network.cell_bytes))
            return (slice(first, first + count) for first in range(0, len(at), count))
        down, along = torch.floor(at).long().unbind(1)
        cell, order = torch.sort(down * width + along, stable=True)
        starts = torch.diff(cell, prepend=cell[:1] - 1) != 0
        part = (network.point_bytes + network.cell_bytes * starts).cumsum(0) // room
        return iter(order.split(torch.unique_consecutive(part, return_counts=True)[1].tolist()))


def _differentiated(network: Network, maps: Any, points: Points, derivative: tuple[int, int]) -> Tensor:
    """The derivatives of the colours by the points' rows and columns, as often as asked: Q×3."""
    axes_of = [0] * derivative[0] + [1] * derivative[1]
    with torch.enable_grad():
        at = points.at.clone().requires_grad_()
        values = list(network.colours(maps, Points(at, points.step))[0].unbind(-1))
        for axis in axes_of:
            # A point's colour depends on that point alone, so the gradient of the sum has all derivatives.
            slopes = [torch.autograd.grad(v.sum(), at, create_graph=True)[0] for v in values]
            values = [slope[0, :, axis] for slope in slopes]
    return torch.stack([value.detach() for value in values], -1)


def _turned(at: Tensor, step: Tensor, shape: tuple[int, int], quarters: int) -> tuple[Tensor, Tensor]:
    """Points and sizes of output pixels after the picture of `shape` is turned by quarters, as by rot90."""
    H, W = shape
    for _ in range(quarters):
        at, step = torch.stack([W - at[..., 1], at[..., 0]], -1), step.flip(-1)
        H, W = W, H
    return at, step
