"""Write model cards from model files and stored results.

python -m thera.evaluation.cards docs/results src/thera/weights
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from thera.errors import InvalidInput
from thera.evaluation.pair_runs import ABOUT as ABOUT_PAIRS
from thera.evaluation.pair_runs import PROTOCOL as PAIRS
from thera.evaluation.pair_runs import pair_tables
from thera.evaluation.records import Record, read_records
from thera.evaluation.tables import BENCHMARKS, markdown_grid, summarise
from thera.models.weights import read_header

CLEAN = "- Trained on images reduced by clean bicubic: it does not repair JPEG blocks, noise, blur or dust."
RESTORING = """\
- {damage}
- On clean pictures the clean model is better. Fine texture that looks like noise gets softer."""
LIMITS = """\
- It predicts the mean of what is plausible and invents nothing: textures finer than the input's stay soft.
- Scales beyond those of training work, and get softer.
- The photographs belong to their photographers and are not part of the package."""

# What is known of a model and is not in its file.
NOTES = {
    "edsr-pro": "Stages 6 and 7 also had 163 further photographs and 70 drawn pages. It is not "
    "recorded whether held-out pictures were among them. Stage 8 was chosen on photo20, so the scores on "
    "photo20 are not quite those of unseen pictures.",
    "photo": "Stages 21 to 23 are those of `edsr-plus`. The weights of stage 20 count twice in the mean, "
    "those of stage 25 once: of six candidates the only one that is nowhere worse than stage 20 on 25 of the "
    "held-out pictures, clean and damaged. κ is that of `edsr-plus`, so `--strength` mixes both.",
    "photo-air": "The weights of stage 15 count eight times in the mean, those of the clean model once: the "
    "best of seven candidates on 25 of the held-out pictures, clean and damaged. κ is the clean model's, so "
    "`--strength` mixes both.",
    "zoom": "The pairs are City100's (Chen et al., Camera Lens Super-Resolution, CVPR 2019): a Nikon D5500 "
    "at ×2.9 and an iPhone X at ×2.5. Numbers 001, 016, 048, 060 and 096 to 100 of both are held out; the "
    "scores on pairs are theirs, and nothing was chosen by them. For training, low pictures were stored "
    "without loss and high ones as AVIF of quality 90, 4:4:4; held-out pairs are the originals. κ is the "
    "clean model's, so `--strength` mixes both. It was trained without the spatial transformer of Thera++, "
    "which gains nothing on these pairs: they are already aligned to 0.02 pixels.",
}


def card(about: dict[str, Any], records: list[Record]) -> str:
    """The card of one model as Markdown."""
    name, stages = about["name"], about.get("training", [])
    runs = [stage for stage in stages if "mean" not in stage]
    patches = sum(run["patches"] * run["data"]["patch"] ** 2 for run in runs) / 48**2
    lines = [
        f"# {name}",
        f"{about['parameters'] / 1e6:.2f} M parameters, {about['components']} components. "
        f"{patches / 1e6:.1f} million patches (counted as 48×48) in all stages, those of its start included; "
        f"{sum(run.get('minutes', 0) for run in runs):g} minutes of one H200.",
        "## Training",
        *_stages(stages),
        *_data(stages),
        *([NOTES[name]] if name in NOTES else []),
        "## Scores",
        *(_restored if about.get("restores") else _against_liif)(about, records),
        "## Limits",
        (_sees_through(runs[-1]) if about.get("restores") else CLEAN) + "\n" + LIMITS,
    ]
    return "\n\n".join(lines) + "\n"


def _stages(stages: list[dict[str, Any]]) -> list[str]:
    """A row for each stage: a training run, or the mean of the networks of earlier stages."""
    rows = [
        "| | start | images | inputs | scales | targets, loss | steps × batch | optimiser, rate | minutes |",
        "| ---: | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for number, s in enumerate(stages, 1):
        if "mean" in s:
            rows.append(f"| {number} | the mean of stages {', '.join(map(str, s['mean']))} |" + " |" * 7)
            continue
        d, o = s["data"], s["optimiser"]
        low, high = d["scales"]
        steps = s["patches"] // d["batch"]
        rows.append(
            f"| {number} | {s['start'] or 'random'} | {_images(s)}, {s['megapixels']:g} Mpx "
            f"| {d['patch']}² | ×{low:g} to ×{high:g}, {d.get('spread', 'uniform')} "
            f"| {_targets(s)} "
            f"| {steps:,} × {d['batch']} | {o.get('method', 'adam').capitalize()}, {o['rate']:g} "
            f"| {s.get('minutes', '—')} |"
        )
    return ["\n".join(rows)]


def _images(stage: dict[str, Any]) -> str:
    """How many images a stage had; of pairs the low ones are counted."""
    pairs = stage.get("pairs", 0)
    parts = (pairs, "pairs"), (stage["images"] - pairs, "with copies")
    return ", ".join(f"{count} {what}" for count, what in parts if count)


def _data(stages: list[dict[str, Any]]) -> list[str]:
    """The pictures of all stages; a stage that names its own had the validation pictures held out."""
    soft = any(s["data"].get("soft") for s in stages if "mean" not in s)
    copies = "smaller and softer" if soft else "smaller"
    named = {str(number): s["pictures"] for number, s in enumerate(stages, 1) if "pictures" in s}
    if not named:
        return [f"Data: photographs of 0.1 to 1.1 megapixels, and {copies} copies of them. Not DIV2K."]
    return [
        "Data: photographs of 0.1 to 1.1 megapixels from two sources, drawn pages and drawn facades, and "
        f"{copies} copies of them. Not DIV2K.",
        f"Pictures of stages {', '.join(named)}: {'; '.join(dict.fromkeys(named.values()))}. Held out of "
        "them are the 50 pictures named in `configs/validation.txt`, by which the weights were chosen.",
    ]


def _targets(stage: dict[str, Any]) -> str:
    """The training targets of a stage and its loss."""
    teacher, objective = stage.get("teacher", {}), stage.get("objective", {})
    loss = objective.get("loss", "l1").upper()
    ensemble = objective.get("ensemble_weight", objective.get("together", 0.0))  # its name until 0.1
    share = teacher.get("share", 1.0) if teacher.get("model") else 0.0
    parts = (1 - share, "images"), (share, f"what {teacher.get('model')} sees")
    return (
        " and ".join(what if part == 1 else f"{part:.0%} {what}" for part, what in parts if part)
        + f", {loss}"
        + (f", {ensemble:.0%} of it of the mean of four turns" if ensemble else "")
        + (", pairs aligned" if objective.get("align") else "")
    )


def _sees_through(stage: dict[str, Any]) -> str:
    """The damage that inputs of a stage had, by what was drawn at all."""
    d = stage["degradation"]
    parts = [
        *([f"blur of up to {d['blur_sigma'][1]:.1f} input pixels"] if d["blur"] else []),
        *([f"noise of up to {d['noise_level'][1]:g}/255"] if d["noise"] else []),
        *([f"JPEG from quality {d['jpeg_quality'][0]}"] if d["jpeg"] else []),
    ]
    if not parts:
        return RESTORING.format(damage="It does not repair JPEG blocks, noise, dust or scratches.")
    through = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return RESTORING.format(
        damage=f"It sees through {through}. Worse damage stays, and so do dust and scratches."
    )


def _restored(about: dict[str, Any], records: list[Record]) -> list[str]:
    """The scores of a model that restores: on damaged pictures, and on pairs if it was measured on some."""
    methods = about["name"], f"{about['backbone']}-{about['variant']}"
    paired = [record for record in records if record.get("protocol") == PAIRS]
    others = [record for record in records if record.get("protocol") != PAIRS]
    return _against_clean(*methods, others) + _on_pairs((*methods, "bicubic"), paired)


def _on_pairs(methods: Sequence[str], records: list[Record]) -> list[str]:
    """PSNR and SSIM on pairs of pictures, as taken and aligned; nothing if the first method has none."""
    sets = {record["data"] for record in records if record["method"] == methods[0]}
    rows = []
    for table in pair_tables([r for r in records if r["data"] in sets and r["method"] in methods]):
        found = {
            row.label: " / ".join("—" if v is None else f"{v:.{table.digits}f}" for v, _ in row.cells)
            for row in table.rows
        }
        rows.append([table.title, *(found.get(method, "—") for method in methods)])
    grid = markdown_grid(["one pass, as taken / aligned", *methods], rows)
    return [ABOUT_PAIRS, grid] if rows else []


def _against_clean(name: str, clean: str, records: list[Record]) -> list[str]:
    """PSNR of Y on damaged inputs, beside that of the clean model of the same kind, in one pass each."""
    rows = []
    gains: dict[str, dict[str, list[float]]] = {}  # damage -> column -> of each data set
    sets: dict[str, None] = {}
    for data in dict.fromkeys(r["data"] for r in records if r["method"] == name):
        table = summarise([r for r in records if r["method"] in (name, clean)], data, "psnr_y")
        found = {row.label: [cell.value for cell in row.cells] for row in table.rows}
        folder, _, damage = data.partition(" ")
        for column, ours, theirs in zip(table.columns, found[name], found[clean], strict=True):
            if ours is not None and theirs is not None:
                rows.append([f"{data} {column}", f"{ours:.2f}", f"{theirs:.2f}", f"{ours - theirs:+.2f}"])
                gains.setdefault(damage or "none", {}).setdefault(column, []).append(ours - theirs)
                sets[folder] = None
    if not rows:
        raise InvalidInput(f"No result of {name} is stored: run thera eval {name} {clean} --degrade … first.")
    columns = list(next(iter(gains.values())))
    command = (
        f"thera eval {name} {clean} --data {' '.join(sets)} --scales {' '.join(c[1:] for c in columns)} "
        f"--degrade {' '.join(gains)} --no-ensemble --precision f32"
    )
    sections = ["One pass.", f"    {command}"]
    if len(sets) > 1:
        means = [
            [damage, *(f"{fmean(by_column[column]):+.2f}" for column in columns)]
            for damage, by_column in gains.items()
        ]
        header = [f"{name} − {clean}, dB, mean over {' and '.join(sets)}", *columns]
        sections.append(markdown_grid(header, means))
    return [*sections, markdown_grid(["PSNR of Y, dB", name, clean, "difference"], rows)]


def _against_liif(about: dict[str, Any], records: list[Record]) -> list[str]:
    """PSNR of Y beside LIIF's published checkpoint: one pass and one pass, the ensemble and the ensemble."""
    name = about["name"]
    header = ["PSNR of Y, dB", name, "LIIF", "difference", "ensemble", "LIIF's", "difference"]
    rows = []
    for data in (d for d in BENCHMARKS if any(r["data"] == d and r["method"] == f"{name}+" for r in records)):
        table = summarise([r for r in records if r["method"].rstrip("+") in (name, "LIIF")], data, "psnr_y")
        found = {row.label: [cell.value for cell in row.cells] for row in table.rows}
        for i, column in enumerate(table.columns):
            line = [f"{data} {column}"]
            for end in ("", "+"):
                ours, theirs = (found.get(f"{m}{end}", [None] * (i + 1))[i] for m in (name, "LIIF"))
                known = ours is not None and theirs is not None
                line += [f"{v:.2f}" if v is not None else "—" for v in (ours, theirs)]
                line.append(f"{ours - theirs:+.2f}" if known else "—")  # type: ignore[operator]
            rows.append(line)
    if not rows:
        raise InvalidInput(f"No result of {name} with the ensemble is stored: run thera eval {name} first.")
    return [
        "One pass, and the mean over four rotations. LIIF is the published EDSR-baseline-LIIF checkpoint "
        "(1.57 M parameters), measured by the same lines.",
        markdown_grid(header, rows),
    ]


def stored(results: Path) -> list[Record]:
    """All stored results that cards tell of: of single pictures, and of pairs."""
    files = [path for name in ("eval*.jsonl", "pairs*.jsonl") for path in sorted(results.glob(name))]
    return [record for path in files for record in read_records(path)]


def main(results: str, weights: str) -> None:
    records = stored(Path(results))
    for path in sorted(Path(weights).glob("*.safetensors")):
        about = read_header(path)
        path.with_suffix(".md").write_text(card(about, records), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
