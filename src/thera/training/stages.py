"""Stages: several runs, one after the other, that together make a model.

A folder holds one TOML file per stage; they run in the order of their names. A stage is the configuration of
a run, or the mean of several networks: `mean = ["06-images", "07-ensemble"]`. Wherever a stage names a model
(`start`, `teacher.model`, `mean`), the name of an earlier stage stands for the weights that it ended with.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch.distributed as dist

from thera.errors import InvalidInput
from thera.models.loading import locate
from thera.models.weights import save_safetensors
from thera.training import checkpoint
from thera.training.average import average
from thera.training.config import Config
from thera.training.loop import STATE, WEIGHTS
from thera.training.plot import plot
from thera.training.run import read_log, start
from thera.training.toml_files import changed, read_toml


@dataclass(frozen=True)
class Mean:
    """A stage that takes the mean of networks and trains nothing."""

    of: tuple[str, ...]


Stage = Config | Mean


def train(
    path: Path,
    data: Sequence[str | Path],
    out: Path,
    *,
    changes: Sequence[str] = (),
    minutes: float | None = None,
    pause: float | None = None,
    say: Callable[[str], None] = print,
    **options: Any,
) -> bool:
    """Train as a file says, or as all files of a folder say, each in its own sub-folder of `out`.

    `changes` apply to every run. Other arguments are those of `run.start`. Returns False if the training was
    paused; the same call continues it, and skips stages that have ended.
    """
    first = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun starts, one reports
    say = say if first else lambda _: None
    several, began = path.is_dir(), time.monotonic()
    stages = read_stages(path, changes, minutes) if several else {path.stem: read_stage(path, changes)}
    earlier: dict[str, str] = {}  # the weights of the stages so far, by name
    for number, (name, stage) in enumerate(stages.items(), 1):
        folder = out / name if several else out
        stage = _with_models(stage, lambda model: earlier.get(model, model))
        earlier[name] = str(folder / WEIGHTS)
        if several:
            say(f"Stage {number} of {len(stages)}: {name}.")
            if _ended(stage, folder):
                continue
        if isinstance(stage, Mean):
            mean, about = average(stage.of)
            if first:
                folder.mkdir(parents=True, exist_ok=True)
                save_safetensors(mean, folder / WEIGHTS, "f32", about)
        else:
            left = max(0.0, pause - (time.monotonic() - began) / 60) if pause and number > 1 else pause
            network = start(stage, data, folder, minutes=minutes, pause=left, say=say, **options)
            if first:
                plot(read_log(folder), folder / "run.png")
            if network is None:
                return False
        if dist.is_initialized():
            dist.barrier()  # the next stage reads what the first process has written
        gc.collect()  # a run refers to itself, and holds its images on the device
    say(f"The model is {folder / WEIGHTS}.")
    return True


def read_stages(path: Path, changes: Sequence[str], minutes: float | None = None) -> dict[str, Stage]:
    """The stages of a folder by name, in order. Mistakes are found here, before the first stage runs."""
    stages: dict[str, Stage] = {}

    def known(name: str) -> str:
        if name and name not in stages:
            locate(name)  # raises an error if there is no such model
        return name

    for file in sorted(path.glob("*.toml")):
        stage = _with_models(read_stage(file, changes), known)
        if isinstance(stage, Config) and not stage.optimiser.steps:
            raise InvalidInput(f"{file} does not say how long it runs: set its optimiser.steps.")
        stages[file.stem] = stage
    if not stages:
        raise InvalidInput(f"{path} holds no stage: name a TOML file, or a folder of them.")
    if minutes is not None:
        raise InvalidInput(
            f"--minutes is the length of one run, and {path} holds {len(stages)} stages: leave it out, or "
            "shorten all of them with --set optimiser.steps=N."
        )
    return stages


def read_stage(path: Path, changes: Sequence[str]) -> Stage:
    values = read_toml(path)
    if "mean" not in values:
        return Config.parse(changed(values, changes))
    names = values["mean"]
    if len(values) > 1 or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"{path} takes a mean, so its only key must be mean = [NAME, NAME, …].")
    return Mean(tuple(names))


def _with_models(stage: Stage, model_of: Callable[[str], str]) -> Stage:
    """`stage` with other names for the models that it reads."""
    if isinstance(stage, Mean):
        return Mean(tuple(map(model_of, stage.of)))
    teacher = replace(stage.teacher, model=model_of(stage.teacher.model))
    return replace(stage, start=model_of(stage.start), teacher=teacher)


def _ended(stage: Stage, folder: Path) -> bool:
    """Whether a run has ended. A mean takes a moment, and is always taken again."""
    if isinstance(stage, Mean) or not (folder / WEIGHTS).exists():
        return False
    if (folder / STATE).exists():
        stage.check_unchanged(checkpoint.load(folder / STATE)[1]["config"])
    return True
