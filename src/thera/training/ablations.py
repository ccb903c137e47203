"""Several configurations, each trained for the same time from the same seed, and measured on the same images:
the paper's ablations, or methods against each other.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thera.errors import InvalidInput, TheraError
from thera.evaluation.ablation import FULL
from thera.evaluation.images import check_sizes, image_sets
from thera.evaluation.inspection import BACKBONE_PARAMETERS
from thera.evaluation.methods import Method, load_methods
from thera.evaluation.protocol import check_scale
from thera.evaluation.runner import run as evaluate
from thera.files import replacing
from thera.models.torch_engine import precision_of, resolve_device
from thera.models.weights import load_safetensors, read_header
from thera.networks import Thera
from thera.training.config import Config
from thera.training.images import read_images
from thera.training.rows import PAPER, Row, rows_of, title, train_all

NO_ENSEMBLE = "No GSE"  # the full model, evaluated without the ensemble


@dataclass(frozen=True)
class Comparison:
    """Configurations that are trained alike, and where their weights are kept.

    `known` holds all configurations of a folder by name, `names` those of this call.
    """

    configs: Path
    known: dict[str, Config]
    names: Sequence[str]
    runs: Path
    seconds: float
    changes: Sequence[str]
    seeds: int
    at_equal_patches: bool

    @property
    def of_paper(self) -> bool:
        """True for the paper's ablations, False for methods against each other."""
        return self.known.keys() == PAPER.keys()

    def check(self) -> None:
        """Refuse what cannot be compared."""
        for stem, config in self.known.items():
            if config.data.paired < 1 or config.objective.align:
                raise InvalidInput(
                    f"{self.configs / stem}.toml needs pairs of pictures, which only thera train takes: leave"
                    " it out."
                )
        if self.at_equal_patches and not self.of_paper:
            raise InvalidInput(
                f"Only the paper's ablations are compared at equal patches: {self.configs} holds others."
            )

    def rows(self, at_equal_patches: bool) -> list[Row]:
        return list(rows_of(self.known, self.names, self.runs, self.seeds, at_equal_patches))

    def trained(self) -> list[Row]:
        return [row for row in self.rows(self.at_equal_patches) if row.weights.exists()]

    def untrained(self, at_equal_patches: bool) -> list[Row]:
        """The rows without weights. Weights and stopped runs of other values are refused."""
        rows = self.rows(at_equal_patches)
        for row in rows:
            row.check(self.seconds)
        return [row for row in rows if not row.weights.exists()]

    def train(self, data: Sequence[str], device: str, until: float) -> tuple[bool, list[str]]:
        """Train what is not trained yet.

        Returns False if the clock read `until` first, and the names of the rows that failed.
        """
        images: list[np.ndarray] = []
        failures: list[str] = []
        # Rows at equal patches need to know how many patches the others have seen: they come second.
        for at_equal_patches in (False, True) if self.at_equal_patches else (False,):
            # What failed in the first turn would fail again.
            missing = [r for r in self.untrained(at_equal_patches) if r.weights.stem not in failures]
            if not missing:
                continue
            if not data:
                stems = ", ".join(row.weights.stem for row in missing)
                raise InvalidInput(
                    f"{self.runs} lacks {stems}: give --data to train them, or leave them out."
                )
            images = images or self._images(data)
            ended, failed = train_all(missing, images, self.seconds, device, until)
            failures += failed
            if not ended:
                return False, failures
        return True, failures

    def _images(self, data: Sequence[str]) -> list[np.ndarray]:
        """The images that all rows are trained on: none is too small for the crops of any row."""
        settings = [config.data for config in self.known.values()]
        smallest = max(d.crops[0] for d in settings)
        return read_images(list(data), smallest, settings[0].resized, settings[0].soft)

    def methods(self, rows: Sequence[Row], device: str, precision: str) -> list[Method]:
        """The trained rows as methods to measure; several seeds of a row are one method."""
        files: dict[str, list[str]] = {}
        for row in rows:
            files.setdefault(row.name, []).append(str(row.weights))
        options: dict[str, Any] = {
            "engine": "torch",
            "device": device,
            "precision": precision,
            "seamless": False,
        }
        named = [f"{name}={','.join(found)}" for name, found in files.items()]
        methods = load_methods(named, (), both=not self.of_paper, **options)
        if self.of_paper and FULL in files:
            plain = f"{NO_ENSEMBLE}={','.join(files[FULL])}"
            methods += load_methods([plain], (), ensemble=False, **options)
        return methods

    def ordered(self, about: dict[str, Any]) -> dict[str, Any]:
        """`about` with its rows in the order of their files."""
        order = [title(stem) for stem in self.known]

        def place(name: str) -> int:
            """The place of a row in the table. Rows at the patches of others have no file: they come last."""
            return [*order, name].index(name)

        rows = sorted(about["rows"], key=lambda row: place(row["method"]))
        kappa = {name: about["kappa"][name] for name in sorted(about["kappa"], key=place)}
        return about | {"rows": rows, "kappa": kappa}

    def command(self, measured: set[str], precision: str) -> str:
        """The command that trains and measures these rows, without the names of folders of pictures."""
        shown = [stem for stem in self.known if title(stem) in measured]
        folder = "/".join(self.configs.resolve().parts[-2:])
        options = [
            f"--configs {folder} --runs runs/{self.runs.name} --seconds {self.seconds:g}",
            f"--names {' '.join(shown)}" if len(shown) < len(self.known) else "",
            f"--seeds {self.seeds}" if self.seeds > 1 else "",
            "--at-equal-patches" if self.at_equal_patches else "",
            f"--precision {precision}" if precision != "f32" else "",
            f"--set {' '.join(self.changes)}" if self.changes else "",
        ]
        return " ".join(["thera ablations", *filter(None, options)])


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
    known = read_configs(configs, changes)
    for name in names:
        if name not in known:
            raise InvalidInput(f"{configs} holds no {name}.toml: choose among {', '.join(known)}.")
    if not (data or validate):
        raise InvalidInput("There is nothing to do: give --data to train, --validate to measure, or both.")
    compared = Comparison(
        configs, known, names or list(known), runs, seconds, changes, seeds, at_equal_patches
    )
    compared.check()
    sets = image_sets(validate)
    if sets:  # what measuring would refuse is refused before anything is trained
        check_sizes(sets, [check_scale(scale) for scale in scales])
        precision_of(resolve_device(device, precision), precision)
    until = math.inf if pause is None else began + 60 * pause
    ended, failures = compared.train(data, device, until)
    rest = "all others are trained" if ended else "the others are paused"
    failed = f"{', '.join(failures)} failed, {rest}: the same command tries again." if failures else ""
    rows = compared.trained()
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
    about, outdated = _with_stored(results, about, replace_results)
    about = compared.ordered(about)
    about["command"] = compared.command({row["method"] for row in about["rows"]}, precision)
    out.mkdir(parents=True, exist_ok=True)
    methods = compared.methods(rows, device, precision)

    def state() -> None:
        with replacing(results.with_suffix(".json")) as file:
            file.write(f"{json.dumps(about, ensure_ascii=False)}\n".encode())

    if outdated:
        results.unlink(missing_ok=True)
    try:
        evaluate(methods, sets, scales, results, workers, replace_results, begin=state)
    except TheraError as error:
        if failed:
            raise TheraError(f"{failed} {error}") from error
        raise
    if failed:
        raise TheraError(failed)


def read_configs(folder: Path, changes: Sequence[str]) -> dict[str, Config]:
    """The configurations of a folder by name; the paper's ablations are in the paper's order."""
    paths = {path.stem: path for path in sorted(folder.glob("*.toml"))}
    if not paths:
        raise InvalidInput(f"{folder} holds no configuration: name a folder of TOML files.")
    order = PAPER if paths.keys() == PAPER.keys() else paths
    return {stem: Config.read(paths[stem], changes) for stem in order}


def _with_stored(results: Path, about: dict[str, Any], replace_results: bool) -> tuple[dict[str, Any], bool]:
    """`about`, with stored rows of the same budget, which another machine may have measured.

    Also returns whether the stored results have another budget and have to be dropped.
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
