"""The tables of the paper, quoted beside what is measured here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from thera.evaluation.tables import Cell, Row

QUOTED = (
    "Rows marked as quoted are the paper's. Its models were trained on DIV2K, those that come with Thera "
    "were not: a difference is one of training data and training time as well as of method."
)
# The tables that compare methods on data sets.
_COMPARISONS = ("div2k_psnr", "benchmark_psnr", "benchmark_psnr_ood", "ssim", "gmsd", "coz")
_NAMES = dict.fromkeys(("BSD100", "BSDS100"), "B100")
_NAMES |= dict.fromkeys(("DIV2K_valid_HR", "DIV2K"), "DIV2K validation")


@cache
def paper() -> dict[str, Any]:
    """All tables of the paper."""
    text = files("thera.evaluation").joinpath("paper_tables.json").read_text(encoding="utf-8")
    return json.loads(text)


def quoted_rows(data: str, metric: str, scales: Sequence[float]) -> list[Row]:
    """The paper's rows for a data set and a metric at the given scales; empty if there are none.

    >>> [row.label for row in quoted_rows("Set5", "psnr_y", [2, 8])][-1]
    'Thera Pro (RDN)'
    """
    data = _NAMES.get(data, data)
    rows: dict[str, dict[float, float]] = {}
    for table in (paper()["tables"][name] for name in _COMPARISONS):
        for row in table["rows"] if table["metric"] == metric else ():
            if row["method"].endswith("(std.)"):
                continue
            label = f"{row['method']} ({row['backbone']})" if row.get("backbone") else row["method"]
            for column, value in zip(table["columns"], row["values"], strict=True):
                if column.get("data", table.get("data")) == data:
                    rows.setdefault(label, {}).setdefault(column["scale"], value)
    return [
        Row(label, [Cell(values.get(scale)) for scale in scales], quoted=True)
        for label, values in rows.items()
        if any(values.get(scale) is not None for scale in scales)
    ]


def quoted_parameters() -> dict[str, int]:
    """The number of parameters that each method of the paper adds to its backbone."""
    rows = paper()["tables"]["div2k_psnr"]["rows"]
    return {row["method"]: row["added_parameters"] for row in rows if row["added_parameters"]}
