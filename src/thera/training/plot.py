"""A picture of a run: loss, validation, κ and rate over its steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thera.optional import require


def plot(log: list[dict[str, Any]], path: str | Path) -> None:
    """Plot a run's log. Validation scores are shown as gains over their first value, to share one axis."""
    figures = require("matplotlib.figure", "train", "the plot of a run")
    figure = figures.Figure(figsize=(10, 6), layout="constrained")
    (loss, scores), (kappa, rate) = figure.subplots(2, 2, sharex=True)
    steps = [entry["step"] for entry in log]
    loss.plot(steps, [255 * entry["l1"] for entry in log], lw=0.6, alpha=0.4, color="tab:blue")
    loss.plot(steps, smoothed([255 * entry["l1"] for entry in log]), color="tab:blue")
    loss.set_title("L1 (of 255)")
    for name in sorted({key for entry in log for key in entry if "×" in key}):
        found = [(entry["step"], entry[name]) for entry in log if name in entry]
        at, values = zip(*found, strict=True)
        scores.plot(at, [v - values[0] for v in values], marker=".", label=f"{name}: {values[-1]:.2f} dB")
    scores.set_title("validation: gain over the first (dB)")
    if scores.lines:
        scores.legend(fontsize="small")
    kappa.plot(steps, [entry.get("kappa") for entry in log], color="tab:green")
    kappa.set_title("κ")
    rate.plot(steps, [entry["rate"] for entry in log], color="tab:red")
    rate.set_title("learning rate")
    for axis in (kappa, rate):
        axis.set_xlabel("step")
    for axis in figure.axes:
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def smoothed(values: list[float], keep: float = 0.8) -> list[float]:
    """Exponential moving average."""
    out, mean = [], values[0] if values else 0.0
    for value in values:
        mean = keep * mean + (1 - keep) * value
        out.append(mean)
    return out
