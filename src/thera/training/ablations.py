"""The paper's ablations, each trained for the same time from the same seed, and measured on the same images.

    python -m thera.training.ablations --data photos/ --seconds 20 --validate Set14 --scales 2 3 4 6 8

This writes ablation.jsonl and ablation.json into docs/results, of which `thera eval --report` makes a table.
What a run reads and compiles before its first step is not counted. The same command goes on where it stopped:
what has been trained, or measured, is not done again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from thera.errors import InvalidInput, TheraError
from thera.evaluation.images import image_sets
from thera.evaluation.methods import load_methods
from thera.evaluation.runner import run as evaluate
from thera.models.weights import read_header, save_safetensors
from thera.training import loop
from thera.training.config import Config
from thera.training.data import Sampler, read_images
from thera.training.run import device_name, prepare, steps_per_second

#: The paper's names of what each configuration leaves out.
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
NO_ENSEMBLE = "No GSE"  # of the whole model, by evaluation alone
TIMED = 50  # steps that measure how many fit


def begin(config: Config, sampler: Sampler, steps: int) -> loop.Run:
    torch.manual_seed(config.seed)
    return loop.Run(config, sampler, prepare(config)[0], steps)


def train(
    path: Path, images: list[np.ndarray], seconds: float, changes: Sequence[str], folder: Path, device: str
) -> None:
    """Train one configuration into `folder`/NAME.safetensors, which states its budget."""
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
    """What the trained weights say of their training, which must be the same for all of them."""
    stated = [dict(read_header(file).get("ablation", {})) for file in files]
    patches = [about.pop("patches", 0) for about in stated]
    for file, about in zip(files, stated, strict=True):
        if about != stated[0]:
            raise InvalidInput(
                f"{file} was trained with {about}, {files[0].name} with {stated[0]}: remove one, or name "
                f"another --runs"
            )
    about = stated[0]
    seen = "; ".join(f"{NAMES[f.stem]} {n:,}" for f, n in zip(files, patches, strict=True))
    return (
        f"{about['seconds']:g} seconds of training from scratch on one {about['device']}, with "
        f"{about['images']} images, smaller copies counted. Patches seen: {seen}."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--configs", type=Path, default=Path("configs/ablations"))
    parser.add_argument("--data", nargs="+", required=True, help="folders and tar files of images")
    parser.add_argument("--seconds", type=float, default=60, help="of training, for each")
    parser.add_argument("--validate", nargs="+", required=True, help="folders of images to measure on")
    parser.add_argument("--scales", nargs="+", type=float, default=[2, 3, 4, 6, 8])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="for all of them")
    parser.add_argument("--workers", type=int, default=2, help="images measured at a time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--runs", type=Path, default=Path("runs/ablations"))
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/results"))
    a = parser.parse_args(arguments)
    paths = [a.configs / f"{stem}.toml" for stem in NAMES]
    data = [Config.read(path, a.set).data for path in paths]
    sets = image_sets(a.validate)
    weights = {path.stem: a.runs / f"{path.stem}.safetensors" for path in paths}
    missing = [path for path in paths if not weights[path.stem].exists()]
    if missing:
        smallest = max(d.crops[0] for d in data)
        images = read_images(a.data, smallest, data[0].resized, data[0].soft)
        for path in missing:
            train(path, images, a.seconds, a.set, a.runs, a.device)
    stated = budget(list(weights.values()))

    a.out.mkdir(parents=True, exist_ok=True)
    named = [f"{NAMES[stem]}={file}" for stem, file in weights.items()]
    for ensemble, models in (True, named), (False, [f"{NO_ENSEMBLE}={weights['plus']}"]):
        methods = load_methods(models, (), ensemble, engine="torch", device=a.device)
        evaluate(methods, sets, a.scales, a.out / "ablation.jsonl", a.workers, replace=True)
    (a.out / "ablation.json").write_text(json.dumps({"budget": stated}, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    try:
        main()
    except TheraError as error:
        sys.exit(f"error: {error}")
