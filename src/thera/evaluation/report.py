"""Write the page of results from stored results: no number in it is typed by hand.

A folder of results holds these files:

| file | from |
| --- | --- |
| eval*.jsonl | `thera eval` |
| pairs*.jsonl | `thera eval --pairs` |
| ablation*, methods*, kernels*, filters*.jsonl | `thera ablations`; the budget is in a .json beside each |
| bench*.jsonl | `thera bench` |
| fit*.jsonl | `thera fit` |
| inspect*.jsonl | `thera inspect --json` |
| *.png | `thera figures`, `thera inspect`, `thera fit` |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from thera.errors import InvalidInput
from thera.evaluation import trained
from thera.evaluation.aliasing import aliasing_markdown
from thera.evaluation.bench import bench_markdown
from thera.evaluation.methods import BASELINES
from thera.evaluation.pair_runs import ABOUT as ABOUT_PAIRS
from thera.evaluation.pair_runs import pair_tables
from thera.evaluation.paper import QUOTED, paper, quoted_rows
from thera.evaluation.protocol import PROTOCOLS
from thera.evaluation.reconstruction import reconstruction_markdown
from thera.evaluation.records import Record, key_of, read_records
from thera.evaluation.tables import (
    BENCHMARKS,
    images_of,
    markdown_grid,
    published_metric,
    summarise,
    to_markdown,
)

# The well-known PSNR of bicubic on Set5 at ×2, ×3 and ×4, in 8-bit Y.
KNOWN_BICUBIC = {2: 33.66, 3: 30.39, 4: 28.42}

ABOUT = (
    "Targets are cropped to multiples of the scale and reduced by MATLAB's bicubic, {rounding}. Outputs are "
    "clipped, not rounded. A border of as many pixels as the scale is cut for the PSNR of Y, six more for "
    "all else. Numbers are means over the images; the best measured one is bold, the second underlined, one "
    "pass and the ensemble apart. Weights are chosen by the held-out pictures that `configs/validation.txt` "
    "names, which are in no table; the [model cards](../src/thera/weights) say where it was otherwise."
)

#: The files of models that do not come with Thera, by their names in the results.
FILES = {
    "LIIF": "edsr-baseline-liif.pth",
    "zoom-plain": "runs/zoom/01-pairs/weights.safetensors",
    "zoom-aligned": "runs/zoom-aligned/weights.safetensors",
}

CAPTIONS = {
    "crops": "Before and after at ×6, models with the ensemble",
    "zoom": "One field, read at growing non-integer scales",
    "aliasing": "A zone plate made smaller: point samples alias, the field at the right t does not",
    "alias-scale": "How much aliases at each scale",
    "derivatives": "Signal, gradient and Laplacian: exact derivatives of a field, and of LIIF's network",
    "psnr-scale": "Quality against scale",
    "pareto": "Quality against added parameters",
    "quality-cost": "Quality against time, of methods that were trained alike",
    "bank": "The frequency bank",
    "local-fields": "Local fields of a few input pixels: as they are, and at the input's resolution",
    "psf": "What an output pixel sees of the field",
    "low-pass": "One field supervised at t = 1 only, and a Gaussian filter",
}


def write_report(folder: Path) -> Path:
    """Write `folder`.md beside the folder of results, and return its path."""
    out = folder.with_name(f"{folder.name}.md")
    out.write_text(report(folder), encoding="utf-8")
    return out


def report(folder: Path) -> str:
    """The page as Markdown."""
    sections = [
        "# Results",
        f"Everything on this page is written by `thera eval --report {_short(folder)}` from the files in "
        f"[{folder.name}/]({folder.name}). Numbers are measured here unless a row says that it is quoted. "
        f"{QUOTED} [All tables of the paper](paper_tables.md).",
        *_evaluation(folder),
        *_pairs(folder),
        *trained.sections(folder, _records(folder, "bench")),
        *_section(folder, "alias", "Aliasing and equivariance", aliasing_markdown),
        *_section(folder, "bench", "Cost", bench_markdown),
        *_section(folder, "inspect", "What training ended at", inspection_markdown),
        *_section(folder, "fit", "Fields fitted to images", reconstruction_markdown),
        *_figures(folder),
    ]
    if len(sections) == 2:
        raise InvalidInput(
            f"{folder} holds no results: store some there, with thera eval -o {folder}/eval.jsonl."
        )
    return "\n\n".join(section.strip() for section in sections) + "\n"


def _short(folder: Path) -> str:
    """The folder's path within the project."""
    return "/".join(folder.resolve().parts[-2:])


