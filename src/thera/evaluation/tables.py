"""Tables of results in Markdown, CSV and LaTeX. The best value is bold, the second best underlined."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean, stdev
from typing import NamedTuple

from thera.errors import InvalidInput
from thera.evaluation.records import Record


class Metric(NamedTuple):
    """How a metric is printed."""

    title: str
    digits: int
    higher_is_better: bool = True


METRIC_STYLES = {
    "psnr_rgb": Metric("PSNR in RGB, dB", 2),
    "psnr_y": Metric("PSNR of Y, dB", 2),
    "psnr_y8": Metric("PSNR of Y rounded to 8 bits, dB", 2),
    "ssim": Metric("SSIM", 4),
    "gmsd": Metric("GMSD (lower is better)", 4, higher_is_better=False),
}
#: The benchmark sets, with the number of their images.
BENCHMARKS = {
    "Set5": 5, "Set14": 14, "B100": 100, "BSD100": 100, "BSDS100": 100, "Urban100": 100, "Manga109": 109,
}  # fmt: skip


def published_metric(data: str) -> str:
    """The PSNR that papers report for a data set: of Y for the benchmark sets, in RGB for others.

    >>> published_metric("Set5"), published_metric("DIV2K_valid_HR")
    ('psnr_y', 'psnr_rgb')
    """
    return "psnr_y" if data.split(" ")[0] in BENCHMARKS else "psnr_rgb"


class Cell(NamedTuple):
    """A mean, and its standard deviation over several checkpoints; None if not measured."""

    value: float | None = None
    std: float | None = None


@dataclass
class Row:
    """A method's numbers. `quoted` rows come from the paper and are not ranked."""

    label: str
    cells: list[Cell]
    quoted: bool = False


@dataclass
class Table:
    """A table with one column per scale, and how to print it."""

    title: str
    columns: list[str]
    rows: list[Row]
    digits: int = 2
    higher_is_better: bool = True
    notes: list[str] = field(default_factory=list)

    def ranks(self, column: int) -> dict[int, int]:
        """The rank (1 or 2) of the best measured rows of a column. Rows that print the same rank the same.

        One pass is compared with one pass, the ensemble with the ensemble.
        """
        ranks: dict[int, int] = {}
        for ensemble in (False, True):
            rows = [i for i, r in enumerate(self.rows) if not r.quoted and ("+" in r.label) == ensemble]
            values = {i: self.rows[i].cells[column].value for i in rows}
            printed = {i: round(value, self.digits) for i, value in values.items() if value is not None}
            order = sorted(set(printed.values()), reverse=self.higher_is_better)[:2]
            ranks |= {i: order.index(value) + 1 for i, value in printed.items() if value in order}
        return ranks


def summarise(
    records: Iterable[Record],
    data: str,
    metric: str,
    scales: Sequence[float] | None = None,
    columns: Sequence[str] | None = None,
) -> Table:
    """The table of one metric on one data set: rows are methods, columns are scales.

    A number is the mean over the images. If a method has several checkpoints, it is the mean and the sample
    standard deviation of their means. A method that lacks images that others have gets no number, but a note.
    `columns`: other titles of the columns.
    """
    records = [record for record in records if record["data"] == data]
    if not records:
        raise InvalidInput(f"No result for {data} is stored: evaluate it first.")
    if len(protocols := {record.get("protocol", 1) for record in records}) > 1:
        raise InvalidInput(
            f"The results for {data} were measured by {len(protocols)} versions of the protocol, which "
            "cannot be compared: measure the older ones again."
        )
    scales = sorted({record["scale"] for record in records}) if scales is None else list(scales)
    columns = [f"×{s:g}" for s in scales] if columns is None else list(columns)
    rows: dict[str, list[Cell]] = {record["method"]: [] for record in records}
    lacking: dict[tuple[str, str], list[str]] = {}  # columns, by method and what it lacks there
    for scale, column in zip(scales, columns, strict=True):
        checkpoints = _scores_at(records, metric, scale)
        everything = {record["image"] for record in records if record["scale"] == scale}
        for method, cells in rows.items():
            found = list(checkpoints.get(method, {}).values())
            missing = {image for images in found for image in everything.difference(images)}
            if missing:
                what = f"{len(missing)} of {len(everything)} images, such as {min(missing)}"
                lacking.setdefault((method, what), []).append(column)
            means = [] if missing else [fmean(images.values()) for images in found]
            cells.append(Cell(fmean(means), stdev(means) if means[1:] else None) if means else Cell())
    title, digits, higher_is_better = METRIC_STYLES[metric]
    lines = [Row(method, cells) for method, cells in rows.items()]
    notes = _notes(records)
    if lacking:
        rule = (
            "A method that refused images which others were measured on, or was stopped before, has no mean"
        )
        each = (f"{method} lacks {what}, at {', '.join(where)}" for (method, what), where in lacking.items())
        notes.append(f"{rule}: {'; '.join(each)}.")
    return Table(f"{data}, {title}", columns, lines, digits, higher_is_better, notes)


