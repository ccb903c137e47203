"""Time, accuracy and size of every engine that is installed, beside ONNX Runtime in float32.

    python benchmarks/engines.py [MODEL...] [--rounds 5] [--pictures FOLDER...] [--scales 2 4]
                                 [--engines onnx openvino] [--sides 96 512]

For each model, on one core:

- the processor's time of encoding 96×96 and 512×512 pixels, as in tiles, over that of ONNX Runtime. Engines
  take turns and the best of several rounds counts, so that a busy machine changes ratios little;
- the processor's time until a model is open, over that of ONNX Runtime: the second time;
- the largest difference of the features;
- how much PSNR changes when pictures are scaled down and up again: those that come with Thera's source, or
  all in the folders given.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
from PIL import Image

import thera
from thera.errors import TheraError
from thera.evaluation.protocol import degrade, score, unit
from thera.evaluation.tables import markdown_grid
from thera.models import Model
from thera.optional import require

ROOT = Path(__file__).parents[1]
OWN = [ROOT / "docs/images/astronaut.png", ROOT / "tests/data/astronaut.png"]
CASES = [("onnx", "f32"), ("ncnn", "f32"), ("ncnn", "bf16"), ("openvino", "f32"), ("openvino", "bf16")]
CASES += [("torch", "f32"), ("torch", "bf16")]
PACKAGES = {"onnx": "onnxruntime", "ncnn": "ncnn", "openvino": "openvino", "torch": "torch"}


Case = tuple[str, str]  # an engine and a precision


def engines(name: str, wanted: Sequence[str]) -> tuple[dict[Case, Model], dict[Case, float], list[str]]:
    """The engines that can run a model here, the seconds until it is open, and why others cannot."""
    found, opening, missing = {}, {}, []
    for engine, precision in CASES:
        if engine not in wanted:
            continue
        try:
            if engine == "torch":
                require("torch", "torch", "The engine 'torch'").set_num_threads(1)
            for _ in range(2):  # the first one also loads the library
                start = time.process_time()
                found[engine, precision] = thera.load(name, engine, "cpu", precision, threads=1)
                opening[engine, precision] = time.process_time() - start
        except TheraError as error:
            missing.append(f"{name}, {engine} in {precision}: {error}")
    return found, opening, missing


def times(models: dict[Case, Model], image: np.ndarray, rounds: int) -> dict[Case, float]:
    """Seconds of the processor that each takes: the best of several rounds, in turns."""
    best = dict.fromkeys(models, float("inf"))
    for round_ in range(rounds + 1):  # the first round prepares
        for case, model in models.items():
            start = time.process_time()
            model.encode(image)
            if round_:
                best[case] = min(best[case], time.process_time() - start)
    return best


def psnr(model: Model, picture: np.ndarray, scale: int) -> float:
    small, target = degrade(picture, scale)[:2]
    output = model.upscale(unit(small), size=target.shape[:2])
    return score(output, target, scale, "psnr_y")


def installed_mb(package: str) -> float:
    """Megabytes on disk of a package, without what it depends on; NaN if it is not installed."""
    try:
        parts = distribution(package).files or []
    except PackageNotFoundError:
        return float("nan")
    return sum(path.stat().st_size for part in parts if (path := Path(str(part.locate()))).is_file()) / 1e6


def table(
    name: str,
    wanted: Sequence[str],
    pictures: Sequence[np.ndarray],
    scales: Sequence[int],
    rounds: int,
    sides: Sequence[int],
) -> str:
    models, opening, missing = engines(name, wanted)
    images = [np.random.default_rng(0).random((side, side, 3), np.float32) for side in sides]
    reference = ("onnx", "f32")
    took = [times(models, image, rounds) for image in images]
    features = {case: np.asarray(model.encode(images[0]).features) for case, model in models.items()}
    exact = {
        (scale, i): psnr(models[reference], each, scale)
        for scale in scales
        for i, each in enumerate(pictures)
    }
    rows = []
    for case, model in models.items():
        row = [name, " ".join(case), *(f"{each[case] / each[reference]:.2f}" for each in took)]
        row.append(f"{opening[case] / opening[reference]:.2f}")
        row.append(f"{np.abs(features[case] - features[reference]).max():.0e}")
        for scale in scales:
            gains = [psnr(model, each, scale) - exact[scale, i] for i, each in enumerate(pictures)]
            row.append("–" if case == reference else f"{np.mean(gains):+.4f} ({min(gains):+.4f})")
        rows.append([*row, f"{installed_mb(PACKAGES[case[0]]):.0f}"])
    columns = ["", "engine", *(f"time, {side}²" for side in sides), "opening", "features differ by"]
    columns += [*(f"×{scale}, dB (worst)" for scale in scales), "MB"]
    notes = "".join(f"\nnot here: {line}" for line in missing)
    milliseconds = " and ".join(f"{1000 * each[reference]:.0f}" for each in took)
    milliseconds += f" ms, open after {1000 * opening[reference]:.0f} ms"
    return f"{markdown_grid(columns, rows, labels=2)}\n\nONNX Runtime: {milliseconds}{notes}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--engines", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", nargs="+", type=int, default=[96, 512], help="of the square images")
    parser.add_argument("--pictures", nargs="+", type=Path, default=OWN, help="files or folders")
    parser.add_argument("--scales", nargs="+", type=int, default=[2, 4])
    asked = parser.parse_args()
    files = [
        file for path in asked.pictures for file in (sorted(path.glob("*.png")) if path.is_dir() else [path])
    ]
    pictures = [np.asarray(Image.open(file).convert("RGB")) for file in files]
    for name in asked.models or ["edsr-air", "edsr-plus", "edsr-pro"]:
        print(
            table(name, ["onnx", *asked.engines], pictures, asked.scales, asked.rounds, asked.sides),
            flush=True,
        )


if __name__ == "__main__":
    main()