def _records(folder: Path, kind: str) -> list[Record]:
    return [record for path in sorted(folder.glob(f"{kind}*.jsonl")) for record in read_records(path)]


def _section(folder: Path, kind: str, title: str, write: object) -> list[str]:
    records = _records(folder, kind)
    return [f"## {title}", write(records)] if records else []  # type: ignore[operator]


def _evaluation(folder: Path) -> list[str]:
    records = list({key_of(record): record for record in _records(folder, "eval")}.values())
    records.sort(key=lambda record: "+" in record["method"])  # one pass before ensembles
    if not records:
        return []
    found = list(dict.fromkeys(record["data"] for record in records))
    data_sets = [name for name in BENCHMARKS if name in found] + [n for n in found if n not in BENCHMARKS]
    commands = "\n".join(["```", *_commands(records, folder), "```"])
    by_version: dict[int, dict[str, None]] = {}  # the data sets of each, in order
    for record in records:
        by_version.setdefault(record.get("protocol", 1), {})[record["data"]] = None
    rounding = ", ".join(
        PROTOCOLS[version] + (f" ({', '.join(names)})" if len(by_version) > 1 else "")
        for version, names in sorted(by_version.items())
    )
    about = ABOUT.format(rounding=rounding)
    sections = ["## Super-resolution", about, "Reproduced by:", commands, *_known(records)]
    for data in data_sets:
        sections.append(f"### {data}")
        count, whole = images_of(records, data)
        for metric in (published_metric(data), "ssim", "gmsd"):
            table = summarise(records, data, metric)
            scales = [float(column[1:]) for column in table.columns]
            quoted = quoted_rows(data, metric, scales)
            if quoted and count < whole:
                table.notes.append(f"Quoted rows are means over all {whole}: do not compare them with these.")
            table.rows += quoted
            sections.append(to_markdown(table))
    return sections


def _pairs(folder: Path) -> list[str]:
    records = list({key_of(record): record for record in _records(folder, "pairs")}.values())
    if not records:
        return []
    methods = {record["method"]: record.get("engine") for record in records}
    models, baselines = (
        [name for name in methods if bool(methods[name]) == wanted] for wanted in (True, False)
    )
    data = " ".join(dict.fromkeys(record["data"] for record in records))
    chosen = " ".join(_named(name) for name in dict.fromkeys(name.rstrip("+") for name in models))
    passes = "" if any(name.endswith("+") for name in models) else " --no-ensemble"
    command = f"thera eval {chosen} --pairs {data} --baselines {' '.join(baselines)}{passes}"
    sections = ["## Optical zoom", ABOUT_PAIRS, "Reproduced by:"]
    sections.append(f"```\n{command} -o {_short(folder)}/pairs.jsonl\n```")
    return sections + [to_markdown(table) for table in pair_tables(records)]


def _commands(records: Sequence[Record], folder: Path) -> list[str]:
    """The `thera eval` commands that made the records: one for all data sets with the same options."""
    groups: dict[str, list[str]] = {}  # the data sets of each command
    for data in dict.fromkeys(record["data"] for record in records):
        # The name of a data set ends in its damage: "Set14 jpeg:40".
        for call in _calls([record for record in records if record["data"] == data], " " in data):
            groups.setdefault(call, []).append(data)
    commands = []
    for call, found in groups.items():
        parts = [data.partition(" ") for data in found]
        names, damages = (dict.fromkeys(part[i] for part in parts) for i in (0, 2))
        commands.append(f"{call.format(' '.join(names), ' '.join(damages))} -o {_short(folder)}/eval.jsonl")
    return commands


