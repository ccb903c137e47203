"""From a configuration and a folder of images to a trained model: what `thera train` does."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from thera.errors import InvalidInput, ModelError
from thera.evaluation.damage import stated
from thera.evaluation.pairs import read_pairs
from thera.evaluation.records import read_records
from thera.models.loading import load_network
from thera.models.weights import save_safetensors
from thera.networks import Network, Thera, make_network
from thera.training import checkpoint, loop
from thera.training.config import Config, Initial
from thera.training.data import Sampler
from thera.training.images import read_images
from thera.training.pairs import MixedSampler, PairSampler
from thera.training.validation import Validation

COMPILING = 5  # steps at the start that compile and are not timed
RATE_STEPS = 200  # steps that measure the speed for a time budget
MEASURING = 0.05  # share of the budget for them, at most
RESERVE = 0.97  # share of the budget for steps; the rest is for checkpoints and validation


def start(
    config: Config,
    data: Sequence[str | Path],
    folder: str | Path,
    *,
    minutes: float | None = None,
    pause: float | None = None,
    validate: Sequence[str | Path] = (),
    scales: Sequence[float] = (2, 3, 4),
    degrade: Sequence[str] = (),
    pairs: Sequence[str | Path] = (),
    device: str = "auto",
    show: Callable[[dict[str, Any]], None] = print,
    say: Callable[[str], None] = print,
) -> Network | None:
    """Train, or continue the run in `folder`. Returns the averaged network, or None if the run was paused.

    minutes: time budget of the whole run; the number of steps follows from the measured speed if the
    configuration gives none. pause: stop after so many minutes of this call; the next call continues.
    """
    began, folder = time.monotonic(), Path(folder)
    if not config.optimiser.steps and minutes is None:
        raise InvalidInput("The run has no length: set optimiser.steps or pass --minutes.")
    for name, given in (("--minutes", minutes), ("--pause", pause)):
        if given is not None and not 0 <= given < math.inf:
            raise InvalidInput(f"{name} {given:g} is not a length of time: give a number of minutes.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InvalidInput(f"The folder {folder} cannot be made ({e.strerror}): name another.") from None
    device = _device(device)
    torch.manual_seed(config.seed)
    network, earlier = initial_network(config)
    if config.objective.align and not (pairs and isinstance(network, Thera)):
        raise InvalidInput("objective.align = true aligns pairs for a Thera network: give --pairs.")
    sampler = make_sampler(config, data, pairs, device, say)
    check = Validation(validate, scales, device, stated(degrade)) if validate else None
    say(f"{sampler.count} images, {sampler.area / 1e6:.1f} megapixels on {device}.")

    run = loop.Run(config, sampler, network, config.optimiser.steps)
    if (folder / loop.STATE).exists():
        run.restore(*checkpoint.load(folder / loop.STATE))
        ended = " It has ended: name another --out for a new run." if run.done >= run.total > 0 else ""
        say(f"Resumed at step {run.done} of {run.total}.{ended}")
    if not run.total:
        run.total = _affordable(run, minutes, began)  # type: ignore[arg-type]
        say(f"{run.total} steps fit into {minutes:g} minutes.")
    until = math.inf if pause is None else began + 60 * pause
    if not loop.train(run, folder, until=until, validate=check, show=show):
        say(f"Paused at step {run.done} of {run.total}: the same command continues.")
        return None
    start_name = Path(config.start).stem
    stage = config.to_dict() | {
        # All runs call their weights weights.safetensors: the number of the stage says more.
        "start": f"stage {len(earlier)}" if earlier and Path(config.start).is_file() else start_name,
        "images": sampler.count,
        "megapixels": round(sampler.area / 1e6, 1),
        "patches": run.done * config.data.batch,
        "minutes": round(run.seconds / 60, 1),
        "device": device_name(device),
    }
    if pairs:  # how many of the images they are
        stage["pairs"] = sampler.pairs.count if isinstance(sampler, MixedSampler) else sampler.count
    about: dict[str, Any] = {"training": [*earlier, stage]}
    about |= ({"name": config.name} if config.name else {}) | (
        {"restores": True} if config.degradation.on or pairs else {}
    )
    if run.rank == 0:
        save_safetensors(run.average, folder / loop.WEIGHTS, "f32", about)
    return run.average


def make_sampler(
    config: Config,
    data: Sequence[str | Path],
    pairs: Sequence[str | Path],
    device: str = "cpu",
    say: Callable[[str], None] = print,
) -> Sampler | MixedSampler:
    """What draws the batches: from images (`data`), from pairs, or from both."""
    d = config.data
    if not pairs and d.paired < 1:
        raise InvalidInput(f"data.paired = {d.paired:g} is the share of pairs in a batch: give --pairs.")
    if pairs and not data and d.paired < 1:
        raise InvalidInput(
            f"data.paired = {d.paired:g} leaves a part of each batch to ordinary pictures: give --data, too."
        )
    if pairs and data and d.paired == 1:
        raise InvalidInput(
            "data.paired = 1 leaves no part of a batch to --data: lower it, or leave out --data or --pairs."
        )
    if pairs and config.teacher.model:
        raise InvalidInput("Pairs are trained without a teacher: leave out [teacher].")
    if pairs and not data and config.degradation.on:
        raise InvalidInput("Only ordinary pictures are degraded: give --data, or leave out [degradation].")
    # Pairs first: they take seconds, and mistakes in them are refused.
    paired = PairSampler(read_pairs(pairs, d.patch), d, device) if pairs else None
    if paired is not None and not data:
        return paired
    images = read_images(list(data), d.crops[0], d.resized, d.soft, say)
    pictures = Sampler(images, d, device, config.degradation)
    return pictures if paired is None else MixedSampler(paired, pictures)


def initial_network(config: Config) -> tuple[Network, list[dict[str, Any]]]:
    """The initial network, and the training stages of the model it starts from.

    Every weight of `config.start` that fits is copied; the others are random.
    """
    network, earlier = make_network(config.network), []
    if isinstance(network, Thera) and config.initial != Initial():
        network.reset_fields(config.initial.bank * math.pi, config.initial.head == "small")
    if config.start:
        source, about = load_network(config.start)
        earlier = about.get("training", [])
        mine, theirs = network.state_dict(), source.state_dict()
        part = {k: v for k, v in theirs.items() if k.startswith(config.start_part)}
        fitting = {k: v for k, v in part.items() if k in mine and v.shape == mine[k].shape}
        if not fitting:
            raise ModelError(f"No weight of {config.start} fits {config.network.name}: name another start.")
        network.load_state_dict(mine | fitting)
    with torch.no_grad():
        taken = config.start and not config.start_part and config.optimiser.kappa_rate
        if isinstance(network, Thera) and not taken:
            network.kappa.fill_(config.optimiser.kappa)
    return network, earlier


def steps_per_second(run: loop.Run, steps: int, seconds: float = math.inf) -> float:
    """The speed of a run after compilation, measured on its next `steps`, for `seconds` at most."""
    for _ in range(COMPILING):
        run.step()
    run.report()  # waits for the device
    began, first = time.monotonic(), run.done
    while run.done < first + steps and (run.world > 1 or time.monotonic() < began + seconds):
        run.step()
    run.report()
    return (run.done - first) / (time.monotonic() - began)


def _affordable(run: loop.Run, minutes: float, began: float) -> int:
    """How many steps fit into the budget, including those that compile and measure the speed."""
    run.total = 10**9
    rate = steps_per_second(run, RATE_STEPS, MEASURING * 60 * minutes)
    left = began + 60 * minutes - time.monotonic()
    if loop.agreed(left <= 0):
        raise InvalidInput(f"{minutes:g} minutes were over before training began: give more.")
    return int(loop.agreed(run.done + int(rate * left * RESERVE)))


def device_name(device: str) -> str:
    """The name of the GPU, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def _device(name: str) -> str:
    """Join the other processes if `torchrun` started several, and choose the device."""
    if name not in ("auto", "cpu", "cuda"):
        raise InvalidInput(f"Unknown device {name!r}: training runs on 'cuda' or 'cpu'.")
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidInput("PyTorch finds no CUDA device: leave --device out to train on the CPU.")
    cuda = torch.cuda.is_available() and name != "cpu"
    if "WORLD_SIZE" in os.environ and not dist.is_initialized():
        dist.init_process_group("nccl" if cuda else "gloo")
    if not cuda:
        return "cpu"
    device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    torch.cuda.set_device(device)
    return device


def progress_line(entry: dict[str, Any]) -> str:
    """A log entry as one readable line: step, speed, loss, κ and validation scores."""
    scores = " ".join(f"{k} {v:.2f}" for k, v in entry.items() if "×" in k)
    kappa = f"κ {entry['kappa']:.4f}  " if "kappa" in entry else ""
    return (
        f"{100 * entry['step'] / entry['of']:5.1f} %  step {entry['step']}  "
        f"{entry['patches_per_second']:,.0f} patches/s  "
        f"L1 {entry['l1']:.5f}  {kappa}{scores}"
    ).rstrip()


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """The reports of a run. A last line cut short by an interruption is left out."""
    return read_records(Path(folder) / loop.LOG)