def _scores_at(
    records: Sequence[Record], metric: str, scale: float
) -> dict[str, dict[str, dict[str, float]]]:
    """method -> checkpoint -> image -> score. Refuses methods that were measured on different folders."""
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for record in (record for record in records if record["scale"] == scale):
        images = scores.setdefault(record["method"], {}).setdefault(record["identity"], {})
        name = record["image"]
        if name in images:
            raise InvalidInput(
                f"{record['method']} has two results for {name} of {record['data']} at ×{scale:g}: keep one."
            )
        images[name] = record[metric]
    sets = [(method, set(images)) for method, found in scores.items() for images in found.values()]
    largest = max((images for _, images in sets), key=len, default=set())
    for (one, ours), (other, theirs) in combinations(sets, 2):
        # Refusals leave a part of one folder each. Without a common image, these were two of one name.
        if ours.isdisjoint(theirs) and not ours | theirs <= largest:
            raise InvalidInput(
                f"{one} and {other} were measured on different images of {records[0]['data']}, such as "
                f"{min(ours)} and {min(theirs)}: measure both on the same folder, into another file."
            )
    return scores


def images_of(records: Sequence[Record], data: str) -> tuple[int, int]:
    """How many images of a data set were measured, and how many it has."""
    count = len({record["image"] for record in records if record["data"] == data})
    return count, BENCHMARKS.get(data.split(" ")[0], count)


def _notes(records: Sequence[Record]) -> list[str]:
    count, whole = images_of(records, records[0]["data"])
    part = f" of its {whole}" if count < whole else ""
    seen: dict[float, set[str]] = {}
    for record in records:
        seen.setdefault(record["scale"], set()).add(record["image"])
    fewer = [f"{len(images)} at ×{scale:g}" for scale, images in sorted(seen.items()) if len(images) < count]
    less = f" ({', '.join(fewer)})" if fewer else ""
    notes = [f"Measured here, mean over {count}{part} image{'s' if whole > 1 else ''}{less}."]
    if any("+" in record["method"] for record in records):
        notes.append("A plus marks the ensemble of four rotations, which is ranked by itself.")
    checkpoints = {(record["method"], record["identity"]) for record in records}
    if len(checkpoints) > len({method for method, _ in checkpoints}):
        notes.append("± is the standard deviation over a model's checkpoints.")
    conversions = {f"{r['image']}: {r['conversion']}" for r in records if r.get("conversion")}
    if conversions:
        notes.append(f"Converted on reading: {'; '.join(sorted(conversions))}.")
    return notes


def _printed(table: Table, best: str, second: str, plus_minus: str, missing: str) -> list[list[str]]:
    """The cells as text. The `best` and `second` formats mark ranked cells (such as "**{}**")."""
    lines = []
    ranks = [table.ranks(column) for column in range(len(table.columns))]
    for i, row in enumerate(table.rows):
        line = []
        for cell, rank in zip(row.cells, ranks, strict=True):
            if cell.value is None:
                line.append(missing)
                continue
            text = f"{cell.value:.{table.digits}f}"
            text = {1: best, 2: second}.get(rank.get(i, 0), "{}").replace("{}", text)
            # One digit more than the mean, as in the paper.
            line.append(text if cell.std is None else f"{text}{plus_minus}{cell.std:.{table.digits + 1}f}")
        lines.append(line)
    return lines


def markdown_grid(header: Sequence[str], rows: Iterable[Sequence[str]], labels: int = 1) -> str:
    """A Markdown table. The first `labels` columns are words, the others numbers."""
    rule = ["---"] * labels + ["---:"] * (len(header) - labels)
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *rows])


def to_markdown(table: Table) -> str:
    """The table as Markdown, with the title above and the notes below."""
    cells = _printed(table, "**{}**", "<ins>{}</ins>", " ± ", "—")
    labels = [f"{row.label}, quoted" if row.quoted else row.label for row in table.rows]
    lines = [[label, *line] for label, line in zip(labels, cells, strict=True)]
    grid = markdown_grid(["", *table.columns], lines)
    return f"**{table.title}**\n\n{grid}\n\n{' '.join(table.notes)}\n"


def to_latex(table: Table) -> str:
    """The table as LaTeX with booktabs."""
    lines = [f"% {note}" for note in table.notes]
    lines += [r"\begin{tabular}{l" + "c" * len(table.columns) + "}", r"\toprule"]
    header = [column.replace("×", r"$\times$") for column in table.columns]
    lines += [" & ".join([_tex(table.title), *header]) + r" \\", r"\midrule"]
    cells = _printed(table, r"\textbf{{}}", r"\underline{{}}", r" $\pm$ ", "---")
    quoted = False
    for row, line in zip(table.rows, cells, strict=True):
        if row.quoted and not quoted:
            lines.append(r"\midrule % quoted from the paper")
            quoted = True
        lines.append(" & ".join([_tex(row.label), *line]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _tex(text: str) -> str:
    return text.replace("_", r"\_").replace("%", r"\%").replace("×", r"$\times$")


def to_csv(tables: Iterable[Table]) -> str:
    """All tables as one CSV in full precision: table, method, quoted, column, value, std."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["table", "method", "quoted", "column", "value", "std"])
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                writer.writerow([table.title, row.label, row.quoted, column, cell.value, cell.std])
    return out.getvalue()
