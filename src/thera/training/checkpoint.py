"""The whole state of a run in one safetensors file, written atomically. A run resumes from it exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from thera.errors import ModelError
from thera.models.weights import write_tensors


def save(path: str | Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    flat = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
    write_tensors(path, flat, {"thera-run": json.dumps(about)})


def load(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(str(path), framework="pt") as file:
            about = (file.metadata() or {}).get("thera-run")
            if about is None:
                raise ModelError(
                    f"{path} is not a training checkpoint: a run writes them as state.safetensors."
                )
            return {k: file.get_tensor(k) for k in file.keys()}, json.loads(about)  # noqa: SIM118
    except (SafetensorError, OSError) as e:
        raise ModelError(f"Cannot read the checkpoint {path}: {e}.") from None


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """An optimiser's state under flat names: "3.exp_avg" belongs to the fourth parameter."""
    state = optimiser.state_dict()["state"]
    return {f"{i}.{k}": torch.as_tensor(v) for i, values in state.items() for k, v in values.items()}


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        i, key = name.split(".", 1)
        state.setdefault(int(i), {})[key] = value
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})
    for p, values in optimiser.state.items():
        for key, value in values.items():
            if value.shape == p.shape:  # files do not store strides: restore the parameter's
                values[key] = torch.empty_like(p).copy_(value)
