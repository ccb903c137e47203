"""The mean of several networks that come from one another.

The weights of stages that started from each other lie close together, and a network between them is as good
as either or better. The mean of a network trained for the ensemble and the one it started from is good in a
single pass, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from thera.errors import InvalidInput
from thera.models.loading import load_network
from thera.networks import Network


def average(paths: Sequence[str | Path]) -> tuple[Network, dict[str, Any]]:
    """The mean network, and the training stages of all that went into it."""
    if len(paths) < 2:
        raise InvalidInput(f"A mean needs two networks or more, not {len(paths)}: name another.")
    loaded = [load_network(path) for path in paths]
    first = loaded[0][0]
    for path, (network, _) in zip(paths, loaded, strict=True):
        if network.spec != first.spec:
            raise InvalidInput(
                f"A mean needs networks of one kind, but {paths[0]} is {first.spec.name} and {path} is "
                f"{network.spec.name}."
            )
    states = [network.state_dict() for network, _ in loaded]
    first.load_state_dict({name: torch.stack([s[name] for s in states]).mean(0) for name in states[0]})
    histories = [about.get("training", []) for _, about in loaded]
    result: dict[str, Any] = {"training": merged(histories)}
    for key in ("name", "restores"):
        values = {about.get(key) for _, about in loaded}
        if len(values) == 1 and None not in values:
            result[key] = values.pop()
    return first, result


def merged(histories: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The stages of several histories, each listed once, and the mean of their last stages.

    A stage names others by their numbers from 1: {"mean": [1, 2]} or {"start": "stage 1"}.

    >>> first, second, other = {"seed": 0}, {"seed": 1}, {"seed": 2}
    >>> merged([[first, second], [first, other]])
    [{'seed': 0}, {'seed': 1}, {'seed': 2}, {'mean': [2, 3]}]
    """
    stages: list[dict[str, Any]] = []
    last: list[int] = []
    for history in histories:
        numbers: list[int] = []  # of this history's stages, in the merged list
        for stage in history:
            if "mean" in stage:
                stage = {"mean": sorted(numbers[n - 1] for n in stage["mean"])}
            elif found := re.fullmatch(r"stage (\d+)", stage.get("start", "")):
                stage = stage | {"start": f"stage {numbers[int(found[1]) - 1]}"}
            if stage not in stages:
                stages.append(stage)
            numbers.append(stages.index(stage) + 1)
        last += numbers[-1:]
    return [*stages, {"mean": sorted(last)}]
