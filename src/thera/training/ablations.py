"""Several configurations, each trained for the same time from the same seed, and measured on the same images:
the paper's ablations, or methods against each other.

The time before the first step, for reading images and compiling, is not counted.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from thera.errors import InvalidInput
from thera.evaluation.images import image_sets
from thera.evaluation.methods import load_methods
from thera.evaluation.runner import run as evaluate
from thera.models.weights import load_safetensors, read_header, save_safetensors
from thera.networks import Thera
from thera.training import checkpoint, loop
from thera.training.config import Config
from thera.training.data import Sampler, read_images
from thera.training.run import device_name, initial_network, steps_per_second

#: The paper's name for each configuration.
NAMES = {
    "plus": "Thera Plus",
    "only-x2": "×2 only, fixed κ",
    "only-x3": "×3 only, fixed κ",
    "only-x4": "×4 only, fixed κ",
    "fixed-kappa": "Fixed κ",
    "no-tv": "No TV prior",
    "relu": "ReLU instead ξ",
    "predicted": "Predicted comps.",
}
NO_ENSEMBLE = "No GSE"  # the full model, evaluated without the ensemble
SEED = "-seed"  # precedes the number of a further seed in a name
TIMED = 50  # steps that measure the speed


def begin(config: Config, sampler: Sampler, steps: int) -> loop.Run:
    torch.manual_seed(config.seed)
    return loop.Run(config, sampler, initial_network(config)[0], steps)


def train(
    path: Path,
    images: list[np.ndarray],
    seconds: float,
    changes: Sequence[str],
    weights: Path,
    device: str,
    seed: int = 0,
    until: float = math.inf,
) -> bool:
    """Train one configuration into the file `weights`, whose header states the budget.

    A run that was stopped goes on from its last checkpoint. Returns False if the clock read `until` first.
    """
    config = Config.read(path, changes)
    config = replace(config, seed=config.seed + seed)
    sampler = Sampler(images, config.data, device, config.degradation)
    folder = weights.with_suffix("")
    state, stated = folder / loop.STATE, folder / "seconds"
    stopped = checkpoint.load(state) if state.exists() else None
    if stopped and stated.read_text("utf-8") != f"{seconds:g}":
        raise InvalidInput(
            f"{folder} holds a run of {stated.read_text('utf-8')} seconds, not {seconds:g}: remove it, or "
            "name another --runs."
        )
    if stopped:
        steps = stopped[1]["total"]
    else:
        steps = max(1, int(seconds * steps_per_second(begin(config, sampler, 10**9), TIMED)))
        folder.mkdir(parents=True, exist_ok=True)
        stated.write_text(f"{seconds:g}", "utf-8")
    warmup = min(config.optimiser.warmup, steps // 10)
    config = replace(config, optimiser=replace(config.optimiser, steps=steps, warmup=warmup))
    run = begin(config, sampler, steps)
    if stopped:
        run.restore(*stopped)
        print(f"{folder.name}: resumed at step {run.done} of {run.total}", flush=True)
    if not loop.train(run, folder, until=until):
        print(
            f"{folder.name}: paused at step {run.done} of {run.total}; the same command continues.",
            flush=True,
        )
        return False
    patches = steps * config.data.batch
    print(f"{folder.name}: {patches:,} patches in {run.seconds:.1f} s", flush=True)
    about = {"seconds": seconds, "patches": patches, "images": len(images), "device": device_name(device)}
    if config.start:
        about["start"] = f"{config.start_part} of {Path(config.start).stem}".removeprefix(" of ")
    save_safetensors(run.average, weights, "f32", {"ablation": about})
    return True


def budget(files: Sequence[Path]) -> str:
    """The training budget that the weights state, which must be the same for all of them."""
    stated = [dict(read_header(file).get("ablation", {})) for file in files]
    patches = [about.pop("patches", 0) for about in stated]
    for file, about in zip(files, stated, strict=True):
        if about != stated[0]:
            raise InvalidInput(
                f"{file} was trained with {about}, {files[0].name} with {stated[0]}: remove one, or name "
                "another --runs."
            )
    about = stated[0]
    first = [(f, n) for f, n in zip(files, patches, strict=True) if SEED not in f.stem]
    seen = "; ".join(f"{title(f.stem)} {n:,}" for f, n in first)
    if len(files) > len(first):
        seen += f", with each of {len(files) // len(first)} seeds"
    start = f"from the {about['start']}" if "start" in about else "from scratch"
    return (
        f"{about['seconds']:g} seconds of training {start} on one {about['device']}, with "
        f"{about['images']} images, smaller copies counted. Patches seen: {seen}."
    )


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
) -> None:
    """Train each file of `configs` into `runs`, and write what is measured and its budget into `out`.

    A folder with the paper's ablations makes `ablation.jsonl` and `ablation.json`, any other folder is named
    like them. The same call continues an interrupted one: nothing is trained or measured twice. `names` takes
    only these files, in this order; `seeds` trains each so often; `pause` is in minutes.
    """
    began = time.monotonic()
    paths = sorted(configs.glob("*.toml"))
    ablations = {path.stem for path in paths} == set(NAMES)
    if ablations:
        paths = [configs / f"{stem}.toml" for stem in NAMES]
    if not paths:
        raise InvalidInput(f"{configs} holds no configuration: name a folder of TOML files.")
    known = {path.stem: path for path in paths}
    for name in names:
        if name not in known:
            raise InvalidInput(f"{configs} holds no {name}.toml: choose among {', '.join(known)}.")
    results = out / ("ablation.jsonl" if ablations else f"{configs.resolve().name}.jsonl")
    read = {path: Config.read(path, changes) for path in paths}
    for path, config in read.items():
        if config.data.paired < 1 or config.objective.align:
            raise InvalidInput(f"{path} needs pairs of pictures, which only thera train takes: leave it out.")
    settings = [config.data for config in read.values()]
    sets = image_sets(validate)
    weights = {
        stem: [runs / f"{run_name(stem, seed)}.safetensors" for seed in range(seeds)] for stem in known
    }
    chosen = {stem: weights[stem] for stem in names or known}
    missing = [(stem, n) for n in range(seeds) for stem in chosen if not weights[stem][n].exists()]
    if missing:
        smallest = max(d.crops[0] for d in settings)
        images = read_images(list(data), smallest, settings[0].resized, settings[0].soft)
        until = math.inf if pause is None else began + 60 * pause
        for stem, n in missing:
            if not train(known[stem], images, seconds, changes, weights[stem][n], device, n, until):
                return
    trained = {stem: files for stem, files in weights.items() if all(file.exists() for file in files)}
    about = {
        "budget": budget([file for files in trained.values() for file in files]),
        "kappa": {title(stem): kappas for stem, files in trained.items() if (kappas := _kappas(files))},
    }

    out.mkdir(parents=True, exist_ok=True)
    named = [f"{title(stem)}={','.join(map(str, files))}" for stem, files in chosen.items()]
    options: dict[str, Any] = {"engine": "torch", "device": device}
    methods = load_methods(named, (), both=not ablations, **options)
    if ablations and "plus" in chosen:
        plain = f"{NO_ENSEMBLE}={','.join(map(str, chosen['plus']))}"
        methods += load_methods([plain], (), ensemble=False, **options)
    evaluate(methods, sets, scales, results, workers, replace=True)
    results.with_suffix(".json").write_text(json.dumps(about, ensure_ascii=False) + "\n", "utf-8")


def _kappas(files: Sequence[Path]) -> list[float]:
    """κ of each of these weights; none for methods without one."""
    networks = (load_safetensors(file)[0] for file in files)
    return [round(network.kappa.item(), 5) for network in networks if isinstance(network, Thera)]


def run_name(stem: str, seed: int) -> str:
    """The name of a run: that of its configuration, with the number of its seed beyond the first."""
    return f"{stem}{SEED}{seed}" if seed else stem


def title(stem: str) -> str:
    """The name of a row: the paper's for its ablations."""
    return NAMES.get(stem, stem)
