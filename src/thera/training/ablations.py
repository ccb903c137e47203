"""Several configurations, each trained for the same time from the same seed, and measured on the same images:
the paper's ablations, or methods against each other.

What counts is the time of steps. Reading images, compiling and measuring are not counted.
"""

from __future__ import annotations

import gc
import json
import math
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from thera.errors import InvalidInput, TheraError
from thera.evaluation.ablation import FULL, at_patches_of
from thera.evaluation.images import image_sets
from thera.evaluation.inspection import BACKBONE_PARAMETERS
from thera.evaluation.methods import load_methods
from thera.evaluation.runner import run as evaluate
from thera.files import replacing
from thera.models.weights import load_safetensors, read_header, save_safetensors
from thera.networks import Thera
from thera.networks.decoders import DECODERS
from thera.training import checkpoint, loop
from thera.training.config import Config
from thera.training.data import Sampler, read_images
from thera.training.run import RATE_STEPS, device_name, initial_network, steps_per_second

#: The paper's name for each of its ablations.
PAPER = {
    "plus": FULL,
    "only-x2": "×2 only, fixed κ",
    "only-x3": "×3 only, fixed κ",
    "only-x4": "×4 only, fixed κ",
    "fixed-kappa": "Fixed κ",
    "no-tv": "No TV prior",
    "relu": "ReLU instead ξ",
    "predicted": "Predicted comps.",
}
#: The names of rows, by those of their configurations; others are called like these.
TITLES = PAPER | {name: decoder.__name__ for name, decoder in DECODERS.items()}
TITLES |= {"air": "Thera Air", "sinc": "×4, sinc"}
NO_ENSEMBLE = "No GSE"  # the full model, evaluated without the ensemble
SEED = "-seed"  # precedes the number of a further seed in a name
AT = "plus-at-"  # the full model with as few patches as another row
FEWER = 0.95  # of the full model's patches: rows with less are compared at equal patches, too
MEASURING = 0.05  # share of the time that measures the speed, at most; these steps count


@dataclass(frozen=True)
class Row:
    """One configuration that is trained, with one seed."""

    name: str  # of its row in the table
    config: Config
    weights: Path
    patches_of: Path | None = None  # weights of another row: train for as many patches as these have seen

    @cached_property
    def about(self) -> dict[str, Any]:
        """How the finished weights were trained."""
        return read_header(self.weights).get("ablation", {})

    def check(self, seconds: float) -> None:
        """Refuse weights, or a stopped run, of other values or of another length."""
        if self.weights.exists():
            found = self.config.differences(self.about.get("config", {}))
            if self.about.get("seconds") != seconds:
                found.append(f"{seconds:g} seconds, not {self.about.get('seconds', 0):g}")
            if found:
                raise InvalidInput(
                    f"{self.weights} was trained with other values, and is now given {'; '.join(found)}: "
                    "remove it, or name another --runs."
                )
        elif self.state.exists() and (begun := self.stated.read_text("utf-8")) != f"{seconds:g}":
            raise InvalidInput(
                f"{self.folder} holds a run of {begun} seconds, not {seconds:g}: remove it, or name another "
                "--runs."
            )

    @property
    def folder(self) -> Path:
        return self.weights.with_suffix("")

    @property
    def state(self) -> Path:
        return self.folder / loop.STATE

    @property
    def stated(self) -> Path:
        """The file that states the length of a run."""
        return self.folder / "seconds"


