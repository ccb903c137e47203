"""Thera's nodes for ComfyUI: upscale at any scale, or encode once and render as often as wanted.

An image is a tensor (B, H, W, C) of floats in [0, 1], a mask is (B, H, W).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from threading import Event, Thread, get_ident
from typing import Any

import numpy as np
import torch
from comfy import model_management
from comfy.utils import ProgressBar

from thera.field.grid import Axis
from thera.models import Model, load, shipped
from thera.models.engine import interrupt
from thera.tiled import ArraySource, Options, TiledField, make_plan

CATEGORY = "image/upscaling"
DEVICES = ["auto", "cpu", "cuda", "mps", "vulkan"]
STEPS = 1000  # of a progress bar
BAND = 256  # output rows that are rendered between two looks at the button that stops

MODEL = ([model.name for model in shipped()], {"default": "edsr-plus"})
DEVICE = (DEVICES, {"default": "auto", "tooltip": "auto: where ComfyUI computes"})
SCALE = ("FLOAT", {"default": 2.0, "min": 0.05, "max": 16.0, "step": 0.01})
SIDE = ("INT", {"default": 0, "min": 0, "max": 32768, "tooltip": "0: as the scale says"})
ENSEMBLE = ("BOOLEAN", {"default": False, "tooltip": "The mean of four rotations, at four times the work"})


class TheraUpscale:
    """An image at any scale, and its mask at the same size."""

    RETURN_TYPES = ("IMAGE", "MASK")
    FUNCTION = "upscale"
    CATEGORY = CATEGORY

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802, as ComfyUI calls it
        required = {"image": ("IMAGE",), "model": MODEL, "scale": SCALE, "device": DEVICE}
        optional = {"mask": ("MASK",), "ensemble": ENSEMBLE, "width": SIDE, "height": SIDE}
        return {"required": required, "optional": optional}

    def upscale(
        self,
        image: torch.Tensor,
        model: str,
        scale: float,
        device: str,
        mask: torch.Tensor | None = None,
        ensemble: bool = False,
        width: int = 0,
        height: int = 0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        network = loaded(model, place(device))
        size = target(image.shape[1:3], scale, width, height)
        options = Options(ensemble=ensemble)
        planes = [plane for each in arrays(image) for plane in colours(each)]
        masks = [] if mask is None else list(arrays(mask))
        report = Report((len(planes) + len(masks)) * size[0] * size[1])
        with stoppable():
            done = [resized(network, plane, size, options, report) for plane in planes]
            scaled = [resized(network, grey(each), size, options, report).mean(axis=2) for each in masks]
        out = stack(done, image.shape[0], image.shape[3])
        return out, tensor(np.stack(scaled)) if scaled else torch.zeros(out.shape[:3])


@dataclass
class Field:
    """The heat fields of a batch of images: what TheraEncode makes and TheraRender reads."""

    planes: list[TiledField]
    batch: int
    channels: int
    size: tuple[int, int]


@dataclass
class Kept:
    """All encoded tiles of one plane."""

    tiles: dict[Any, Any] = field(default_factory=dict)

    def get(self, tile: Any, encode: Callable[[], Any]) -> Any:
        if tile not in self.tiles:
            self.tiles[tile] = encode()
        return self.tiles[tile]


class TheraEncode:
    """Runs the network once. TheraRender then reads any size and any part of the result."""

    RETURN_TYPES = ("THERA_FIELD",)
    FUNCTION = "encode"
    CATEGORY = CATEGORY

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802
        required = {"image": ("IMAGE",), "model": MODEL, "device": DEVICE}
        return {"required": required, "optional": {"ensemble": ENSEMBLE}}

    def encode(self, image: torch.Tensor, model: str, device: str, ensemble: bool = False) -> tuple[Field]:
        network, options = loaded(model, place(device)), Options(ensemble=ensemble)
        batch, H, W, channels = image.shape
        planes = []
        report = Report(batch * H * W * (1 if channels in (1, 3) else 2))
        for plane in (plane for array in arrays(image) for plane in colours(array)):
            kept = Kept()
            read = TiledField(network, ArraySource(plane), options, tiles=kept)
            with stoppable():
                for tile in read.tiles((0, 0, H, W)):
                    kept.tiles[tile] = read.encode(tile)
                    report((tile[2] - tile[0]) * (tile[3] - tile[1]))
            planes.append(read)
        return (Field(planes, batch, channels, (H, W)),)


class TheraRender:
    """An encoded image at any scale, or a part of it in pixels of the encoded image. Sides of 0: all."""

    RETURN_TYPES = ("IMAGE",)
    FUNCTION = "render"
    CATEGORY = CATEGORY

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802
        required = {"field": ("THERA_FIELD",), "scale": SCALE}
        names = ("width", "height", "x", "y", "part_width", "part_height")
        return {"required": required, "optional": dict.fromkeys(names, SIDE)}

    def render(
        self,
        field: Field,
        scale: float,
        width: int = 0,
        height: int = 0,
        x: int = 0,
        y: int = 0,
        part_width: int = 0,
        part_height: int = 0,
    ) -> tuple[torch.Tensor]:
        H, W = field.size
        size = target(field.size, scale, width, height)
        if x >= W or y >= H:
            raise ValueError(f"The part begins at {x}, {y}, outside of the image of {W}×{H} pixels.")
        rows = part(H, size[0], y, part_height)
        cols = part(W, size[1], x, part_width)
        report = Report(len(field.planes) * len(rows) * len(cols))
        done = []
        for plane in field.planes:
            bands = []
            for start in range(0, len(rows), BAND):
                bands.append(plane.render(rows[start : start + BAND], cols))
                report(bands[-1].shape[0] * len(cols))
            done.append(np.concatenate(bands))
        return (stack(done, field.batch, field.channels),)


class Report:
    """Moves ComfyUI's progress bar, and raises its exception when somebody presses stop."""

    def __init__(self, total: float) -> None:
        self._total, self._done, self._bar = total, 0.0, ProgressBar(STEPS)
        model_management.throw_exception_if_processing_interrupted()

    def __call__(self, pixels: float) -> None:
        model_management.throw_exception_if_processing_interrupted()
        self._done += pixels
        self._bar.update_absolute(round(STEPS * self._done / self._total), STEPS)


