"""What rendering costs on this CPU, as ratios measured in one run.

    python benchmarks/render.py [--size 128] [--no-encoder]

- direct evaluation over our rendering: the sum as the published code evaluates it, the last layer and c sines
  at every output pixel, against one matrix product for all of them;
- rendering over encoding, for a 256×256 image at ×4;
- the cost of an output pixel as the scale grows.

Medians of a few repetitions; fields of random features, as the cost does not depend on what they show.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from thera.errors import MissingDependency, ModelError
from thera.field import HeatField
from thera.field.threads import on_all_cores

VARIANTS = {"air": (64, 32), "plus": (128, 512)}  # C features, c components
SCALES = (2, 4, 8, 3.7)


def random_field(size: int, C: int, c: int) -> HeatField:
    rng = np.random.default_rng(0)
    r, theta = 8 * np.pi * np.sqrt(rng.random(c)), 2 * np.pi * rng.random(c)
    return HeatField(
        rng.random((size, size, 3)),
        rng.standard_normal((size, size, C)),
        rng.standard_normal((C, 4 * c)) / C,
        rng.uniform(-np.pi, np.pi, 4 * c),
        np.stack([r * np.cos(theta), r * np.sin(theta)]),
        0.03,
    )


def direct(field: HeatField, scale: float, rows: int) -> np.ndarray:
    """The first output rows as the published code evaluates them, in blocks for the caches, on all cores."""
    H, W = field.shape
    height, width = round(H * scale), round(W * scale)
    components = field.components.astype(np.float32)
    c = components.shape[1]
    damping = np.exp(-field.kappa * (H / height) ** 2 * (field.components**2).sum(0)).astype(np.float32)
    x = (np.arange(width) + 0.5) * W / width
    q = np.minimum(x.astype(int), W - 1)
    out = np.empty((rows, width, 3), np.float32)

    def row(i: int) -> None:
        y = (i + 0.5) * H / height
        p = min(int(y), H - 1)
        for j in range(0, width, 256):
            block = slice(j, j + 256)
            head = field.features[p, q[block]] @ field.head_weight + field.head_bias
            amplitude = head[:, : 3 * c].reshape(-1, c, 3)
            offset = np.stack([np.full(len(head), y - p - 0.5), x[block] - q[block] - 0.5], -1)
            sines = damping * np.sin(offset.astype(np.float32) @ components + head[:, 3 * c :])
            out[i, block] = field.pixels[p, q[block]] + np.matmul(sines[:, None, :], amplitude)[:, 0]

    on_all_cores(row, range(rows))
    return out


def seconds(work: Callable[[], Any], repeats: int = 5) -> float:
    """The median time of a few runs after one to warm up."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def against_direct(size: int) -> None:
    print(f"Direct evaluation over our rendering, {size}×{size} input:\n")
    print("| scale | " + " | ".join(f"EDSR-{name}" for name in VARIANTS) + " |")
    print("| --- |" + " --- |" * len(VARIANTS))
    fields = {name: random_field(size, *sizes) for name, sizes in VARIANTS.items()}
    for scale in SCALES:
        cells = []
        for field in fields.values():
            ours = field.render(scale=scale)
            rows = max(1, min(len(ours), 2**14 // ours.shape[1]))  # enough of them to time
            error = np.abs(direct(field, scale, rows) - ours[:rows]).max() / ours.std()
            spent = seconds(partial(direct, field, scale, rows), 3) * len(ours) / rows
            rendered = seconds(partial(field.render, scale=scale))
            cells.append(
                f"{spent / rendered:.1f} ({1e3 * spent:.0f} / {1e3 * rendered:.0f} ms, Δ {error:.0e})"
            )
        print(f"| ×{scale} | " + " | ".join(cells) + " |", flush=True)


def per_output_pixel(size: int) -> None:
    print(f"\nNanoseconds per output pixel, {size}×{size} input:\n")
    scales = (1, 1.5, 2, 3, 4, 6, 8, 12, 16)
    print("| | " + " | ".join(f"×{scale}" for scale in scales) + " |")
    print("| --- |" + " --- |" * len(scales))
    for name, sizes in VARIANTS.items():
        field = random_field(size, *sizes)
        costs = [seconds(partial(field.render, scale=s), 3) / round(size * s) ** 2 for s in scales]
        print(f"| EDSR-{name} | " + " | ".join(f"{1e9 * cost:.0f}" for cost in costs) + " |", flush=True)


def over_encoding(size: int = 256, scale: int = 4) -> None:
    print(f"\nRendering over encoding, {size}×{size} at ×{scale}:\n")
    print("| model | encoding | rendering | ratio |\n| --- | --- | --- | --- |")
    image = np.random.default_rng(0).random((size, size, 3), dtype=np.float32)
    for name in VARIANTS:
        model = encoder(name)
        if model is None:
            print(f"| EDSR-{name} | no weights, and no PyTorch to make some | | |")
            continue
        field = model.encode(image)
        encoded = seconds(partial(model.encode, image), 3)
        rendered = seconds(partial(field.render, scale=scale), 3)
        ratio = rendered / encoded
        print(f"| EDSR-{name} | {encoded:.2f} s | {rendered:.3f} s | {ratio:.2f} |", flush=True)


def encoder(variant: str) -> Any:
    """The shipped model, or one of its shape that has learnt nothing."""
    import thera

    try:
        return thera.load(f"edsr-{variant}")
    except ModelError:
        pass
    try:
        from thera.models import export
        from thera.networks import Spec, Thera

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "untrained.onnx"
            export(Thera(Spec(backbone="edsr", variant=variant)), path)
            return thera.load(path)
    except (ImportError, MissingDependency):
        return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=128, help="side of the input image of the first tables")
    parser.add_argument("--no-encoder", action="store_true", help="leave out the comparison with encoding")
    options = parser.parse_args()
    against_direct(options.size)
    per_output_pixel(options.size)
    if not options.no_encoder:
        over_encoding()


if __name__ == "__main__":
    main()
