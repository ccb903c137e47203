"""The training run: its step, which a GPU replays as a CUDA graph, and the loop around it."""

from __future__ import annotations

import copy
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from thera.errors import TheraError
from thera.evaluation.records import appending
from thera.models.cuda_graph import Captured
from thera.models.loading import load_network
from thera.networks import Network, Thera
from thera.training import checkpoint
from thera.training.alignment import Aligner
from thera.training.config import Config, Objective
from thera.training.data import Batch, Sampler
from thera.training.distillation import Distillation
from thera.training.muon import Muon, matrices
from thera.training.objective import objective
from thera.training.pairs import MixedSampler

STATE, WEIGHTS, LOG = "state.safetensors", "weights.safetensors", "log.jsonl"
REPORT_SECONDS = 10  # at most, between two reports
ALIGNMENT = 64  # numbers; every parameter starts at a multiple of it in the common buffer, for wide loads


class DivergedError(TheraError):
    """The loss or the weights are not finite; the last good checkpoint is kept."""


class Run:
    """A training run on one device, or on one of several that share each batch.

    The step draws its own batch, so on a GPU all of it is one CUDA graph: the host only sets the learning
    rate.
    """

    def __init__(self, config: Config, sampler: Sampler | MixedSampler, network: Network, total: int) -> None:
        self.config, self.sampler, self.total = config, sampler, total
        self.device = sampler.device
        self.network = network.to(self.device)
        if self.device.type == "cuda":
            prepare_for_gpu(self.network, config.optimiser.precision)
        if isinstance(network, Thera) and network.spec.variant == "pro":
            network.hypernetwork.drop_path = config.optimiser.drop_path
        # With and without alignment a mixed run draws the same patches.
        with torch.random.fork_rng(devices=[], enabled=isinstance(sampler, MixedSampler)):
            self.aligner = Aligner().to(self.device) if config.objective.align else None
        self.weights = one_buffer(self.network)
        self.average = copy.deepcopy(network).eval().requires_grad_(False)
        self.averages = one_buffer(self.average)
        self.done = 0
        self.loss = torch.zeros((), device=self.device)  # sum of the L1 losses since the last report
        self.newest = torch.zeros((), device=self.device)  # weight of the newest weights in the average
        self.optimisers = self._optimisers()
        self.reported = 0
        self.seconds = 0.0  # spent training, without interruptions
        self.world = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        if config.data.batch % self.world:
            raise TheraError(f"A batch of {config.data.batch} does not divide among {self.world} processes.")
        pairs = config.data.pairs_in(config.data.batch)
        if isinstance(sampler, MixedSampler) and pairs % self.world:
            raise TheraError(f"The {pairs} pairs of a batch do not divide among {self.world} processes.")
        self.descend = Captured(self._step, self.device, self.world == 1)
        self.bf16 = config.optimiser.precision == "bf16" and self.device.type == "cuda"
        self.distillation = self._distillation() if config.teacher.model else None
        self.model: nn.Module = Distance(self.network, config.objective, self.aligner)
        if self.world > 1:
            self.model = nn.parallel.DistributedDataParallel(self.model)

    def _optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """Adam for all parameters, or for those that Muon does not train; κ has its own rate."""
        o = self.config.optimiser
        kappa = [self.network.kappa] if isinstance(self.network, Thera) else []
        for parameter in kappa:
            parameter.requires_grad_(o.kappa_rate > 0)
        chosen = matrices(self.network) if o.method == "muon" else []
        apart = {*kappa, *(p for p, _ in chosen)}
        others = [p for p in self.network.parameters() if p not in apart]
        if self.aligner is not None:
            others += self.aligner.parameters()
        parameters = [others, kappa] if kappa and o.kappa_rate else [others]
        self.factors = [1.0, o.kappa_rate][: len(parameters)]
        self.rates = [torch.tensor(0.0, device=self.device) for _ in self.factors]
        groups: list[dict[str, Any]] = [
            {"params": p, "lr": r} for p, r in zip(parameters, self.rates, strict=True)
        ]
        cuda = self.device.type == "cuda"
        options: dict[str, Any] = {"betas": o.betas, "fused": True, "capturable": cuda}
        adam: torch.optim.Optimizer = (
            torch.optim.AdamW(groups, weight_decay=o.weight_decay, **options)
            if o.weight_decay
            else torch.optim.Adam(groups, **options)
        )
        return {"optimiser": adam} | ({"muon": Muon(chosen, self.rates[0])} if chosen else {})

    def _distillation(self) -> Distillation:
        if self.world > 1:
            raise TheraError(
                f"A teacher needs a single process, not {self.world}: leave out [teacher] or torchrun."
            )
        teacher, _ = load_network(self.config.teacher.model)
        teacher.to(self.device)
        if self.device.type == "cuda":
            prepare_for_gpu(teacher, self.config.optimiser.precision)
        assert isinstance(self.sampler, Sampler)  # pairs have no teacher
        return Distillation(self.sampler, teacher, self.config.teacher, self.config.data.batch, self.bf16)

    def schedule(self, step: int) -> float:
        """Linear warm-up, the full rate while it is held, then cosine decay to zero at `total`."""
        o = self.config.optimiser
        warm = min(1.0, (step + 1) / max(o.warmup, 1))
        decayed = (step / max(self.total, 1) - o.hold) / (1 - o.hold)
        return o.rate * warm * 0.5 * (1 + math.cos(math.pi * min(max(decayed, 0.0), 1.0)))

    def step(self) -> None:
        """One step: draw, descend, average."""
        rate = self.schedule(self.done)
        for tensor, factor in zip(self.rates, self.factors, strict=True):
            tensor.fill_(rate * factor)
        # The average is shorter at first, so that nothing of a random start is left in it.
        self.newest.fill_(1 - min(self.config.optimiser.ema, (1 + self.done) / (10 + self.done)))
        if self.distillation is not None:
            self.distillation.refresh(self.done)
        self.descend()
        self.done += 1

    @torch.no_grad()
    def _batch(self) -> Batch:
        if self.distillation is not None:
            return self.distillation.draw()
        numbers = self.sampler.draw(self.config.data.batch)
        return self.sampler.build({k: u.chunk(self.world)[self.rank] for k, u in numbers.items()})

    def _step(self) -> None:
        o = self.config.optimiser
        batch = self._batch()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss, l1 = self.model(batch)
        loss.backward()
        if o.clip:
            nn.utils.clip_grad_norm_(self.network.parameters(), o.clip, foreach=True)
        for optimiser in self.optimisers.values():
            optimiser.step()
            optimiser.zero_grad()
        self.loss += l1
        self.averages.lerp_(self.weights, self.newest)

    def report(self) -> float:
        """The mean L1 since the last report, in image units. Raises `DivergedError` if the run is lost."""
        mean = self.loss.item() / max(self.done - self.reported, 1)
        self.loss.zero_()
        self.reported = self.done
        if not (math.isfinite(mean) and torch.isfinite(self.weights).all()):
            raise DivergedError(
                f"The loss is {mean} at step {self.done}, or some weights are not finite: lower the rate. "
                "The last good checkpoint is kept."
            )
        return mean

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        tensors |= {f"average.{k}": v for k, v in self.average.state_dict().items()}
        if self.aligner is not None:
            tensors |= {f"aligner.{k}": v for k, v in self.aligner.state_dict().items()}
        for name, optimiser in self.optimisers.items():
            tensors |= {f"{name}.{k}": v for k, v in checkpoint.optimiser_tensors(optimiser).items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        about = {
            "config": self.config.to_dict(),
            "pixels": self.sampler.area,
            "done": self.done,
            "total": self.total,
            "seconds": self.seconds,
        }
        return tensors, about

    def restore(self, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        same_images = about.get("pixels", self.sampler.area) == self.sampler.area
        self.config.check_unchanged(about["config"], [] if same_images else ["other images"])
        part = {
            prefix: {
                k.removeprefix(prefix + "."): v for k, v in tensors.items() if k.startswith(prefix + ".")
            }
            for prefix in ("network", "average", "aligner", "random", *self.optimisers)
        }
        self.network.load_state_dict(part["network"])
        self.average.load_state_dict(part["average"])
        if self.aligner is not None:
            self.aligner.load_state_dict(part["aligner"])
        for name, optimiser in self.optimisers.items():
            checkpoint.restore_optimiser(optimiser, part[name])
            for group, rate in zip(optimiser.param_groups, self.rates, strict=False):
                group["lr"] = rate  # the tensor that a captured step reads
        torch.set_rng_state(part["random"]["cpu"])
        if "cuda" in part["random"] and self.device.type == "cuda":
            torch.cuda.set_rng_state(part["random"]["cuda"], self.device)
        self.done, self.total, self.seconds = about["done"], about["total"], about["seconds"]
        self.reported = self.done


class Distance(nn.Module):
    """The objective as a module, so that gradients can be shared between processes."""

    def __init__(self, network: Network, config: Objective, aligner: Aligner | None) -> None:
        super().__init__()
        self.network, self.config, self.aligner = network, config, aligner

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        return objective(self.network, batch, self.config, self.aligner)


def one_buffer(network: nn.Module) -> Tensor:
    """Move all parameters into one buffer, keeping their strides, so that averaging them is one kernel."""
    parameters = list(network.parameters())
    sizes = [-(-p.numel() // ALIGNMENT) * ALIGNMENT for p in parameters]
    buffer = parameters[0].detach().new_zeros(sum(sizes))
    for p, piece in zip(parameters, buffer.split(sizes), strict=True):
        p.data = piece.as_strided(p.shape, p.stride()).copy_(p.data)
    return buffer


def prepare_for_gpu(network: Network, precision: str) -> None:
    """Make the networks fast on a GPU: layouts, aligned widths, compiled blocks."""
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("highest" if precision == "f32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "f32"
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if isinstance(network, Thera) and network.spec.variant == "pro":
        network.hypernetwork.aligned = True
    network.compile_blocks()


def agreed(value: float) -> float:
    """The first process's value, in all processes: clocks differ, and all must take the same steps."""
    if not dist.is_initialized():
        return value
    values = [value]
    dist.broadcast_object_list(values)
    return values[0]


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Gives a function that tells whether Ctrl-C was pressed. Pressed twice, it interrupts at once."""
    pressed: list[int] = []

    def note(signum: int, frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(signum)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def train(
    run: Run,
    folder: Path,
    *,
    until: float = math.inf,
    every: int = 200,
    save_every: float = 60.0,
    validate: Callable[[Network], dict[str, float]] | None = None,
    show: Callable[[dict[str, Any]], None] = lambda _: None,
) -> bool:
    """Run to the end of the schedule, or until the clock reads `until`. Returns whether the end was reached.

    Reports to `log.jsonl` every `every` steps, or sooner if steps are slow, and writes `state.safetensors`
    every `save_every` seconds. Of several processes only the first writes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    began, first, saved, earlier = time.monotonic(), run.done, time.monotonic(), run.seconds
    log_path = folder / LOG if run.rank == 0 else Path(os.devnull)
    with appending(log_path) as log, interruptible() as interrupted:
        while run.done < run.total and agreed(time.monotonic() < until and not interrupted()):
            # Several processes must report after the same steps, whatever their clocks read.
            stop = min(until, time.monotonic() + REPORT_SECONDS) if run.world == 1 else math.inf
            for _ in range(min(every, run.total - run.done)):
                run.step()
                if time.monotonic() > stop or (run.world == 1 and interrupted()):
                    break
            entry: dict[str, Any] = {"step": run.done, "of": run.total, "l1": run.report()}
            seconds = time.monotonic() - began
            run.seconds = earlier + seconds
            entry["patches_per_second"] = round((run.done - first) * run.config.data.batch / seconds, 1)
            if isinstance(run.network, Thera):
                entry["kappa"] = run.network.kappa.item()
            entry["rate"] = run.schedule(run.done)
            if run.rank == 0 and (time.monotonic() - saved > save_every or run.done >= run.total):
                checkpoint.save(folder / STATE, *run.state())
                saved = time.monotonic()
                if validate is not None:
                    entry |= validate(run.average)
            log.write(json.dumps(entry) + "\n")
            log.flush()
            if run.rank == 0:
                show(entry)
    if run.rank == 0:
        checkpoint.save(folder / STATE, *run.state())
    return run.done >= run.total
