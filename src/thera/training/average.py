"""The mean of several networks of one line: what later stages learnt, each with something of the others.

python -m thera.training.average runs/a/weights.safetensors runs/b/weights.safetensors -o mine.safetensors

Stages that began where another ended lie close together, and between them a network is as good as at either
end or better: one trained for its ensemble, with a share of its start, is good alone, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from thera.cli.convert import check_output
from thera.errors import InvalidInput, TheraError
from thera.models.loading import load_network
from thera.models.weights import save_safetensors
from thera.networks import Thera


def average(paths: Sequence[str | Path]) -> tuple[Thera, dict[str, Any]]:
    """The mean network, and what is known of it."""
    if len(paths) < 2:
        raise InvalidInput(f"a mean is of two files or more, and {len(paths)} was given")
    loaded = [load_network(path) for path in paths]
    first = loaded[0][0]
    for path, (network, _) in zip(paths, loaded, strict=True):
        if network.spec != first.spec:
            kinds = f"{paths[0]} is {first.spec.name}, {path} {network.spec.name}"
            raise InvalidInput(f"only networks of one kind have a mean, and {kinds}")
    states = [network.state_dict() for network, _ in loaded]
    first.load_state_dict({name: torch.stack([s[name] for s in states]).mean(0) for name in states[0]})
    return first, {"training": joined([about.get("training", []) for _, about in loaded])}


def joined(lines: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The stages of several lines, each once, and last the mean of those that the lines end with.

    >>> first, second, other = {"seed": 0}, {"seed": 1}, {"seed": 2}
    >>> joined([[first, second], [first, other]])
    [{'seed': 0}, {'seed': 1}, {'seed': 2}, {'mean': [2, 3]}]
    """
    stages: list[dict[str, Any]] = []
    ends: list[int] = []
    for line in lines:
        numbers: list[int] = []  # of its stages, among those of all
        for stage in line:
            if "mean" in stage:
                stage = {"mean": sorted(numbers[n - 1] for n in stage["mean"])}
            if stage not in stages:
                stages.append(stage)
            numbers.append(stages.index(stage) + 1)
        ends += numbers[-1:]
    return [*stages, {"mean": sorted(ends)}]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m thera.training.average", description=__doc__)
    parser.add_argument("weights", nargs="+", help="shipped models or safetensors files, all of one network")
    parser.add_argument("-o", "--out", required=True, type=Path, help="the file to write")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that exists")
    options = parser.parse_args(arguments)
    try:
        check_output(options.out, (".safetensors",), options.overwrite)
        network, about = average(options.weights)
        save_safetensors(network, options.out, "f16", about)
    except TheraError as error:
        sys.exit(f"error: {error}")
    print(f"the mean of {len(options.weights)} networks is {options.out}")


if __name__ == "__main__":
    main()