def train(row: Row, images: list[np.ndarray], seconds: float, device: str, until: float = math.inf) -> bool:
    """Train one row into its file, whose header states how.

    A run that was stopped goes on from its last checkpoint. Returns False if the clock read `until` first.
    """
    began, config = time.monotonic(), row.config
    sampler = Sampler(images, config.data, device, config.degradation)
    torch.manual_seed(config.seed)
    run = loop.Run(config, sampler, initial_network(config)[0], 10**9)
    stopped = checkpoint.load(row.state) if row.state.exists() else None
    if stopped:
        run.total = stopped[1]["total"]
    elif row.patches_of:
        run.total = read_header(row.patches_of)["ablation"]["steps"]
    else:
        rate = steps_per_second(run, RATE_STEPS, MEASURING * seconds)
        run.total = max(run.done, int(seconds * rate), 1)
        run.seconds = run.done / rate
    o = config.optimiser
    run.config = replace(config, optimiser=replace(o, steps=run.total, warmup=min(o.warmup, run.total // 10)))
    if stopped:
        run.restore(*stopped)
        print(f"{row.weights.stem}: resumed at step {run.done} of {run.total}", flush=True)
    else:
        row.folder.mkdir(parents=True, exist_ok=True)
        row.stated.write_text(f"{seconds:g}", "utf-8")
    ready = time.monotonic() - began
    print(f"{row.weights.stem}: ready in {ready:.0f} s, {run.total} steps", flush=True)
    if not loop.train(run, row.folder, until=until):
        print(
            f"{row.weights.stem}: paused at step {run.done} of {run.total}; the same command continues.",
            flush=True,
        )
        return False
    patches = run.total * config.data.batch
    print(f"{row.weights.stem}: {patches:,} patches in {run.seconds:.1f} s", flush=True)
    start = f"{config.start_part} of {Path(config.start).stem}".removeprefix(" of ") if config.start else ""
    about = {
        "seconds": seconds,
        "steps": run.total,
        "patches": patches,
        "took": round(run.seconds, 1),
        "images": len(images),
        "megapixels": round(sampler.area / 1e6, 1),
        "device": device_name(device),
        "start": start,
        "config": config.to_dict(),
    }
    save_safetensors(run.average, row.weights, "f16", {"ablation": about})
    return True


def train_all(
    rows: Sequence[Row], images: list[np.ndarray], seconds: float, device: str, until: float
) -> bool:
    """Train what is not trained yet. A row that fails does not stop the others; an error names it at the end.

    Returns False if the clock read `until` first.
    """
    failed = []
    for row in rows:
        try:
            ended = train(row, images, seconds, device, until)
        except Exception as error:  # of any kind: what the other rows give must not depend on this one
            if not isinstance(error, TheraError):
                traceback.print_exc()
            print(f"{row.weights.stem}: failed. {error}", flush=True)
            failed.append(row.weights.stem)
            ended = True
        # A run refers to itself, and its graph holds much of the GPU's memory.
        gc.collect()
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
        if not ended:
            return False
    if failed:
        raise TheraError(f"{', '.join(failed)} failed, all others are trained: the same command tries again.")
    return True


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


def rows_of(
    known: dict[str, Config], names: Sequence[str], runs: Path, seeds: int, at_equal_patches: bool
) -> Iterator[Row]:
    """Each configuration with each seed, then the full model at the patches of rows that saw fewer."""
    for seed in range(seeds):
        for stem in names:
            config = replace(known[stem], seed=known[stem].seed + seed)
            yield Row(title(stem), config, runs / f"{run_name(stem, seed)}.safetensors")
    if at_equal_patches:
        for stem in names:
            slower = Row(title(stem), known[stem], runs / f"{stem}.safetensors")
            full = Row(FULL, known["plus"], runs / "plus.safetensors")
            if all(row.weights.exists() for row in (slower, full)) and (
                slower.about["patches"] < FEWER * full.about["patches"]
            ):
                weights = runs / f"{AT}{stem}.safetensors"
                yield Row(at_patches_of(title(stem)), known["plus"], weights, slower.weights)


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
    images: list[np.ndarray] = []

    def untrained(equal: bool) -> list[Row]:
        rows = list(rows_of(known, names or list(known), runs, seeds, equal))
        for row in rows:
            row.check(seconds)
        return [row for row in rows if not row.weights.exists()]

    for equal in (False, True) if at_equal_patches else (False,):
        if missing := untrained(equal):
            if not data:
                stems = ", ".join(row.weights.stem for row in missing)
                raise InvalidInput(f"{runs} lacks {stems}: give --data to train them, or leave them out.")
            if not images:
                settings = [config.data for config in known.values()]
                smallest = max(d.crops[0] for d in settings)
                images = read_images(list(data), smallest, settings[0].resized, settings[0].soft)
            if not train_all(
                missing, images, seconds, device, math.inf if pause is None else began + 60 * pause
            ):
                return
    if not sets:
        return
    rows = list(rows_of(known, names or list(known), runs, seeds, at_equal_patches))
    command = f"thera ablations --configs {'/'.join(configs.resolve().parts[-2:])} --runs runs/{runs.name}"
    command += f" --seconds {seconds:g}" + (f" --names {' '.join(names)}" if names else "")
    command += (f" --seeds {seeds}" if seeds > 1 else "") + (
        " --at-equal-patches" if at_equal_patches else ""
    )
    about = {
        "seconds": seconds,
        "budget": budget(rows),
        "command": command + (f" --set {' '.join(changes)}" if changes else ""),
        "rows": [_facts(row) for row in rows],
        "kappa": _kappas(rows),
    }
    out.mkdir(parents=True, exist_ok=True)
    results = out / f"{runs.resolve().name}.jsonl"
    files: dict[str, list[str]] = {}
    for row in rows:
        files.setdefault(row.name, []).append(str(row.weights))
    options: dict[str, Any] = {"engine": "torch", "device": device, "precision": precision, "seamless": False}
    named = [f"{name}={','.join(found)}" for name, found in files.items()]
    methods = load_methods(named, (), both=not ablations, **options)
    if ablations and FULL in files:
        plain = f"{NO_ENSEMBLE}={','.join(files[FULL])}"
        methods += load_methods([plain], (), ensemble=False, **options)
    with replacing(results.with_suffix(".json")) as file:
        file.write(f"{json.dumps(about, ensure_ascii=False)}\n".encode())
    evaluate(methods, sets, scales, results, workers, replace_results)


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


def run_name(stem: str, seed: int) -> str:
    """The name of a run: that of its configuration, with the number of its seed beyond the first."""
    return f"{stem}{SEED}{seed}" if seed else stem


def title(stem: str) -> str:
    """The name of the row of a configuration."""
    return TITLES.get(stem, stem)
