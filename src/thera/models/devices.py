"""Everything on this machine that can run a model, measured."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import NamedTuple

from thera.errors import TheraError
from thera.models.choosing import Candidate, fastest, installed, measure, refresh
from thera.models.engine import FileEngine
from thera.models.engines import Files
from thera.models.loading import load_network, locate
from thera.models.onnx_engine import PROVIDERS, runtime

PRECISIONS = ("f32", "bf16", "f16")


class Timing(NamedTuple):
    """The seconds of one small image; `chosen` where `auto` takes this engine on the CPU."""

    model: str
    candidate: Candidate
    precision: str
    seconds: float
    chosen: bool


def found() -> list[Candidate]:
    """The engines that are installed, on all devices that they find."""
    names = {provider: device for device, (provider, _) in PROVIDERS.items()}
    have = [names[provider] for provider in runtime().get_available_providers() if provider in names]
    candidates = [Candidate("onnx", device) for device in sorted(have, key=list(PROVIDERS).index)]
    if installed("ncnn"):
        from thera.models.ncnn_engine import vulkan_count

        places = ["cpu", *(f"vulkan:{i}" for i in range(vulkan_count()))]
        candidates += [Candidate("ncnn", place) for place in places]
    if installed("openvino"):
        from thera.models.openvino_engine import devices

        candidates += [Candidate("openvino", device) for device in devices()]
    if installed("torch"):
        import torch

        places = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        places += ["mps"] if torch.backends.mps.is_available() else []
        candidates += [Candidate("torch", place) for place in places]
    return candidates


def survey(model: str, threads: int = 0) -> list[Timing]:
    """Measures all that can run a model, and remembers which is fastest on the CPU."""
    files, candidates = Files(*locate(model)), found()
    timings = []
    for precision in PRECISIONS:
        usual = files.candidates("auto", precision)
        makers = {
            c: partial(files.engine, c.engine, c.device, precision, threads)
            for c in usual
            if c.engine != "torch"
        }
        times: dict[Candidate, float] = {}
        best = None
        if makers:
            with suppress(TheraError):  # none of them can do this precision
                times = refresh(model, precision, threads, makers)
                best = fastest(times)
        for candidate in candidates:
            slow = precision == "f16" and candidate.device == "cpu"  # no CPU engine is made for it
            if candidate not in times and not slow:
                times |= _time(files, candidate, precision, threads)
        ordered = sorted(times.items(), key=lambda item: item[1])
        timings += [Timing(model, c, precision, seconds, c == best) for c, seconds in ordered]
    return timings


def _time(files: Files, candidate: Candidate, precision: str, threads: int) -> dict[Candidate, float]:
    """The time of one engine; nothing if it cannot run the model at this precision."""

    def make() -> FileEngine:
        if candidate.engine != "torch":
            return files.engine(candidate.engine, candidate.device, precision, threads)
        from thera.models.torch_engine import TorchEngine

        return TorchEngine(load_network(files.weights)[0], candidate.device, precision)  # type: ignore[arg-type, return-value]

    try:
        return measure({candidate: make})[1]
    except (TheraError, RuntimeError):
        return {}
