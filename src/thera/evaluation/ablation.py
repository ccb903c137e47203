"""The table of the paper's ablations, trained here for minutes: which of the paper's effects appear?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from thera.evaluation.paper import paper
from thera.evaluation.records import Record
from thera.evaluation.tables import markdown_grid, published_metric, summarise, to_markdown

FULL = "Thera Plus"  # the model that ablations are compared with
NOTICEABLE = 0.02  # dB; three runs of the paper differ by less


def at_patches_of(name: str) -> str:
    """The row of the full model that has seen only as many patches as the row of this name."""
    return f"{FULL} at the patches of {name}"


def ablation_markdown(records: Sequence[Record]) -> str:
    """What was measured, and each ablation's difference to the full model beside the paper's."""
    sections = []
    quoted = paper()["tables"]["ablation"]
    paper_scales = [column["scale"] for column in quoted["columns"]]
    theirs = {row["method"]: dict(zip(paper_scales, row["values"], strict=True)) for row in quoted["rows"]}
    order = {name: place for place, name in enumerate(theirs)}  # other rows come last
    records = sorted(records, key=lambda record: order.get(record["method"].rstrip("+"), len(order)))
    for data in dict.fromkeys(record["data"] for record in records):
        table = summarise(records, data, published_metric(data))
        scales = [float(column[1:]) for column in table.columns]
        ours = {row.label: dict(zip(scales, [c.value for c in row.cells], strict=True)) for row in table.rows}
        sections.append(to_markdown(table))
        full = ours.get(FULL) or ours.get(f"{FULL}+")
        if full is None:
            continue
        header = [f"dB against {FULL}", "×2 to ×4, here", "quoted", "beyond, here", "quoted"]
        header.append("in the paper's direction")
        rows = []
        for name, values in ours.items():
            reference = theirs.get(name.rstrip("+"))
            if values is full or reference is None:
                continue
            effects = []
            for inside in (True, False):
                chosen = [s for s in scales if (s <= 4) == inside]
                effects.append(_difference(values, full, chosen))
                effects.append(_difference(reference, theirs[FULL], [s for s in chosen if s in reference]))
            rows.append([name, *map(_signed, effects), _verdict(effects)])
        sections.append(markdown_grid(header, rows))
        sections += _at_equal_patches(ours, scales)
    sections.append(
        "Quoted differences are the paper's, on DIV2K after full training. A difference below "
        f"{NOTICEABLE} dB counts as none. What trains more slowly has seen less in the same time."
    )
    return "\n\n".join(section.strip() for section in sections)


def _at_equal_patches(ours: dict[str, dict], scales: Sequence[float]) -> list[str]:
    """The rows that saw fewer patches, against the full model after as many."""
    rows = []
    for name, values in ours.items():
        plus = "+" if name.endswith("+") else ""
        other = ours.get(at_patches_of(name.rstrip("+")) + plus)
        if other is not None:
            parts = [s for s in scales if s <= 4], [s for s in scales if s > 4]
            rows.append([name, *(_signed(_difference(values, other, part)) for part in parts)])
    header = [f"dB against {FULL} after as many patches", "×2 to ×4", "beyond"]
    return [markdown_grid(header, rows)] if rows else []


def _difference(values: dict, full: dict, scales: Sequence[float]) -> float | None:
    """The mean difference over the scales that both have."""
    known = [s for s in scales if values.get(s) is not None and full.get(s) is not None]
    return fmean(values[s] - full[s] for s in known) if known else None


def _signed(value: float | None) -> str:
    return "—" if value is None else f"{value:+.2f}"


def _verdict(effects: Sequence[float | None]) -> str:
    """Do the effects, within and beyond the scales of training, have the same sign as in the paper?"""

    def agree(ours: float | None, theirs: float | None) -> str:
        if ours is None or theirs is None:
            return "—"
        signs = [0 if abs(effect) < NOTICEABLE else math.copysign(1, effect) for effect in (ours, theirs)]
        return "yes" if signs[0] == signs[1] else "no"

    return ", ".join(map(agree, effects[::2], effects[1::2]))
