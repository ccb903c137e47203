"""Times of encoding and rendering on a GPU, and the memory they take.

    python benchmarks/gpu.py                     # every variant and precision, on CUDA
    python benchmarks/gpu.py --variants pro --precisions bf16
    python benchmarks/gpu.py --device cpu --sizes 24x24 --repeats 3

The weights are random, which does not change the time. The times are medians over --repeats of
`model.encode(x)`, `field.render(scale=4)` and `model.upscale(x, scale=4)` (both in one graph for a small
image), measured by CUDA events, with tensors on the device, after a warm-up. Memory is the peak that PyTorch
reserved for `upscale`, weights and graphs included.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from thera.models.model import Model
from thera.models.torch_engine import TorchEngine
from thera.models.weights import describe
from thera.networks import Spec, Thera

SCALE = 4
WARM_UP = 5
MIB = 1 << 20

# On an H200, with EDSR: ms of the published JAX code, and our goal.
PUBLISHED_AND_GOAL = {
    ((48, 48), "air"): (1.72, 0.4),
    ((48, 48), "plus"): (2.47, 0.8),
    ((48, 48), "pro"): (2.46, 1.6),
    ((340, 510), "air"): (43.0, 4.0),
    ((340, 510), "plus"): (49.0, 12.0),
    ((340, 510), "pro"): (69.0, 35.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--backbone", default="edsr")
    parser.add_argument("--variants", nargs="+", default=["air", "plus", "pro"])
    parser.add_argument("--precisions", nargs="+", default=None, help="default: all of the device")
    parser.add_argument(
        "--sizes", nargs="+", default=["48x48", "340x510"], help="height x width of the input"
    )
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args()
    on_gpu = options.device.startswith("cuda")
    precisions = options.precisions or (["f32", "tf32", "bf16", "f16"] if on_gpu else ["f32", "bf16"])
    sizes = [(int(h), int(w)) for h, w in (size.split("x") for size in options.sizes)]

    name = torch.cuda.get_device_name() if on_gpu else "CPU"
    print(f"{name}, PyTorch {torch.__version__}, ×{SCALE}, one rotation, median of {options.repeats}\n")
    print(
        "| input | variant | precision | encode ms | render ms | upscale ms | goal | published | memory MiB |"
    )
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for size in sizes:
        for variant in options.variants:
            network = Thera(Spec(options.backbone, variant)).eval()
            known = PUBLISHED_AND_GOAL.get((size, variant)) if options.backbone == "edsr" and on_gpu else None
            published, goal = known or ("–", "–")
            for precision in precisions:
                model = Model(TorchEngine(network, options.device, precision), describe(network))
                cells = [f"{size[0]}×{size[1]}", variant, precision]
                cells += [f"{ms:.2f}" for ms in times(model, size, options.repeats, on_gpu)]
                cells += [str(goal), str(published), f"{peak_mib(model, size):.0f}" if on_gpu else "–"]
                print(f"| {' | '.join(cells)} |", flush=True)


def picture(model: Model, size: tuple[int, int]) -> torch.Tensor:
    return torch.rand(*size, 3, device=model.info.device)


def times(model: Model, size: tuple[int, int], repeats: int, on_gpu: bool) -> list[float]:
    """Medians in ms of encoding, of rendering, and of both together."""
    image = picture(model, size)
    field = model.encode(image)
    runs: list[Callable[[], object]] = [
        lambda: model.encode(image),
        lambda: field.render(scale=SCALE),
        lambda: model.upscale(image, scale=SCALE),
    ]
    return [median_ms(run, repeats, on_gpu) for run in runs]


def peak_mib(model: Model, size: tuple[int, int]) -> float:
    """The peak of the memory that PyTorch reserved, weights and graphs included."""
    image = picture(model, size)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model.upscale(image, scale=SCALE)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_reserved() / MIB


def median_ms(run: Callable[[], object], repeats: int, on_gpu: bool) -> float:
    for _ in range(WARM_UP):
        run()
    taken = []
    for _ in range(repeats):
        if on_gpu:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            run()
            end.record()
            end.synchronize()
            taken.append(start.elapsed_time(end))
        else:
            begin = time.perf_counter()
            run()
            taken.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(taken)


if __name__ == "__main__":
    main()
