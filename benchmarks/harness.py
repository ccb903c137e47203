"""What the benchmarks of kernels share: times of CUDA graphs, tables, and the search for the fastest tile."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
import triton
from triton.runtime.errors import OutOfResources

Part = tuple[Callable[[], None], str]  # prints its rows; the header above them


class Setting(NamedTuple):
    """A value for a constant of a module, or for one entry of a table."""

    module: ModuleType
    name: str
    value: Any
    key: str | int | None = None

    def exchange(self) -> Setting:
        """Sets it, and returns the setting that undoes this."""
        holder: Any = vars(self.module) if self.key is None else getattr(self.module, self.name)
        at = self.name if self.key is None else self.key
        before, holder[at] = holder[at], self.value
        return self._replace(value=before)

    def __str__(self) -> str:
        """As in the file."""
        key = "" if self.key is None else f"[{self.key!r}]"
        return f"{self.name}{key} = {self.value!r}"


def microseconds(call: Callable[[], object]) -> float:
    """The time of a call in a CUDA graph, as in training: without its launches."""
    with torch.cuda.stream(torch.cuda.Stream()):
        return 1000 * triton.testing.do_bench_cudagraph(call, rep=10)


def fastest(name: str, call: Callable[[], object], choices: Sequence[Sequence[Setting]]) -> None:
    """Prints a row for each choice (the first is the present one), then the fastest."""
    times: dict[str, float] = {}
    for choice in choices:
        before = [setting.exchange() for setting in choice]
        shown = "; ".join(map(str, choice))
        try:
            times[shown] = microseconds(call)
            print(f"| {name} | {shown} | {times[shown]:.1f} |", flush=True)
        except OutOfResources as error:
            print(f"| {name} | {shown} | {error} |", flush=True)
        for setting in reversed(before):
            setting.exchange()
    best = min(times, key=times.__getitem__)
    print(f"| {name} | **fastest: {best}** | **{times[best]:.1f}** |", flush=True)


def run(
    about: str | None, pixels: tuple[int, int, int], parts: Mapping[str, Part], default: Sequence[str]
) -> None:
    """Prints the parts that are named on the command line, each under its header."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=parts, default=default)
    chosen = parser.parse_args().only
    print(f"{torch.cuda.get_device_name()}, {'×'.join(map(str, pixels))} pixels, bfloat16")
    torch.manual_seed(0)
    for part in chosen:
        show, header = parts[part]
        print(f"\n{header}\n{'| --- ' * (header.count('|') - 1)}|")
        show()
