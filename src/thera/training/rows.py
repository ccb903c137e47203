"""The rows of a comparison: each is one configuration with one seed, trained for the same time.

What counts is the time of steps. Reading images and compiling are not counted.
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
from thera.models.weights import read_header, save_safetensors
from thera.networks.decoders import DECODERS
from thera.training import checkpoint, loop
from thera.training.config import Config
from thera.training.data import Sampler
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
SEED = "-seed"  # precedes the number of a further seed in a name
AT = "plus-at-"  # the full model with as few patches as another row
FEWER = 0.95  # of the full model's patches: rows with less are compared at equal patches, too
LEAST = 60.0  # seconds that must be left before a pause for a further row to begin, for it is compiled first
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
            if found := self._differences(self.about, seconds):
                raise InvalidInput(
                    f"{self.weights} was trained with other values, and is now given {'; '.join(found)}: "
                    "remove it, or name another --runs."
                )
        elif self.state.exists():
            if not self.stated.exists():
                raise InvalidInput(
                    f"{self.folder} holds a stopped run of an earlier version, which stored no values of it:"
                    " remove it to train the row anew, or name another --runs."
                )
            if found := self._differences(json.loads(self.stated.read_text("utf-8")), seconds):
                raise InvalidInput(
                    f"{self.folder} holds a stopped run of other values, and is now given {'; '.join(found)}:"
                    " remove it, or name another --runs."
                )

    def _differences(self, begun: dict[str, Any], seconds: float) -> list[str]:
        """How this row differs from what was begun."""
        found = self.config.differences(begun.get("config", {}))
        before = begun.get("seconds", 0)
        return found if before == seconds else [*found, f"{seconds:g} seconds, not {before:g}"]

    @property
    def folder(self) -> Path:
        return self.weights.with_suffix("")

    @property
    def state(self) -> Path:
        return self.folder / loop.STATE

    @property
    def stated(self) -> Path:
        """The file that states the length and the values of a run."""
        return self.folder / "row.json"


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
        row.stated.write_text(json.dumps({"seconds": seconds, "config": config.to_dict()}), "utf-8")
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
) -> tuple[bool, list[str]]:
    """Train what is not trained yet. A row that fails does not stop the others.

    Returns False if the clock read `until` first, and the names of the rows that failed.
    """
    failed: list[str] = []
    for count, row in enumerate(rows):
        if count and time.monotonic() > until - LEAST:
            return False, failed
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
        torch.compiler.reset()  # PyTorch stops compiling a function after eight versions of it
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
        if not ended:
            return False, failed
    return True, failed


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


def run_name(stem: str, seed: int) -> str:
    """The name of a run: that of its configuration, with the number of its seed beyond the first."""
    return f"{stem}{SEED}{seed}" if seed else stem


def title(stem: str) -> str:
    """The name of the row of a configuration."""
    return TITLES.get(stem, stem)
