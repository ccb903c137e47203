"""The paper's ablations, each trained for the same time from the same seed, and measured on the same images.

    python -m thera.training.ablations --data photos/ --seconds 20 --validate Set14 --scales 2 3 4 6 8

This writes ablation.jsonl and ablation.json into docs/results, of which `thera eval --report` makes a table.
What a run reads and compiles before its first step is not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from thera.evaluation.images import image_sets
from thera.evaluation.methods import load_methods
from thera.evaluation.runner import run as evaluate
from thera.models.weights import save_safetensors
from thera.training import loop
from thera.training.config import Config
from thera.training.data import Sampler, read_images
from thera.training.run import prepare, steps_per_second

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
) -> int:
    """Train one configuration into `folder`/NAME.safetensors. Returns how many patches it saw."""
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
    save_safetensors(run.average, folder / f"{path.stem}.safetensors", "f32", {})
    return patches


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
    images = read_images(a.data, max(round(d.patch * d.scales[1]) for d in data), data[0].resized)
    sets = image_sets(a.validate)
    patches = [train(path, images, a.seconds, a.set, a.runs, a.device) for path in paths]

    a.out.mkdir(parents=True, exist_ok=True)
    records = a.out / "ablation.jsonl"
    weights = {NAMES[path.stem]: a.runs / f"{path.stem}.safetensors" for path in paths}
    for ensemble, models in (True, weights), (False, {NO_ENSEMBLE: weights[NAMES["plus"]]}):
        specs = [f"{name}={file}" for name, file in models.items()]
        options = {"engine": "torch", "device": a.device}
        methods = load_methods(specs, (), ensemble, **options)
        evaluate(methods, sets, a.scales, records, a.workers, replace=True)
    device = torch.cuda.get_device_name() if a.device.startswith("cuda") else a.device
    budget = (
        f"{a.seconds:g} seconds of training from scratch on one {device}, {min(patches):,} to "
        f"{max(patches):,} patches of {len(images)} images."
    )
    (a.out / "ablation.json").write_text(json.dumps({"budget": budget}, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