@contextmanager
def stoppable() -> Iterator[None]:
    """Ends the network within an instant or two when somebody presses stop: a tile may take a minute."""
    computing, done = get_ident(), Event()

    def watch() -> None:
        while not done.wait(0.2):
            if model_management.processing_interrupted():
                interrupt(computing)

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except Exception:
        model_management.throw_exception_if_processing_interrupted()  # instead of the network's error
        raise
    finally:
        done.set()
        watcher.join()


def place(device: str) -> str:
    """A device by its name; "auto" is the one on which ComfyUI computes."""
    if device != "auto":
        return device
    chosen = str(model_management.get_torch_device())
    return chosen if chosen.startswith(("cuda", "mps")) else "cpu"


@lru_cache(maxsize=2)
def loaded(name: str, device: str) -> Model:
    """On a CPU, ONNX Runtime or ncnn are faster than PyTorch, if they are installed."""
    slow = device == "cpu" and not find_spec("onnxruntime")
    return load(name, "torch" if slow else "auto", device)


def target(size: Any, scale: float, width: int, height: int) -> tuple[int, int]:
    """(height, width) of an output. One side that is given sets the other."""
    H, W = size
    if width and not height:
        scale = width / W
    elif height and not width:
        scale = height / H
    return height or max(1, round(H * scale)), width or max(1, round(W * scale))


def part(cells: int, size: int, start: int, length: int) -> Axis:
    """The output pixels of `length` input pixels from `start`; 0 for all that follow."""
    end = min(start + length, cells) if length else cells
    first = min(round(start * size / cells), size - 1)
    return Axis.whole(cells, size, first, max(first + 1, round(end * size / cells)))


def arrays(batch: torch.Tensor) -> Iterator[np.ndarray]:
    for each in batch:
        yield each.detach().cpu().float().clamp(0, 1).numpy()


def colours(array: np.ndarray) -> list[np.ndarray]:
    """An image as the network sees it: its colour, and its alpha as a grey image."""
    channels = array.shape[2]
    colour = array[..., :3] if channels >= 3 else grey(array[..., 0])
    return [colour, *(grey(array[..., i]) for i in range(3 if channels >= 3 else 1, channels))]


def grey(array: np.ndarray) -> np.ndarray:
    return np.repeat(array[..., None], 3, axis=2)


def resized(
    model: Model, plane: np.ndarray, size: tuple[int, int], options: Options, report: Report
) -> np.ndarray:
    H, W = plane.shape[:2]
    if (plane == plane[0, 0]).all():  # such as the empty mask of a picture without one
        report(size[0] * size[1])
        return np.broadcast_to(plane[0, 0], (*size, 3))
    plan = make_plan(model, (H, W), size, options)
    strips = TiledField(model, ArraySource(plane), options).rows(plan, report)
    return np.concatenate([strip.values for strip in strips])


def stack(planes: list[np.ndarray], batch: int, channels: int) -> torch.Tensor:
    """Undoes `colours` for a batch."""
    first, each = 3 if channels >= 3 else 1, len(planes) // batch
    images = []
    for i in range(0, len(planes), each):
        colour, *greys = planes[i : i + each]
        if first == 1:
            colour = colour.mean(axis=2, keepdims=True)
        parts = [colour, *(plane.mean(axis=2, keepdims=True) for plane in greys)]
        images.append(np.concatenate(parts, axis=2))
    return tensor(np.stack(images))


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, np.float32)).clamp_(0, 1)
