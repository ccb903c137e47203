"""What the program costs around the network, on this machine.

    python benchmarks/cli.py [--model edsr-air] [--quick] [--only cores]

- start-up: `thera --version`, and `import thera` against `import numpy, PIL`;
- a 256×256 image at ×4, file to file and process start included, over the bare encoder's time;
- the rate of all cores over that of one, file to file: a picture of 1.2 megapixels, which is one tile, one of
  2.1, which Air encodes in several, and a folder of two of 1.2. Beside it, what the machine has to give: the
  rate of as many programs side by side, with one thread each. Cores share caches and memory;
- peak resident memory against the size of the output, for a format written as it comes and one that is not.

Medians of a few repetitions, processes started one after the other.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

import thera
from thera.memory import human_bytes
from thera.models.engine import default_threads


def median_seconds(work: Callable[[], object], repetitions: int) -> float:
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def run(*arguments: str) -> None:
    """Runs Python with these arguments."""
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)


# Linux counts the memory of the process that starts another towards the other's peak: a small one starts it.
SMALL = """
import os, sys
_, status, usage = os.wait4(os.posix_spawn(sys.executable, [sys.executable, *sys.argv[1:]], os.environ), 0)
print(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
sys.exit(status != 0)
"""


def peak_memory(*arguments: str) -> int:
    """Peak resident bytes of Python with these arguments."""
    return int(subprocess.check_output([sys.executable, "-c", SMALL, *arguments]))


def photograph(size: int) -> Image.Image:
    """A picture with as much detail as a photograph has: noise whose spectrum falls as 1/f."""
    rng = np.random.default_rng(0)
    fy, fx = np.meshgrid(np.fft.fftfreq(size), np.fft.fftfreq(size), indexing="ij")
    spectrum = np.fft.fft2(rng.standard_normal((3, size, size))) / np.maximum(np.hypot(fy, fx), 1 / size)
    image = np.fft.ifft2(spectrum).real
    image = (image - image.mean()) / image.std() * 50 + 128
    return Image.fromarray(np.clip(image, 0, 255).astype(np.uint8).transpose(1, 2, 0))


def start_up(repetitions: int) -> None:
    bare = median_seconds(lambda: run("-c", "pass"), repetitions)
    version = median_seconds(lambda: run("-m", "thera", "--version"), repetitions)
    light = median_seconds(lambda: run("-c", "import numpy, PIL"), repetitions) - bare
    ours = median_seconds(lambda: run("-c", "import thera"), repetitions) - bare
    print(f"thera --version       {version:.3f} s, of which Python itself {bare:.3f} s")
    print(f"import thera          {ours:.3f} s; import numpy, PIL {light:.3f} s; ratio {ours / light:.2f}")


def end_to_end(folder: Path, model_name: str, repetitions: int) -> None:
    source = folder / "photograph.png"
    image = photograph(256)
    image.save(source)
    pixels = np.asarray(image, np.float32) / 255
    model = thera.load(model_name)
    model.encode(pixels)
    arguments = ["-m", "thera", "upscale", str(source), "-s", "4", "-m", model_name, "-q", "--overwrite"]
    # One of each in turn, so that both see the same machine.
    pairs = [
        (median_seconds(lambda: model.encode(pixels), 1), median_seconds(lambda: run(*arguments), 1))
        for _ in range(repetitions)
    ]
    encoder, whole = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(
        f"256×256 at ×4         {whole:.2f} s, the encoder alone {encoder:.2f} s; ratio {whole / encoder:.2f}"
    )


def cores(folder: Path, model_name: str, repetitions: int) -> None:
    """One core, all cores, and a program on each core, in turn; medians of the ratios of each turn."""
    pictures = folder / "pictures"
    pictures.mkdir()
    (folder / "out").mkdir()
    for name in ("a.png", "b.png"):
        photograph(1100).save(pictures / name)
    photograph(1440).save(folder / "large.png")
    count = default_threads()
    cases = {"1.2 megapixels": pictures / "a.png", "2.1 megapixels": folder / "large.png"}
    for kind, given in (cases | {"a folder of two": pictures}).items():

        def scale(threads: int, out: str = "out", given: Path = given) -> None:
            options = ["-s", "2", "-m", model_name, "-q", "--overwrite", "--threads", str(threads)]
            run("-m", "thera", "upscale", str(given), "--out", f"{folder / out}/", *options)

        def side_by_side(scale: Callable[[int, str], None] = scale) -> None:
            with ThreadPoolExecutor(count) as pool:
                list(pool.map(scale, [1] * count, [f"out{i}" for i in range(count)]))

        works = (lambda: scale(1), lambda: scale(count), side_by_side)
        turns = [[median_seconds(work, 1) for work in works] for _ in range(repetitions)]
        one, many, _ = (min(times) for times in zip(*turns, strict=True))
        ours = statistics.median(one / many for one, many, _ in turns)
        given_by_machine = statistics.median(count * one / beside for one, _, beside in turns)
        print(
            f"{kind:<21} {one:.1f} s on one core, {many:.1f} s on {count}; ratio {ours:.2f}, and"
            f" {given_by_machine:.2f} for {count} programs side by side"
        )


def memory(folder: Path, model_name: str, sides: list[int]) -> None:
    print("\npeak resident memory, from 128×128 with " + model_name)
    print(f"{'output':>14} {'raw':>9} {'tiff':>9} {'png':>9} {'jpeg':>9}")
    source = folder / "small.png"
    photograph(128).save(source)
    for side in sides:
        peaks = []
        for suffix in ("tif", "png", "jpg"):
            output = folder / f"out.{suffix}"
            options = ["--size", f"{side}x{side}", "-m", model_name, "-q"]
            peaks.append(peak_memory("-m", "thera", "upscale", str(source), str(output), *options))
            output.unlink()
        row = " ".join(f"{human_bytes(peak):>9}" for peak in (3 * side**2, *peaks))
        print(f"{f'{side}×{side}':>14} {row}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="edsr-air")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, smaller outputs")
    parser.add_argument("--only", nargs="+", choices=("start", "end", "cores", "memory"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = {
            "start": lambda: start_up(3 if options.quick else 9),
            "end": lambda: end_to_end(folder, options.model, 3 if options.quick else 7),
            "cores": lambda: cores(folder, options.model, 1 if options.quick else 3),
            "memory": lambda: memory(
                folder, options.model, [512, 2048] if options.quick else [512, 2048, 4096, 8192]
            ),
        }
        for part in options.only or parts:
            parts[part]()


if __name__ == "__main__":
    main()
