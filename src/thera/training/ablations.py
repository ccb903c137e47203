"""Several configurations, each trained for the same time from the same seed, and measured on the same images:
the paper's ablations, or methods against each other.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thera.errors import InvalidInput, TheraError
from thera.evaluation.ablation import FULL
from thera.evaluation.images import check_sizes, image_sets
from thera.evaluation.inspection import BACKBONE_PARAMETERS
from thera.evaluation.methods import load_methods
from thera.evaluation.protocol import check_scale
from thera.evaluation.runner import run as evaluate
from thera.files import replacing
from thera.models.torch_engine import precision_of, resolve_device
from thera.models.weights import load_safetensors, read_header
from thera.networks import Thera
from thera.training.config import Config
from thera.training.data import read_images
from thera.training.rows import PAPER, Row, rows_of, title, train_all

NO_ENSEMBLE = "No GSE"  # the full model, evaluated without the ensemble


def run_ablations(
    configs: Path,
    data: Sequence[str],
    validate: Sequence[str],
    scales: Sequence[float],
    seconds: float,
    changes: Sequence[str],
    workers: int,
    device: str,
    runs: Path,
    out: Path,
    names: Sequence[str] = (),
    seeds: int = 1,
    pause: float | None = None,
    at_equal_patches: bool = False,
    precision: str = "f32",
    replace_results: bool = False,
) -> None:
    """Train each file of `configs` into `runs`, measure what was trained, and state the budget.

    Measurements go into `out`, into a file of the name of `runs`. The same call continues an interrupted one:
    nothing is trained or measured twice. Without `validate` nothing is measured, and `data` is needed only to
    train. `names` takes only these files, in this order; `seeds` trains each so often; `pause` is in minutes.
    """
    began = time.monotonic()
    paths = sorted(configs.glob("*.toml"))
    ablations = {path.stem for path in paths} == set(PAPER)
    if ablations:
        paths = [configs / f"{stem}.toml" for stem in PAPER]
    if not paths:
        raise InvalidInput(f"{configs} holds no configuration: name a folder of TOML files.")
    known = {path.stem: Config.read(path, changes) for path in paths}
    for name in names:
        if name not in known:
            raise InvalidInput(f"{configs} holds no {name}.toml: choose among {', '.join(known)}.")
    if not (data or validate):
        raise InvalidInput("There is nothing to do: give --data to train, --validate to measure, or both.")
    for stem, config in known.items():
        if config.data.paired < 1 or config.objective.align:
            raise InvalidInput(
                f"{configs / stem}.toml needs pairs of pictures, which only thera train takes: leave it out."
            )
    if at_equal_patches and not ablations:
        raise InvalidInput(
            f"Only the paper's ablations are compared at equal patches: {configs} holds others."
        )
    sets = image_sets(validate)
    if sets:  # what measuring would refuse is refused before anything is trained
        check_sizes(sets, [check_scale(scale) for scale in scales])
        precision_of(resolve_device(device, precision), precision)
    images: list[np.ndarray] = []
    failures: list[str] = []
    ended = True

    def untrained(equal: bool) -> list[Row]:
        rows = list(rows_of(known, names or list(known), runs, seeds, equal))
        for row in rows:
            row.check(seconds)
        return [row for row in rows if not row.weights.exists()]

    for equal in (False, True) if at_equal_patches else (False,):
        # What failed in the first turn would fail again.
        if missing := [row for row in untrained(equal) if row.weights.stem not in failures]:
            if not data:
                stems = ", ".join(row.weights.stem for row in missing)
                raise InvalidInput(f"{runs} lacks {stems}: give --data to train them, or leave them out.")
            if not images:
                settings = [config.data for config in known.values()]
                smallest = max(d.crops[0] for d in settings)
                images = read_images(list(data), smallest, settings[0].resized, settings[0].soft)
            until = math.inf if pause is None else began + 60 * pause
            ended, found = train_all(missing, images, seconds, device, until)
            failures += found
            if not ended:
                break
    rest = "all others are trained" if ended else "the others are paused"
    failed = f"{', '.join(failures)} failed, {rest}: the same command tries again." if failures else ""
    rows = list(rows_of(known, names or list(known), runs, seeds, at_equal_patches))
    rows = [row for row in rows if row.weights.exists()]
    if not (ended and sets and rows):
        if failed:
            raise TheraError(failed)
        return
    results = out / f"{runs.resolve().name}.jsonl"
    about: dict[str, Any] = {
        "seconds": seconds,
        "budget": budget(rows),
        "rows": [_facts(row) for row in rows],
        "kappa": _kappas(rows),
    }
    about, others = _together(results, about, replace_results)
    order = [title(stem) for stem in known]

    def place(name: str) -> int:
        """The place of a row in the table. Rows at the patches of others are in no file, and come last."""
        return [*order, name].index(name)

    about["rows"].sort(key=lambda row: place(row["method"]))
    about["kappa"] = {name: about["kappa"][name] for name in sorted(about["kappa"], key=place)}
    measured = {row["method"] for row in about["rows"]}
    shown = [stem for stem in known if title(stem) in measured]
    command = f"thera ablations --configs {'/'.join(configs.resolve().parts[-2:])} --runs runs/{runs.name}"
    command += f" --seconds {seconds:g}" + (f" --names {' '.join(shown)}" if len(shown) < len(known) else "")
    command += (f" --seeds {seeds}" if seeds > 1 else "") + (
        " --at-equal-patches" if at_equal_patches else ""
    )
    command += f" --precision {precision}" if precision != "f32" else ""
    about["command"] = command + (f" --set {' '.join(changes)}" if changes else "")
    out.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[str]] = {}
    for row in rows:
        files.setdefault(row.name, []).append(str(row.weights))
    options: dict[str, Any] = {"engine": "torch", "device": device, "precision": precision, "seamless": False}
    named = [f"{name}={','.join(found)}" for name, found in files.items()]
    methods = load_methods(named, (), both=not ablations, **options)
    if ablations and FULL in files:
        plain = f"{NO_ENSEMBLE}={','.join(files[FULL])}"
        methods += load_methods([plain], (), ensemble=False, **options)

    def state() -> None:
        with replacing(results.with_suffix(".json")) as file:
            file.write(f"{json.dumps(about, ensure_ascii=False)}\n".encode())

    if others:
        results.unlink(missing_ok=True)
    try:
        evaluate(methods, sets, scales, results, workers, replace_results, begin=state)
    except TheraError as error:
        if failed:
            raise TheraError(f"{failed} {error}") from error
        raise
    if failed:
        raise TheraError(failed)


def _together(results: Path, about: dict[str, Any], replace_results: bool) -> tuple[dict[str, Any], bool]:
    """`about`, with the rows that were measured before, perhaps on another machine, for the same budget.

    Also tells whether the stored results are of another budget, so that they are to be dropped.
    """
    file = results.with_suffix(".json")
    if not file.exists():
        return about, False
    stored = json.loads(file.read_text("utf-8"))
    if stored["budget"] != about["budget"]:
        if not replace_results:
            raise InvalidInput(
                f"{file} states another budget ({stored['budget']}): name another --runs, or drop these "
                "results with --replace."
            )
        return about, True
    new = {row["method"] for row in about["rows"]}
    kept = [row for row in stored.get("rows", []) if row["method"] not in new]
    return about | {"rows": kept + about["rows"], "kappa": stored.get("kappa", {}) | about["kappa"]}, False


def _facts(row: Row) -> dict[str, Any]:
    """What the page says about a row."""
    header, spec = read_header(row.weights), row.config.network
    facts = {key: row.about[key] for key in ("steps", "patches", "took")}
    added = header["parameters"] - BACKBONE_PARAMETERS[spec.backbone]
    return {
        "method": row.name,
        "network": spec.name,
        "seed": row.config.seed,
        "added_parameters": added,
    } | facts


def _kappas(rows: Sequence[Row]) -> dict[str, list[float]]:
    """κ of each row, one for each seed; methods without one are left out."""
    kappas: dict[str, list[float]] = {}
    for row in rows:
        network = load_safetensors(row.weights)[0]
        if isinstance(network, Thera):
            kappas.setdefault(row.name, []).append(round(network.kappa.item(), 5))
    return kappas


def budget(rows: Sequence[Row]) -> str:
    """The budget that the weights of these rows state, which must be the same for all of them."""
    same = ("seconds", "images", "megapixels", "device", "start")
    first = rows[0]
    for row in rows:
        found = [
            f"{k} = {row.about[k]!r}, not {first.about[k]!r}" for k in same if row.about[k] != first.about[k]
        ]
        if found:
            raise InvalidInput(
                f"{row.weights} and {first.weights.name} were not trained alike ({'; '.join(found)}): remove "
                "one, or name another --runs."
            )
    about, data = first.about, first.config.data
    start = f"from the {about['start']}" if about["start"] else "from scratch"
    return (
        f"{about['seconds']:g} seconds of steps {start} on one {about['device']}, in batches of "
        f"{data.batch} patches of {data.patch}×{data.patch} pixels from {about['images']} images "
        f"({about['megapixels']:,.0f} megapixels, smaller copies counted). The time for reading images and "
        "compiling is not counted."
    )
