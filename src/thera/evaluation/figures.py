"""Figures of what fields do, as in the paper. Each function returns a matplotlib Figure; `save` writes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.evaluation.fit import filtered, fit_whole, gaussian_filter
from thera.evaluation.images import read
from thera.evaluation.metrics import LUMA_WEIGHTS
from thera.evaluation.protocol import degrade, unit
from thera.evaluation.records import writing
from thera.evaluation.resize import resize
from thera.field import Gaussian, Point
from thera.field.psf import NYQUIST_KAPPA, to_numpy
from thera.optional import require

Figure = Any  # matplotlib's, which is an extra
Image = NDArray[np.floating]
Pixels = NDArray[np.uint8]
ZOOMS = (1.7, 3.3, 6.1, 11.4, 21.7)
At = tuple[float, float] | None  # where to look, in fractions of the height and width; None: at most detail


def figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, drawn without a display."""
    module = require("matplotlib.figure", "figures", "A figure")
    return module.Figure(figsize=(width, height), layout="constrained", dpi=160)


def check_name(path: Path) -> None:
    """Refuse a figure name without a known suffix, before any work is done."""
    if path.suffix[1:].lower() not in figure(1, 1).canvas.get_supported_filetypes():
        raise InvalidInput(f"The figure {path.name!r} has no format: end it in .png, .pdf or .svg.")


def save(drawn: Figure, path: Path) -> None:
    """Write a figure in the format that its suffix names (PNG, PDF, SVG)."""
    with writing(path):
        drawn.savefig(path, bbox_inches="tight", pad_inches=0.06)