def _calls(records: Sequence[Record], damaged: bool) -> list[str]:
    """The commands that made the records of one data set: one for all models with the same options.

    {0} stands for the names of data sets and {1}, if they are `damaged`, for their damages.
    """
    methods = {record["method"]: record.get("engine") for record in records}
    models = [name for name, engine in methods.items() if engine and not name.endswith("sinc")]
    baselines = [name for name, engine in methods.items() if not engine]
    alike: dict[tuple[str, str], list[str]] = {} if models else {(_scales(records, baselines), ""): []}
    for name in dict.fromkeys(name.rstrip("+") for name in models):
        passes = {(True, True): " --both", (True, False): " --no-ensemble"}
        option = passes.get((name in models, f"{name}+" in models), "")
        option += _precision(methods.get(name) or methods[f"{name}+"] or "")
        alike.setdefault((_scales(records, [name, f"{name}+"]), option), []).append(name)
    calls = []
    for (scales, option), chosen in alike.items():
        resized = ["sinc"] if any(f"{name} ×4, sinc" in methods for name in chosen) else []
        beside = baselines + resized or ["none"]
        flags = "" if set(beside) == set(BASELINES) else f" --baselines {' '.join(beside)}"
        start = " ".join(["thera eval", *map(_named, chosen)])
        damages = " --degrade {1}" if damaged else ""
        calls.append(f"{start} --data {{0}} --scales {scales}{damages}{flags}{option}")
    return calls


def _scales(records: Sequence[Record], methods: Sequence[str]) -> str:
    """The scales at which any of these methods was measured."""
    return " ".join(f"{s:g}" for s in sorted({r["scale"] for r in records if r["method"] in methods}))


def _named(model: str) -> str:
    """A model as `thera eval` takes it."""
    return f"{model}={FILES[model]}" if model in FILES else model


def _precision(engine: str) -> str:
    """The option that states the precision of results from a GPU, where other precisions are usual."""
    return " --precision f32" if engine.endswith("cuda f32") else ""


def _known(records: Sequence[Record]) -> list[str]:
    """Bicubic on Set5 beside its well-known values: they check crop, kernel, rounding and colours."""
    bicubic = [record for record in records if (record["data"], record["method"]) == ("Set5", "bicubic")]
    if not set(KNOWN_BICUBIC) <= {record["scale"] for record in bicubic}:
        return []
    scales = list(KNOWN_BICUBIC)
    measured = [summarise(bicubic, "Set5", metric, scales).rows[0].cells for metric in ("psnr_y8", "psnr_y")]
    rows = [
        ["known", *(f"{value:.2f}" for value in KNOWN_BICUBIC.values())],
        ["measured, Y rounded to 8 bits as it was when those values were published", *map(_two, measured[0])],
        ["measured, Y not rounded, as in all tables below", *map(_two, measured[1])],
    ]
    grid = markdown_grid(["Bicubic on Set5, PSNR of Y, dB", *(f"×{scale}" for scale in scales)], rows)
    return ["The protocol, checked against what everybody knows:", grid]


def _two(cell: tuple[float | None, float | None]) -> str:
    return "—" if cell[0] is None else f"{cell[0]:.2f}"


def inspection_markdown(records: Sequence[Record]) -> str:
    """The table of κ and parameters of models, then the paper's κ."""
    parts = ["backbone", "hypernetwork", "last layer", "components"]
    header = ["", "κ", "of the Gaussian's", "components", "|w| up to", *parts, "added in all"]
    rows = [
        [
            record["model"],
            f"{record['kappa']:.4f}",
            f"{record['kappa'] / record['kappa_theory']:.2f}",
            f"{record['components']}",
            f"{record['largest_frequency'] / math.pi:.1f} π",
            *(f"{record['parameters'][part]:,}" for part in parts),
            f"{record['added_parameters']:,}",
        ]
        for record in records
    ]
    for row in paper()["tables"]["kappa"]["rows"]:
        label = f"{row['method']} ({row['backbone']})" if row["backbone"] else row["method"]
        rows.append([f"{label}, quoted", f"{row['values'][0]:.4f}", *["—"] * (len(header) - 2)])
    return markdown_grid(header, rows)


def _figures(folder: Path) -> list[str]:
    found = {path.stem: path for path in sorted(folder.glob("*.png"))}
    shown = [
        f"### {caption}\n\n![{caption}]({folder.name}/{found[stem].name})"
        for name, caption in CAPTIONS.items()
        for stem in found
        if stem == name or stem.startswith(f"{name}-")
    ]
    return ["## Figures", *shown] if shown else []
