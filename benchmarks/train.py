"""Training throughput in patches per second, batches included, and where the time goes.

    python benchmarks/train.py [--variants air plus pro] [--profile]

On a GPU this prints the table of docs/notebook.md. On a CPU it only shows that everything runs.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from thera.networks import Thera
from thera.training.config import Config
from thera.training.data import Sampler
from thera.training.loop import Run


def measure(
    variant: str, batch: int, patch: int, targets: int, seconds: float, device: str, profile: bool
) -> float:
    config = Config.parse(
        {
            "network": {"variant": variant},
            "data": {"batch": batch, "patch": patch, "targets": targets},
            "optimiser": {"steps": 10**6},
        }
    )
    torch.manual_seed(0)
    images = [np.random.default_rng(i).integers(0, 256, (480, 640, 3), np.uint8) for i in range(20)]
    run = Run(config, Sampler(images, config.data, device), Thera(config.network), 10**6)
    synchronise = torch.cuda.synchronize if device == "cuda" else lambda: None
    began = time.perf_counter()
    for _ in range(5 if device == "cuda" else 1):
        run.step()
    synchronise()
    print(f"  {variant}: ready after {time.perf_counter() - began:.1f} s", flush=True)
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(20 if device == "cuda" else 1):
            run.step()
        synchronise()
        steps += 20 if device == "cuda" else 1
    rate = steps * batch / (time.perf_counter() - began)
    if profile:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
            for _ in range(3):
                run.step()
            synchronise()
        print(p.key_averages().table(sort_by="cuda_time_total", row_limit=24, max_name_column_width=70))
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variants", nargs="+", default=["air", "plus", "pro"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--patch", type=int, default=48)
    parser.add_argument("--targets", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--profile", action="store_true")
    a = parser.parse_args()
    rates = {v: measure(v, a.batch, a.patch, a.targets, a.seconds, a.device, a.profile) for v in a.variants}
    what = f"{a.batch} patches of {a.patch}×{a.patch}, {a.targets} target(s) a pixel, {a.device}"
    print(f"\n| model | patches/s ({what}) |\n| --- | --- |")
    for variant, rate in rates.items():
        print(f"| edsr-{variant} | {rate:,.0f} |")


if __name__ == "__main__":
    main()
