"""What the benchmarks of kernels share: times of captured graphs, and tables printed as they are measured."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

import torch
import triton

Part = tuple[Callable[[], None], str]  # prints its rows; the header above them


def microseconds(call: Callable[[], object]) -> float:
    """Captured as a graph: as training runs it, and without the time of the launches."""
    with torch.cuda.stream(torch.cuda.Stream()):
        return 1000 * triton.testing.do_bench_cudagraph(call, rep=10)


def run(
    about: str | None, pixels: tuple[int, int, int], parts: Mapping[str, Part], default: Sequence[str]
) -> None:
    """The parts named on the command line, each under its header."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=parts, default=default)
    chosen = parser.parse_args().only
    print(f"{torch.cuda.get_device_name()}, {'×'.join(map(str, pixels))} pixels, bfloat16")
    torch.manual_seed(0)
    for part in chosen:
        show, header = parts[part]
        print(f"\n{header}\n{'| --- ' * (header.count('|') - 1)}|")
        show()