def picture_figure(
    rows: Sequence[Sequence[Image]], titles: Sequence[str], labels: Sequence[str] = ()
) -> Figure:
    """A grid of pictures of one size: titles above the columns, labels beside the rows."""
    height, width = rows[0][0].shape[:2]
    drawn = figure(2.1 * len(rows[0]) + 0.25, (2.1 * height / width + 0.1) * len(rows) + 0.4)
    grid = np.atleast_2d(drawn.subplots(len(rows), len(rows[0]), squeeze=False))
    for i, row in enumerate(rows):
        for j, image in enumerate(row):
            axes = grid[i, j]
            axes.imshow(np.clip(image, 0, 1), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            if i == 0:
                axes.set_title(titles[j], fontsize=9)
        if labels:
            grid[i, 0].set_ylabel(labels[i], fontsize=9)
    return drawn


def low_pass_figure(path: Path, side: int = 128) -> Figure:
    """One heat field, fitted at t = 1 only, at ×1, ×1/4, ×1/8 and ×1/16 beside a true Gaussian filter."""
    pixels = read(path).pixels
    n = min(side, *pixels.shape[:2])
    image = crop(pixels, busiest(pixels, n), n) / 255.0
    field = fit_whole(image)
    steps = (1, 4, 8, 16)
    gaussian = [gaussian_filter(image, 2 * NYQUIST_KAPPA * (s * s - 1)) for s in steps]
    heat = [filtered(field, n, s) for s in steps]
    worst = max(float(np.abs(a - b).max()) for a, b in zip(gaussian, heat, strict=True))
    titles = ["t = 1", *(f"×1/{s}: t = {s}²" for s in steps[1:])]
    drawn = picture_figure([gaussian, heat], titles, ["Gaussian filter", "heat field, Φ(x, t)"])
    drawn.supxlabel(f"largest difference {worst:.1e} of the range", fontsize=8)
    return drawn


def crop(image: NDArray[Any], at: tuple[float, float], side: int) -> NDArray[Any]:
    """side×side pixels, or as many as there are, around a point (row, column) in fractions of the image."""
    tops = [round(fraction * n - side / 2) for fraction, n in zip(at, image.shape[:2], strict=True)]
    top, left = (min(max(0, t), max(0, n - side)) for t, n in zip(tops, image.shape[:2], strict=True))
    return image[top : top + side, left : left + side]


def busiest(image: NDArray[np.uint8], window: int = 64) -> tuple[float, float]:
    """Where an image has most detail, as fractions of its height and width."""
    luma = unit(image) @ LUMA_WEIGHTS
    detail = np.hypot(*np.gradient(luma)) if min(luma.shape) > 1 else luma
    window = min(window, *luma.shape)
    total = np.pad(detail.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    rows = total[window:] - total[:-window]
    sums = rows[:, window:] - rows[:, :-window]
    best = np.argwhere(sums > sums.max() * (1 - 1e-9)).mean(0)
    row, column = (best + window / 2) / luma.shape
    return float(row), float(column)


def derivatives_figure(
    models: Sequence[Any], image: Pixels, at: At = None, scale: int = 4, side: int = 160
) -> Figure:
    """Signal, gradient and Laplacian of an enlarged crop: exact for models, differences for the others."""
    source, target = degrade(crop(image, at or busiest(image), side), scale)
    size = target.shape[:2]
    columns = [("bicubic, differences", *_differences(resize(unit(source), size) @ LUMA_WEIGHTS))]
    for model in models:
        field = model.encode(unit(source))
        # Per input pixel; the differences are per output pixel.
        value, down, right, bent, curved = (
            to_numpy(field.render(size=size, derivative=order)) @ LUMA_WEIGHTS / scale ** sum(order)
            for order in ((0, 0), (1, 0), (0, 1), (2, 0), (0, 2))
        )
        columns.append((f"{model.name}, exact", value, np.hypot(down, right), bent + curved))
    columns.append(("target, differences", *_differences(unit(target) @ LUMA_WEIGHTS)))
    drawn = figure(2.3 * len(columns) + 0.3, 2.3 * 3 + 0.3)
    grid = drawn.subplots(3, len(columns))
    steepest = np.percentile(columns[-1][2], 99)
    sharpest = np.percentile(np.abs(columns[-1][3]), 97)
    styles = [
        ("signal Φ", {"cmap": "gray", "vmin": 0, "vmax": 1}),
        ("gradient |∇Φ|", {"cmap": "magma", "vmin": 0, "vmax": steepest}),
        ("Laplacian ΔΦ", {"cmap": "RdBu", "vmin": -sharpest, "vmax": sharpest}),
    ]
    for j, (title, *values) in enumerate(columns):
        grid[0, j].set_title(title, fontsize=9)
        for i, (shown, (label, style)) in enumerate(zip(values, styles, strict=True)):
            grid[i, j].imshow(shown, interpolation="nearest", **style)
            grid[i, j].set(xticks=[], yticks=[])
            if j == 0:
                grid[i, j].set_ylabel(f"{label}", fontsize=9)
    return drawn


def _differences(luma: Image) -> tuple[Image, Image, Image]:
    """The signal, the length of its gradient, and its Laplacian, by central differences per pixel."""
    padded = np.pad(luma, 1, mode="edge")
    above, below, left, right = padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]
    return luma, np.hypot(below - above, right - left) / 2, above + below + left + right - 4 * luma


def zoom_figure(
    model: Any, image: Pixels, at: At = None, scales: Sequence[float] = ZOOMS, side: int = 320
) -> Figure:
    """One field at growing non-integer scales, in panels of equal size around one point."""
    field = model.encode(unit(image))
    height, width = image.shape[:2]
    row, column = np.multiply(at or busiest(image, 16), (height, width))
    panels = []
    for scale in scales:
        half = min(side / scale, height, width) / 2
        top = min(max(row - half, 0), height - 2 * half)
        left = min(max(column - half, 0), width - 2 * half)
        region = (top, left, top + 2 * half, left + 2 * half)
        panels.append(to_numpy(field.render(size=(side, side), region=region)))
    return picture_figure([panels], [f"×{scale:g}" for scale in scales])


def local_fields_figure(model: Any, image: Pixels, at: At = None, cells: int = 6, zoom: int = 40) -> Figure:
    """A few input pixels, and their local fields as they are (t = 0) and blurred to one pixel (t = 1)."""
    height, width = image.shape[:2]
    corner = np.multiply(at or busiest(image, 16), (height, width)).astype(int) - cells // 2
    top, left = (int(np.clip(c, 0, n - cells)) for c, n in zip(corner, (height, width), strict=True))
    field = model.encode(unit(image))
    size, region = (cells * zoom, cells * zoom), (top, left, top + cells, left + cells)
    panels = {
        "input pixels": np.kron(
            unit(image)[top : top + cells, left : left + cells], np.ones((zoom, zoom, 1))
        ),
        "local fields, t = 0": to_numpy(field.render(size=size, region=region, psf=Point())),
        "local fields, t = 1": to_numpy(field.render(size=size, region=region, psf=Gaussian(t=1.0))),
    }
    drawn = picture_figure([list(panels.values())], list(panels))
    for axes in drawn.axes:
        for line in range(1, cells):
            axes.axhline(line * zoom - 0.5, color="white", lw=0.3)
            axes.axvline(line * zoom - 0.5, color="white", lw=0.3)
    return drawn


def crops_figure(
    models: Sequence[Any], image: Pixels, at: At = None, scale: float = 6, side: int = 160
) -> Figure:
    """A crop of an enlarged image: the input's pixels, bicubic, each model, and the target."""
    source, target = degrade(image, scale)
    size = target.shape[:2]
    low = unit(source)
    panels = {f"input ×{scale:g}": resize(low, size, "nearest"), "bicubic": resize(low, size)}
    panels |= {model.name: model.upscale(low, size=size, ensemble=True) for model in models}
    panels["target"] = unit(target)
    where = at or busiest(target)
    return picture_figure([[crop(panel, where, side) for panel in panels.values()]], list(panels))


def zone_plate(side: int = 256) -> NDArray[np.float32]:
    """Rings whose frequency grows from zero in the middle to Nyquist at the edges, side×side×3."""
    axis = np.arange(side) - (side - 1) / 2
    rings = 0.5 + 0.5 * np.cos(math.pi / side * (axis[:, None] ** 2 + axis**2))
    return np.repeat(rings[..., None], 3, axis=2).astype(np.float32)


def aliasing_figure(model: Any, scale: float = 0.42, side: int = 320) -> Figure:
    """A reduced zone plate: point samples of the field alias, the field at the right t does not."""
    image = zone_plate(side)
    field = model.encode(image)
    size = (round(side * scale), round(side * scale))
    panels = {
        "nearest pixel": resize(image, size, "nearest"),
        "field, point samples (t = 0)": to_numpy(field.render(size=size, psf=Point())),
        f"field at t = {scale**-2:.2g}": to_numpy(field.render(size=size)),
        "bicubic, antialiased": resize(image, size),
    }
    drawn = picture_figure([list(panels.values())], list(panels))
    drawn.supxlabel(f"zone plate of {side}×{side} pixels at ×{scale:g}", fontsize=8)
    return drawn
