"""Pictures of what fields do, as in the paper. Every function gives a matplotlib Figure, `save` writes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thera.evaluation.fit import filtered, fit_whole, gaussian_filter
from thera.evaluation.images import read
from thera.evaluation.metrics import LUMA_WEIGHTS
from thera.evaluation.protocol import degrade, unit
from thera.evaluation.resize import resize
from thera.field import Point
from thera.field.psf import NYQUIST_KAPPA, to_numpy
from thera.models.optional import require

Figure = Any  # matplotlib's, which is an extra
Image = NDArray[np.floating]


def figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, drawn without a display."""
    module = require("matplotlib.figure", "figures", "A figure")
    return module.Figure(figsize=(width, height), layout="constrained", dpi=160)


def save(drawn: Figure, path: Path) -> None:
    """Write a figure; the suffix says how (PNG, PDF, SVG)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path)


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
    image = central_crop(pixels, n) / 255.0
    field = fit_whole(image)
    steps = (1, 4, 8, 16)
    gaussian = [gaussian_filter(image, 2 * NYQUIST_KAPPA * (s * s - 1)) for s in steps]
    heat = [filtered(field, n, s) for s in steps]
    worst = max(float(np.abs(a - b).max()) for a, b in zip(gaussian, heat, strict=True))
    titles = ["t = 1", *(f"×1/{s}: t = {s}²" for s in steps[1:])]
    drawn = picture_figure([gaussian, heat], titles, ["Gaussian filter", "heat field, Φ(x, t)"])
    drawn.supxlabel(f"largest difference {worst:.1e} of the range", fontsize=8)
    return drawn


def central_crop(image: NDArray[Any], height: int, width: int | None = None) -> NDArray[Any]:
    """The middle of an image.

    >>> central_crop(np.zeros((9, 9, 3)), 3, 5).shape
    (3, 5, 3)
    """
    width = height if width is None else width
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return image[max(0, top) : max(0, top) + height, max(0, left) : max(0, left) + width]


def derivatives_figure(model: Any, image: NDArray[np.uint8], scale: int = 4, side: int = 96) -> Figure:
    """Signal, gradient and Laplacian of an enlarged crop: the field's exactly, the others' by differences."""
    source, target = degrade(central_crop(image, side * 2), scale)
    size = target.shape[:2]
    field = model.encode(unit(source))

    def exact(*order: int) -> Image:
        # Per input pixel; the differences below are per output pixel.
        return to_numpy(field.render(size=size, derivative=order)) @ LUMA_WEIGHTS / scale ** sum(order)

    columns = [
        ("bicubic, differences", *_differences(resize(unit(source), size) @ LUMA_WEIGHTS)),
        ("field, exact", exact(0, 0), np.hypot(exact(1, 0), exact(0, 1)), exact(2, 0) + exact(0, 2)),
        ("target, differences", *_differences(unit(target) @ LUMA_WEIGHTS)),
    ]
    drawn = figure(2.3 * 3 + 0.3, 2.3 * 3 + 0.3)
    grid = drawn.subplots(3, 3)
    steepest = np.percentile(columns[2][2], 99)
    curved = np.percentile(np.abs(columns[2][3]), 97)
    styles = [
        ("signal Φ", {"cmap": "gray", "vmin": 0, "vmax": 1}),
        ("gradient |∇Φ|", {"cmap": "magma", "vmin": 0, "vmax": steepest}),
        ("Laplacian ΔΦ", {"cmap": "RdBu", "vmin": -curved, "vmax": curved}),
    ]
    for j, (title, *values) in enumerate(columns):
        grid[0, j].set_title(title, fontsize=9)
        for i, (value, (label, style)) in enumerate(zip(values, styles, strict=True)):
            grid[i, j].imshow(value, interpolation="nearest", **style)
            grid[i, j].set(xticks=[], yticks=[])
            if j == 0:
                grid[i, j].set_ylabel(f"{label}", fontsize=9)
    return drawn


def _differences(luma: Image) -> tuple[Image, Image, Image]:
    """The signal, its gradient's length and its Laplacian by central differences, per pixel."""
    padded = np.pad(luma, 1, mode="edge")
    down, right = (padded[2:, 1:-1] - padded[:-2, 1:-1]) / 2, (padded[1:-1, 2:] - padded[1:-1, :-2]) / 2
    around = padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2]
    return luma, np.hypot(down, right), around - 4 * luma


def zoom_figure(
    model: Any,
    image: NDArray[np.uint8],
    scales: Sequence[float] = (1.7, 3.3, 6.1, 11.4, 21.7),
    centre: tuple[float, float] | None = None,
    side: int = 320,
) -> Figure:
    """One field at growing non-integer scales, each panel the same number of pixels around one point."""
    field = model.encode(unit(image))
    height, width = image.shape[:2]
    row, column = centre or (height / 2, width / 2)
    below = []
    for scale in scales:
        half = min(side / scale, height, width) / 2
        top = min(max(row - half, 0), height - 2 * half)
        left = min(max(column - half, 0), width - 2 * half)
        region = (top, left, top + 2 * half, left + 2 * half)
        below.append(to_numpy(field.render(size=(side, side), region=region)))
    return picture_figure([below], [f"×{scale:g}" for scale in scales])


def crops_figure(
    models: Sequence[Any], image: NDArray[np.uint8], scale: float = 6, ensemble: bool = True, side: int = 192
) -> Figure:
    """The middle of an enlarged image: the input's pixels, bicubic, each model, and the target."""
    source, target = degrade(image, scale)
    size = target.shape[:2]
    low = unit(source)
    panels = [("input", resize(low, size, "nearest")), ("bicubic", resize(low, size))]
    panels += [(model.name, model.upscale(low, size=size, ensemble=ensemble)) for model in models]
    panels.append(("target", unit(target)))
    crops = [central_crop(panel, min(side, *size)) for _, panel in panels]
    return picture_figure(
        [crops], [f"{title}{f' ×{scale:g}' * (i == 0)}" for i, (title, _) in enumerate(panels)]
    )


def zone_plate(side: int = 256) -> NDArray[np.float32]:
    """Rings whose frequency grows from none in the middle to Nyquist's at the edges, side×side×3.

    >>> zone_plate(64).shape
    (64, 64, 3)
    """
    axis = np.arange(side) - (side - 1) / 2
    rings = 0.5 + 0.5 * np.cos(math.pi / side * (axis[:, None] ** 2 + axis**2))
    return np.repeat(rings[..., None], 3, axis=2).astype(np.float32)


def aliasing_figure(model: Any, scale: float = 0.42, side: int = 320) -> Figure:
    """A zone plate made smaller: point samples of the field alias, the field at the right t does not."""
    image = zone_plate(side)
    field = model.encode(image)
    size = (round(side * scale), round(side * scale))
    panels = [
        resize(image, size, "nearest"),
        to_numpy(field.render(size=size, psf=Point())),
        to_numpy(field.render(size=size)),
        resize(image, size),
    ]
    titles = [
        "nearest pixel",
        "field, point samples (t = 0)",
        f"field at t = {scale**-2:.2g}",
        "bicubic, antialiased",
    ]
    drawn = picture_figure([panels], titles)
    drawn.supxlabel(f"zone plate of {side}×{side} pixels at ×{scale:g}", fontsize=8)
    return drawn
