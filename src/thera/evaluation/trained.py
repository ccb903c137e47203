"""What `thera ablations` trained for the page of results: methods, downsamplers, the paper's ablations.

Each file of measurements has one beside it that states the budget, and what each row has seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from thera.errors import InvalidInput
from thera.evaluation.ablation import ablation_markdown
from thera.evaluation.bench import human_ms
from thera.evaluation.protocol import PROTOCOL
from thera.evaluation.records import Record, read_records
from thera.evaluation.tables import BENCHMARKS, markdown_grid, published_metric, summarise, to_markdown
from thera.field.psf import NYQUIST_KAPPA

TRAINED = "Trained and measured by `thera ablations`, every row with the same budget"
METHODS = (
    "[Methods](methods.md) that compute more have seen fewer patches. Thera's heat fields have GPU kernels "
    "of their own; other decoders run what PyTorch compiles, in training, and all but CLIT and MSIT where a "
    "GPU runs them here; on CPUs nothing is compiled."
)
OLDER = (
    "These pictures were reduced by an earlier version of the protocol, rounded once instead of after each "
    "axis: compare them among each other."
)


@dataclass(frozen=True)
class Trained:
    """The measurements of one folder of runs, and what is known about these."""

    records: list[Record]
    budget: str
    seconds: float = 0.0  # of training, for each row
    command: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    kappa: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Trained:
        about = path.with_suffix(".json")
        if not about.exists():
            raise InvalidInput(
                f'{about} is missing: it must state the budget of the runs, {{"budget": "…"}}.'
            )
        return cls(read_records(path), **json.loads(about.read_text("utf-8")))

    @property
    def sets(self) -> list[str]:
        return list(dict.fromkeys(record["data"] for record in self.records))

    @property
    def scales(self) -> list[float]:
        return sorted({record["scale"] for record in self.records})

    def mean_quality(self) -> tuple[list[str], dict[str, list[float | None]]]:
        """The benchmark sets, and the mean over them of each method's PSNR of Y, one pass, at each scale."""
        sets = [name for name in self.sets if name in BENCHMARKS]
        passes = [record for record in self.records if not record["method"].endswith("+")]
        found: dict[str, list[list[float | None]]] = {}
        for data in sets:
            for row in summarise(passes, data, "psnr_y", self.scales).rows:
                found.setdefault(row.label, []).append([cell.value for cell in row.cells])
        return sets, {
            label: [
                fmean(column) if len(lines) == len(sets) and None not in column else None
                for column in zip(*lines, strict=True)
            ]
            for label, lines in found.items()
        }

    def costs(self, bench: Sequence[Record]) -> dict[str, dict[str, Record]]:
        """Where time was measured in f32 with PyTorch, which runs all methods; then each method's record.

        Only what was measured for at least half of the methods.
        """
        networks = {row["method"]: row["network"] for row in self.rows}
        found: dict[str, dict[str, Record]] = {}
        for record in bench:
            size = f"{record['width']}×{record['height']} ×{record['scale']:g}"
            place = found.setdefault(f"{size}, {record['machine']}", {})
            for method, network in networks.items():
                alike = record["precision"] == "f32" and record["engine"] == "torch"
                if alike and network == f"{record['backbone']}-{record['variant']}":
                    place[method] = min(place.get(method, record), record, key=total_ms)
        return {where: costs for where, costs in found.items() if 2 * len(costs) >= len(networks) > 0}


def total_ms(record: Record) -> float:
    """The time of a picture: encoding and rendering."""
    return record["encode_ms"] + record["render_ms"]


def sections(folder: Path, bench: Sequence[Record]) -> list[str]:
    """The page's sections of everything that was trained, one for each file of measurements."""
    kinds: dict[str, tuple[str, str, Callable[[list[Record]], str]]] = {
        "methods": ("Methods, trained alike", METHODS, methods_markdown),
        "kernels": ("Trained on other downsamplers", "", methods_markdown),
        "filters": ("Trained through other filters", "", methods_markdown),
        "ablation": ("Ablations", "", ablation_markdown),
    }
    page = []
    for kind, (title, about, write) in kinds.items():
        for path in sorted(folder.glob(f"{kind}*.jsonl")):
            if not read_records(path):
                continue
            trained = Trained.read(path)
            minutes = trained.seconds / 60
            length = f", {round(minutes, 2):g} minute{'s' if minutes != 1 else ''} each" if minutes else ""
            page.append(f"## {title}{length}")
            page.append(f"{TRAINED}: {trained.budget} {about}".rstrip())
            if trained.command:
                scales = " ".join(f"{scale:g}" for scale in trained.scales)
                options = f"--data photos/ --validate {' '.join(trained.sets)} --scales {scales}"
                page.append(f"Reproduced by:\n\n```\n{trained.command} {options}\n```")
            if trained.rows:
                page.append(_seen(trained, bench))
            if any(record.get("protocol", 1) != PROTOCOL for record in trained.records):
                page.append(OLDER)
            page += [write(trained.records), *_kappas(trained.kappa)]
    return page


def _seen(trained: Trained, bench: Sequence[Record]) -> str:
    """One table: what each row has, has seen, reaches and costs."""
    sets, quality = trained.mean_quality()
    costs = trained.costs(bench)
    several = len({row["seed"] for row in trained.rows}) > 1
    header = ["", "added parameters", "steps", "patches", "seconds"]
    header += [f"×{scale:g}, dB" for scale in trained.scales] if sets else []
    header += [f"{what}, {where}" for where in costs for what in ("ms", "MiB")]
    lines = []
    for row in trained.rows:
        name = f"{row['method']}, seed {row['seed']}" if several else row["method"]
        line = [name, f"{row['added_parameters']:,}", f"{row['steps']:,}", f"{row['patches']:,}"]
        line.append(f"{row['took']:.0f}")
        if sets:
            values = quality.get(row["method"], [None] * len(trained.scales))
            line += ["—" if value is None else f"{value:.2f}" for value in values]
        for place in costs.values():
            if record := place.get(row["method"]):
                line += [human_ms(total_ms(record)), f"{record['memory_mib']:,}"]
            else:
                line += ["—"] * 2
        lines.append(line)
    notes = ["Seconds are those of training."]
    if sets:
        notes.append(
            f"dB are means over {', '.join(sets)} of the PSNR of Y, one pass; — where pictures are missing."
        )
    if costs:
        notes.append("Times are in f32, with PyTorch.")
    return f"{markdown_grid(header, lines)}\n\n{' '.join(notes)}"


def _kappas(found: dict[str, list[float]]) -> list[str]:
    """κ after training, with its standard deviation if there were several seeds."""
    if not found:
        return []
    rows = []
    for name, kappas in found.items():
        spread = f" ± {stdev(kappas):.4f}" if kappas[1:] else ""
        rows.append([name, f"{fmean(kappas):.4f}{spread}", f"{fmean(kappas) / NYQUIST_KAPPA:.2f}"])
    return [markdown_grid(["", "κ after training", "of the Gaussian's"], rows)]


def methods_markdown(records: Sequence[Record]) -> str:
    """Tables of each data set: one pass is compared with one pass, the ensemble with the ensemble."""
    parts = []
    for data in dict.fromkeys(record["data"] for record in records):
        for ensemble in (False, True):
            part = [record for record in records if record["method"].endswith("+") == ensemble]
            if any(record["data"] == data for record in part):
                table = summarise(part, data, published_metric(data))
                table.title += ", ensemble" if ensemble else ", one pass"
                parts.append(to_markdown(table))
    return "\n\n".join(part.strip() for part in parts)
