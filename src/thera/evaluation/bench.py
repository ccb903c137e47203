"""Time and memory of models, as in the paper's table of costs, for 48×48 to 192×192 by default."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from thera.errors import TheraError
from thera.evaluation.paper import paper
from thera.evaluation.records import Record
from thera.evaluation.tables import markdown_grid

WARM_UP = 2  # calls that are not timed
PATIENCE = 60.0  # seconds from the end of the first call; then none begins, once two were made


@dataclass(frozen=True)
class Case:
    """One measurement: a model, what runs it, and the size and scale of an input."""

    model: str
    engine: str = "auto"
    device: str = "auto"
    precision: str = "auto"
    width: int = 48
    height: int = 48
    scale: float = 4
    repeats: int = 10


def measure(case: Case) -> Record:
    """Measure a case in this process: median times of encoding and rendering in ms, and peak memory in MiB.

    Memory is that of the whole process on a CPU, and what PyTorch reserved on a GPU. Cases that take minutes
    are repeated less often; the record says how often.
    """
    from thera.evaluation.inspection import added_parameters
    from thera.models import load

    model = load(case.model, engine=case.engine, device=case.device, precision=case.precision)
    model.compile()
    image = np.random.default_rng(0).random((case.height, case.width, 3)).astype(np.float32)
    on_gpu = model.info.device.startswith("cuda")
    wait = _cuda_synchronise if on_gpu else lambda: None

    def both() -> tuple[float, float]:
        encode, field = _milliseconds(lambda: model.encode(image), wait)
        # A new field each time: those of some decoders keep what they have rendered.
        render, _ = _milliseconds(partial(field.render, scale=case.scale), wait)
        return encode, render

    times = [both()]  # the first call may compile
    until = time.perf_counter() + PATIENCE
    while len(times) < 2 or (len(times) < case.repeats + WARM_UP and time.perf_counter() < until):
        times.append(both())
    timed = times[min(WARM_UP, len(times) - 1) :]
    encode, render = (statistics.median(part) for part in zip(*timed, strict=True))
    return {
        **asdict(case),
        "repeats": len(timed),
        "model": model.name,
        "engine": model.info.engine,
        "device": model.info.device,
        "precision": model.info.precision,
        "backbone": model.info.spec.backbone,
        "variant": model.info.spec.variant,
        "parameters": model.info.parameters,
        "added_parameters": added_parameters(model),
        "encode_ms": round(encode, 3),
        "render_ms": round(render, 3),
        "memory_mib": round(_peak_mib(on_gpu)),
        "machine": _machine(on_gpu),
    }


def measure_apart(case: Case) -> Record:
    """Measure a case in its own process, so that nothing else adds to its peak memory."""
    command = [sys.executable, "-m", "thera.evaluation.bench", json.dumps(asdict(case))]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
        if done.returncode < 0:
            reason = f"signal {-done.returncode} ended it, perhaps for want of memory"
        reason = re.sub(r"^thera\.errors\.\w+: ", "", reason)
        size = f"{case.width}×{case.height}"
        raise TheraError(
            f"Timing {case.model} at {size} with {case.engine} on {case.device} failed: {reason}"
        )
    return json.loads(done.stdout.splitlines()[-1])


def _milliseconds(work: Callable[[], Any], wait: Callable[[], None]) -> tuple[float, Any]:
    """The time of a call, and its result."""
    start = time.perf_counter()
    result = work()
    wait()
    return 1000 * (time.perf_counter() - start), result


def _cuda_synchronise() -> None:
    import torch

    torch.cuda.synchronize()


def _peak_mib(on_gpu: bool) -> float:
    if on_gpu:
        import torch

        return torch.cuda.max_memory_reserved() / 2**20
    try:
        import resource
    except ImportError:  # Windows has no such module
        return float("nan")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def _machine(on_gpu: bool) -> str:
    if on_gpu:
        import torch

        return torch.cuda.get_device_name()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{platform.machine()}, {cores} cores"


def bare_backbone_ms(records: Sequence[Record], record: Record) -> float | None:
    """The time of the backbone alone: that of encoding with Air, which adds only the last layer."""
    same = ("backbone", "engine", "device", "precision", "width", "height", "machine")
    for other in records:
        if other["variant"] == "air" and all(other[key] == record[key] for key in same):
            return other["encode_ms"]
    return None


def bench_markdown(records: Sequence[Record]) -> str:
    """The table of costs: measured rows, then the paper's rows."""
    header = ["", "engine", "input", "added parameters", "time, ms", "of it rendering", "× backbone"]
    header.append("memory, MiB")
    rows = [_row(record, bare_backbone_ms(records, record)) for record in records]
    for row in paper()["tables"]["compute"]["rows"]:
        ms, memory = row["values"]
        name = [f"{row['method']}, quoted", "RTX 3090 Ti", "48×48 ×4", f"{row['added_parameters']:,}"]
        rows.append([*name, human_ms(ms), "—", "—", f"{memory:,.0f}"])
    machines = ", ".join(sorted({record["machine"] for record in records}))
    most = max(record["repeats"] for record in records)
    notes = (
        f"Measured here on {machines}: medians of at most {most} calls, as many as fit into a minute, one "
        "rotation. × backbone is the whole time over that of the bare backbone on the same engine (the "
        "encoding of Air, which adds nothing to it). Memory is the process's on a CPU, PyTorch's share on a "
        "GPU."
    )
    return f"{markdown_grid(header, rows, labels=3)}\n\n{notes}\n"


def human_ms(ms: float) -> str:
    """Milliseconds for a table. From a second on, they have no decimals.

    >>> human_ms(29.757), human_ms(40283.96)
    ('29.76', '40,284')
    """
    return f"{ms:.2f}" if ms < 1000 else f"{ms:,.0f}"


def _row(record: Record, bare: float | None) -> list[str]:
    total = record["encode_ms"] + record["render_ms"]
    return [
        record["model"],
        f"{record['engine']}, {record['device']}, {record['precision']}",
        f"{record['width']}×{record['height']} ×{record['scale']:g}",
        f"{record['added_parameters']:,}",
        human_ms(total),
        human_ms(record["render_ms"]),
        "—" if bare is None else f"{total / bare:.2f}",
        f"{record['memory_mib']:,}",
    ]


if __name__ == "__main__":
    print(json.dumps(measure(Case(**json.loads(sys.argv[1])))))
