"""Several configurations, each trained for the same time from the same seed, and measured on the same images:
the paper's ablations, or methods against each other.

The time before the first step, for reading images and compiling, is not counted.
"""

from __future__ import annotations

import json
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
from thera.models.weights import read_header, save_safetensors
from thera.training import loop
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
TIMED = 50  # steps that measure the speed


def begin(config: Config, sampler: Sampler, steps: int) -> loop.Run:
    torch.manual_seed(config.seed)
    return loop.Run(config, sampler, initial_network(config)[0], steps)


def train(
    path: Path, images: list[np.ndarray], seconds: float, changes: Sequence[str], folder: Path, device: str
) -> None:
    """Train one configuration into `folder`/NAME.safetensors, whose header states the budget."""
    config = Config.read(path, changes)
    sampler = Sampler(images, config.data, device)
    steps = max(1, int(seconds * steps_per_second(begin(config, sampler, 10**9), TIMED)))
    warmup = min(config.optimiser.warmup, steps // 10)
    config = replace(config, optimiser=replace(config.optimiser, steps=steps, warmup=warmup))
    run = begin(config, sampler, steps)
    began = time.perf_counter()
    loop.train(run, folder / path.stem)
    patches = steps * config.data.batch
    print(f"{title(path.stem)}: {patches:,} patches in {time.perf_counter() - began:.1f} s", flush=True)
    about = {"seconds": seconds, "patches": patches, "images": len(images), "device": device_name(device)}
    if config.start:
        about["start"] = f"{config.start_part} of {Path(config.start).stem}".removeprefix(" of ")
    save_safetensors(run.average, folder / f"{path.stem}.safetensors", "f32", {"ablation": about})


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
    seen = "; ".join(f"{title(f.stem)} {n:,}" for f, n in zip(files, patches, strict=True))
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
) -> None:
    """Train each file of `configs` into `runs`, and write what is measured and its budget into `out`.

    A folder with the paper's ablations makes `ablation.jsonl` and `ablation.json`, any other folder is named
    like them. The same call continues an interrupted one: nothing is trained or measured twice.
    """
    paths = sorted(configs.glob("*.toml"))
    ablations = {path.stem for path in paths} == set(NAMES)
    if ablations:
        paths = [configs / f"{stem}.toml" for stem in NAMES]
    if not paths:
        raise InvalidInput(f"{configs} holds no configuration: name a folder of TOML files.")
    results = out / ("ablation.jsonl" if ablations else f"{configs.resolve().name}.jsonl")
    settings = [Config.read(path, changes).data for path in paths]
    sets = image_sets(validate)
    weights = {path.stem: runs / f"{path.stem}.safetensors" for path in paths}
    missing = [path for path in paths if not weights[path.stem].exists()]
    if missing:
        smallest = max(d.crops[0] for d in settings)
        images = read_images(list(data), smallest, settings[0].resized, settings[0].soft)
        for path in missing:
            train(path, images, seconds, changes, runs, device)
    stated = budget(list(weights.values()))

    out.mkdir(parents=True, exist_ok=True)
    named = [f"{title(stem)}={file}" for stem, file in weights.items()]
    options: dict[str, Any] = {"engine": "torch", "device": device}
    methods = load_methods(named, (), both=not ablations, **options)
    if ablations:
        methods += load_methods([f"{NO_ENSEMBLE}={weights['plus']}"], (), ensemble=False, **options)
    evaluate(methods, sets, scales, results, workers, replace=True)
    stated_as = json.dumps({"budget": stated}, ensure_ascii=False)
    results.with_suffix(".json").write_text(stated_as + "\n", "utf-8")


def title(stem: str) -> str:
    """The name of a row: the paper's for its ablations."""
    return NAMES.get(stem, stem)
