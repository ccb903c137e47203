"""Charts: the frequency bank, and quality against scale and against parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from thera.errors import InvalidInput
from thera.evaluation.figures import Figure, Image, figure
from thera.evaluation.paper import quoted_parameters, quoted_rows
from thera.evaluation.records import Record
from thera.evaluation.resize import cubic
from thera.evaluation.tables import METRIC_STYLES, Row, published_metric, summarise
from thera.evaluation.trained import Trained, total_ms
from thera.field.psf import NYQUIST_KAPPA
from thera.networks.spec import BACKBONES, VARIANTS

RED, BLUE, GREY = "#cf3866", "#3b3dac", "#777777"
COLOURS = (RED, BLUE, "#f3883d", "#2f9e62", "#b566c7", "#c9a227")
LEAST_ALIASING = 1e-4  # records are rounded to it; a logarithmic axis has no 0
BASELINE_STYLES = {"nearest": ":", "bicubic": "-", "lanczos": "--"}


def bank_figure(components: Image, kappa: float, title: str) -> Figure:
    """The frequency bank: a polar scatter plot, and histograms of lengths and directions."""
    length, angle = np.hypot(*components) / math.pi, np.arctan2(components[0], components[1])
    drawn = figure(8, 3.4)
    polar = drawn.add_subplot(1, 2, 1, projection="polar")
    polar.scatter(angle, length, s=9, color=RED, alpha=0.7, linewidths=0)
    polar.set_title(f"{title}: {components.shape[1]} components, κ = {kappa:.4f}", fontsize=9)
    polar.tick_params(labelsize=7)
    polar.set_rticks(range(1, math.ceil(length.max()) + 1, max(1, round(length.max() / 5))))
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


def psf_figure(kappa: float, title: str) -> Figure:
    """What an output pixel sees of the field: the heat kernel at several scales, and classical kernels."""
    drawn = figure(5.6, 3.2)
    axes = drawn.subplots()
    x = np.linspace(-2, 2, 801)
    for t, name, colour in ((1, "×1", RED), (1 / 4, "×2", BLUE), (1 / 16, "×4", "#f3883d")):
        value = np.exp(-(x**2) / (4 * kappa * t)) / math.sqrt(4 * math.pi * kappa * t)
        axes.plot(x, value, color=colour, label=f"{name}: t = {t:g}")
    theory = np.exp(-(x**2) / (4 * NYQUIST_KAPPA)) / math.sqrt(4 * math.pi * NYQUIST_KAPPA)
    axes.plot(x, theory, color=RED, lw=0.8, ls=":", label="×1 with the κ of theory")
    axes.plot(x, cubic(x), color=GREY, lw=0.8, ls="--", label="×1: bicubic")
    axes.plot(x, 1.0 * (np.abs(x) <= 0.5), color=GREY, lw=0.8, label="×1: a pixel's area")
    axes.set_xlabel("input pixels", fontsize=8)
    axes.set_ylabel("weight", fontsize=8)
    axes.set_title(f"{title}: point spread function, κ = {kappa:.4f}", fontsize=9)
    return _finished(axes, drawn)


def psnr_scale_figure(records: Sequence[Record], data: str, metric: str | None = None) -> Figure:
    """A metric against the scale, one line per method; relative to bicubic if it was measured.

    A method has one colour. Its ensemble is dashed if a single pass is drawn, too.
    """
    metric = metric or published_metric(data)
    table = summarise(records, data, metric)
    scales = [float(column[1:]) for column in table.columns]
    values = {row.label: [cell.value for cell in row.cells] for row in table.rows}
    base = values.get("bicubic", [0.0] * len(scales))
    drawn = figure(5.2, 3.4)
    axes = drawn.subplots()
    methods = dict.fromkeys(label.removesuffix("+") for label in values if label not in BASELINE_STYLES)
    colours = dict(zip(methods, cycle(COLOURS), strict=False))
    for label, line in values.items():
        gain = [math.nan if v is None or b is None else v - b for v, b in zip(line, base, strict=True)]
        if label in BASELINE_STYLES:
            axes.plot(scales, gain, label=label, color=GREY, lw=1, ls=BASELINE_STYLES[label])
        else:
            method = label.removesuffix("+")
            dashed = "--" if method != label and method in values else "-"
            style = ":" if label.endswith("sinc") else dashed
            axes.plot(scales, gain, label=label, color=colours[method], lw=1.3, ls=style, marker="o", ms=3.5)
    axes.set_xscale("log")
    axes.set_xticks(scales, [f"×{scale:g}" for scale in scales])
    axes.minorticks_off()
    title = METRIC_STYLES[metric].title
    axes.set_ylabel(f"{title} above bicubic" if "bicubic" in values else title, fontsize=8)
    axes.set_title(f"{data}: measured here", fontsize=9)
    return _finished(axes, drawn)


def alias_scale_figure(records: Sequence[Record]) -> Figure:
    """Aliasing against the scale, from the records of `aliasing.measure`: below ×1, and beside it above.

    Heat fields are red, classical filters grey, all others blue. Names stand at the ends of the lines.
    """
    drawn = figure(7.6, 4.2)
    from matplotlib.ticker import LogLocator  # an extra, which `figure` asks for

    scales = [float(scale) for scale in records[0]["aliasing"]]
    panels = drawn.subplots(1, 2)
    for axes, chosen in zip(panels, (np.array(scales) < 1, np.array(scales) > 1), strict=True):
        x, ends = np.array(scales)[chosen], {}
        for record in records:
            name = record["method"]
            values = np.array(list(record["aliasing"].values()))[chosen].clip(LEAST_ALIASING)
            colour, width = (RED, 1.6) if is_heat_field(name) else (BLUE, 0.8)
            colour = GREY if name in BASELINE_STYLES else colour
            line = BASELINE_STYLES.get(name, "-")
            axes.plot(x, values, label=name, color=colour, lw=width, ls=line, marker="o", ms=2.5)
            ends[name] = values[-1], colour
        axes.set_xscale("log")
        axes.set_xticks(x, [f"×{scale:g}" for scale in x], rotation=90)
        axes.minorticks_off()
        if axes is panels[0]:
            axes.set_yscale("log")  # some methods show a hundred times what others do
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.set_ylabel("contrast that is not in the plate", fontsize=8)
        _finished(axes, drawn, legend=False)
        _name_ends(axes, x[-1], ends)
    drawn.suptitle("A zone plate made smaller and larger: aliasing", fontsize=9)
    return drawn


def is_heat_field(name: str) -> bool:
    """Whether a method of this name is Thera, by the names of its networks and of its rows in tables."""
    return name.startswith("Thera") or name.rstrip("+") in {f"{b}-{v}" for b in BACKBONES for v in VARIANTS}


def _name_ends(axes: Any, x: float, ends: dict[str, tuple[float, str]]) -> None:
    """Write names to the right of the ends of lines at `x`, one above the other where they would overlap."""
    low, high = axes.get_ylim()
    height = np.log if axes.get_yscale() == "log" else np.asarray
    order = sorted(ends, key=lambda name: ends[name][0])
    at = (height([ends[name][0] for name in order]) - height(low)) / (height(high) - height(low))
    steps = 0.04 * np.arange(len(order))  # a line of text each, as a share of the height
    apart = at - steps
    # Names pushed up until they are a line apart, and names pushed down: the mean of both is as far apart.
    up = (np.maximum.accumulate(apart) + np.minimum.accumulate(apart[::-1])[::-1]) / 2 + steps
    up -= max(0.0, up[-1] - 1.0)
    for name, place in zip(order, up, strict=True):
        value, colour = ends[name]
        axes.annotate(
            name, (x, value), (1.06, place), textcoords="axes fraction", fontsize=6, color=colour,
            va="center", arrowprops={
                "arrowstyle": "-", "lw": 0.3, "color": colour, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 2
            },
        )  # fmt: skip


def pareto_figure(
    records: Sequence[Record], added: dict[str, int], data: str, scales: Sequence[float] = (2, 3, 4)
) -> Figure:
    """Mean PSNR over the scales against added parameters: points measured here, and the paper's.

    `added` gives the parameters of each measured model by its label without the plus of the ensemble. If the
    paper has no numbers for the data set, all points are gains over bicubic, the paper's on DIV2K.
    """
    metric = published_metric(data)
    measured = _means(summarise(records, data, metric, scales).rows)
    points = {name: mean for name, mean in measured.items() if name.rstrip("+") in added}
    if not points:
        raise InvalidInput(
            f"No model with known parameters was measured on {data} at all of {list(scales)}: run "
            "thera eval first."
        )
    quoted, where = _means(quoted_rows(data, metric, scales)), f"{data}: filled measured here, hollow quoted"
    title = METRIC_STYLES[metric].title
    if not quoted:
        quoted = _above("Bicubic", _means(quoted_rows("DIV2K", "psnr_rgb", scales)))
        quoted = {label: gain for label, gain in quoted.items() if label.endswith("(EDSR-baseline)")}
        points = {name: gain for name, gain in _above("bicubic", measured).items() if name in points}
        where, title = f"filled measured here on {data}, hollow quoted on DIV2K", f"{title} above bicubic"
    drawn = figure(5.2, 3.6)
    axes = drawn.subplots()
    parameters = quoted_parameters()
    named = {label.partition(" (")[0]: value for label, value in quoted.items()}
    here = [Spot(label, float(added[label.rstrip("+")]), value) for label, value in points.items()]
    theirs = [Spot(name, float(parameters[name]), v) for name, v in named.items() if name in parameters]
    _mark(axes, here, 7)
    _mark(axes, theirs, 6, hollow=True)
    _label(axes, here + theirs)
    axes.set_xscale("log")
    axes.set_xlabel("added parameters", fontsize=8)
    axes.set_ylabel(f"{title}, mean of " + ", ".join(f"×{scale:g}" for scale in scales), fontsize=8)
    backbones = sorted({label.partition(" (")[2].rstrip(")") for label in quoted} - {""})
    axes.set_title(f"{where} ({', '.join(backbones)}, trained on DIV2K)", fontsize=8)
    axes.margins(x=0.2, y=0.15)
    return _finished(axes, drawn, legend=False)


def cost_figure(trained: Trained, bench: Sequence[Record]) -> Figure:
    """Quality at each scale against the time of a picture, of methods that were trained alike: one pass.

    The time is that of the first size and machine where most methods were measured.
    """
    sets, quality = trained.mean_quality()
    costs = trained.costs(bench)
    if not sets or not costs:
        raise InvalidInput(
            "Quality against time needs methods measured on a benchmark set, and their times: name the files "
            "of thera ablations --validate and of thera bench --precision f32."
        )
    where, place = next(iter(costs.items()))
    columns = min(3, len(trained.scales))
    lines = -(-len(trained.scales) // columns)
    drawn = figure(3.1 * columns + 0.3, 2.7 * lines + 0.3)
    grid = drawn.subplots(lines, columns, squeeze=False).flatten()
    for axes in grid[len(trained.scales) :]:
        axes.axis("off")
    for i, (scale, axes) in enumerate(zip(trained.scales, grid, strict=False)):
        spots = [
            Spot(name, total_ms(place[name]), value)
            for name, values in quality.items()
            if name in place and (value := values[i]) is not None
        ]
        _mark(axes, spots, 4)
        _label(axes, spots)
        axes.set_xscale("log")
        axes.set_title(f"×{scale:g}", fontsize=8)
        axes.margins(x=0.15, y=0.2)
        _finished(axes, drawn, legend=False)
    drawn.supxlabel(f"ms, {where}", fontsize=8)
    drawn.supylabel(f"PSNR of Y, dB: mean of {', '.join(sets)}", fontsize=8)
    return drawn


class Spot(NamedTuple):
    """A method in a scatter plot, whose x is drawn logarithmically."""

    name: str
    x: float
    y: float

    @property
    def colour(self) -> str:
        return RED if is_heat_field(self.name) else GREY


def _mark(axes: Any, spots: Sequence[Spot], size: float, hollow: bool = False) -> None:
    """Heat fields as red triangles, all others as grey circles."""
    for spot in spots:
        marker, face = "^" if spot.colour == RED else "o", "none" if hollow else spot.colour
        axes.plot(spot.x, spot.y, color=spot.colour, marker=marker, mfc=face, ls="", ms=size)


def _label(axes: Any, spots: Sequence[Spot]) -> None:
    """Write the names of methods beside them."""
    for spot, (across, up) in zip(spots, _label_sides(spots), strict=True):
        axes.annotate(
            spot.name, (spot.x, spot.y), (4 * across, 4 * up), fontsize=6, textcoords="offset points",
            color=spot.colour, ha=("right", "center", "left")[across + 1],
            va=("top", "center", "bottom")[up + 1],
        )  # fmt: skip


def _label_sides(spots: Sequence[Spot]) -> list[tuple[int, int]]:
    """The side of its point on which each label hides least: across and up, from -1 to 1."""
    at = np.array([(math.log(spot.x), spot.y) for spot in spots])
    at = (at - at.min(0)) / np.maximum(at.max(0) - at.min(0), 1e-9)
    taken = [(x, y, 0.03, 0.03) for x, y in at]  # centres and half sizes
    chosen = []
    for spot, (x, y) in zip(spots, at, strict=True):
        half = 0.014 * len(spot.name)
        options: list[tuple[int, int, int, int]] = []  # what is hidden, order, across, up
        boxes = []
        for across, up in ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, -1), (1, -1), (-1, 1)):
            box = (x + across * (half + 0.04), y + up * 0.08, half, 0.04)
            hidden = sum(
                abs(box[0] - other[0]) < box[2] + other[2] and abs(box[1] - other[1]) < box[3] + other[3]
                for other in taken
            )
            options.append((hidden, len(options), across, up))
            boxes.append(box)
        _, order, across, up = min(options)
        taken.append(boxes[order])
        chosen.append((across, up))
    return chosen


def _means(rows: Sequence[Row]) -> dict[str, float]:
    """The mean over the columns of each row without gaps."""
    values = {row.label: [cell.value for cell in row.cells] for row in rows}
    return {label: float(np.mean(v)) for label, v in values.items() if None not in v}  # type: ignore[arg-type]


def _above(base: str, means: dict[str, float]) -> dict[str, float]:
    """Each mean minus that of `base`; empty if `base` was not measured."""
    return {label: mean - means[base] for label, mean in means.items()} if base in means else {}


def _finished(axes: Any, drawn: Figure, legend: bool = True) -> Figure:
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.25, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return drawn
