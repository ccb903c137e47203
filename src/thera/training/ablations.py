"""The paper's ablations, each trained for the same time from the same seed, and measured on the same images.

The time before the first step, for reading images and compiling, is not counted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

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
    print(f"{NAMES[path.stem]}: {patches:,} patches in {time.perf_counter() - began:.1f} s", flush=True)
    about = {
        "seconds": seconds,
        "patches": patches,
        "images": len(images),
        "device": device_name(device),
    }
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
    seen = "; ".join(f"{NAMES[f.stem]} {n:,}" for f, n in zip(files, patches, strict=True))
    return (
        f"{about['seconds']:g} seconds of training from scratch on one {about['device']}, with "
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
    """Train each ablation into `runs`, and write `ablation.jsonl` and `ablation.json` into `out`.

    The same call continues an interrupted one: nothing is trained or measured twice.
    """
    paths = [configs / f"{stem}.toml" for stem in NAMES]
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
    named = [f"{NAMES[stem]}={file}" for stem, file in weights.items()]
    for ensemble, models in (True, named), (False, [f"{NO_ENSEMBLE}={weights['plus']}"]):
        methods = load_methods(models, (), ensemble, engine="torch", device=device)
        evaluate(methods, sets, scales, out / "ablation.jsonl", workers, replace=True)
    (out / "ablation.json").write_text(json.dumps({"budget": stated}, ensure_ascii=False) + "\n", "utf-8")
