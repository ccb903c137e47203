"""Charts: the frequency bank, and quality against scale and against parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from thera.errors import InvalidInput
from thera.evaluation.figures import Figure, Image, figure
from thera.evaluation.paper import quoted_parameters, quoted_rows
from thera.evaluation.runner import Record
from thera.evaluation.tables import METRIC_STYLES, published_metric, summarise

RED, BLUE, GREY = "#cf3866", "#3b3dac", "#777777"
COLOURS = (RED, BLUE, "#f3883d", "#2f9e62", "#b566c7", GREY, "#c9a227")


def bank_figure(components: Image, kappa: float, title: str) -> Figure:
    """The frequency bank: polar scatter, and how lengths and directions are distributed."""
    length, angle = np.hypot(*components) / math.pi, np.arctan2(components[0], components[1])
    drawn = figure(8, 3.4)
    polar = drawn.add_subplot(1, 2, 1, projection="polar")
    polar.scatter(angle, length, s=9, color=RED, alpha=0.7, linewidths=0)
    polar.set_title(f"{title}: {components.shape[1]} components, κ = {kappa:.4f}", fontsize=9)
    polar.tick_params(labelsize=7)
    polar.set_rlabel_position(22)
    polar.grid(alpha=0.5, lw=0.6)
    right = drawn.add_gridspec(2, 2)
    bins = max(6, round(math.sqrt(len(length)) * 1.2))
    radial = drawn.add_subplot(right[0, 1])
    radial.hist(length, bins=bins, color=RED, alpha=0.8)
    radial.set_xlabel("|w| / π, radians per input pixel", fontsize=8)
    directional = drawn.add_subplot(right[1, 1])
    directional.hist(np.degrees(angle) % 180, bins=bins, range=(0, 180), color=BLUE, alpha=0.8)
    directional.set_xlabel("direction of w, degrees (w and -w are one)", fontsize=8)
    directional.set_xticks([0, 45, 90, 135, 180])
    for axes in (radial, directional):
        axes.set_ylabel("components", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


def psnr_scale_figure(records: Sequence[Record], data: str, metric: str | None = None) -> Figure:
    """A metric against the scale, a line for each method, above bicubic where there is one."""
    metric = metric or published_metric(data)
    table = summarise(records, data, metric)
    scales = [float(column[1:]) for column in table.columns]
    values = {row.label: [cell.value for cell in row.cells] for row in table.rows}
    base = values.get("bicubic", [0.0] * len(scales))
    drawn = figure(5.2, 3.4)
    axes = drawn.subplots()
    for colour, (label, line) in zip(COLOURS * 9, values.items(), strict=False):
        gain = [math.nan if v is None or b is None else v - b for v, b in zip(line, base, strict=True)]
        style = (
            {"ls": "--", "lw": 1}
            if label in ("nearest", "bicubic", "lanczos")
            else {"marker": "o", "ms": 3.5}
        )
        axes.plot(scales, gain, label=label, color=colour, **style)
    axes.set_xscale("log")
    axes.set_xticks(scales, [f"×{scale:g}" for scale in scales])
    axes.minorticks_off()
    title = METRIC_STYLES[metric].title
    axes.set_ylabel(f"{title} above bicubic" if "bicubic" in values else title, fontsize=8)
    axes.set_title(f"{data}: measured here", fontsize=9)
    return _finished(axes, drawn)


def pareto_figure(
    records: Sequence[Record], added: dict[str, int], data: str, scales: Sequence[float] = (2, 3, 4)
) -> Figure:
    """Mean PSNR over the scales against added parameters: models measured here, the paper's points quoted.

    `added` gives the parameters of each measured model by its label without the plus of the ensemble.
    """
    metric = published_metric(data)
    drawn = figure(5.2, 3.6)
    axes = drawn.subplots()
    count = quoted_parameters()
    for row in quoted_rows(data, metric, scales):
        method, _, backbone = row.label.partition(" (")
        if method in count and all(cell.value is not None for cell in row.cells):
            mean = np.mean([cell.value for cell in row.cells])
            ours = method.startswith("Thera")
            style = {"marker": "^" if ours else "o", "mfc": "none", "ls": "", "ms": 6}
            axes.plot(count[method], mean, color=RED if ours else GREY, **style)
            axes.annotate(
                f"{method} ({backbone}", (count[method], mean), (4, 3), fontsize=6, textcoords="offset points"
            )
    drawn_any = False
    for row in summarise(records, data, metric, scales).rows:
        name = row.label.rstrip("+")
        if name in added and all(cell.value is not None for cell in row.cells):
            mean = np.mean([cell.value for cell in row.cells])
            axes.plot(added[name], mean, marker="^", ms=8, color=RED, ls="")
            axes.annotate(
                row.label, (added[name], mean), (5, -9), fontsize=7, textcoords="offset points", color=RED
            )
            drawn_any = True
    if not drawn_any:
        raise InvalidInput(
            f"No model with known parameters has been measured on {data} at all of {list(scales)}."
        )
    axes.set_xscale("log")
    axes.set_xlabel("added parameters", fontsize=8)
    axes.set_ylabel(
        f"{METRIC_STYLES[metric].title}, mean of " + ", ".join(f"×{s:g}" for s in scales), fontsize=8
    )
    axes.set_title(f"{data}: filled measured here, hollow quoted (trained on DIV2K)", fontsize=8)
    axes.margins(x=0.2, y=0.15)
    return _finished(axes, drawn, legend=False)


def _finished(axes: Any, drawn: Figure, legend: bool = True) -> Figure:
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.25, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(fontsize=7, frameon=False)
    return drawn
