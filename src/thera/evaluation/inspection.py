"""What training made of a model: its κ, its frequency bank, and the parameters of each part."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thera.field.psf import NYQUIST_KAPPA

#: The number of parameters of a bare backbone.
BACKBONE_PARAMETERS = {"edsr": 1_220_416, "rdn": 21_973_952}


def parameters_by_part(model: Any) -> dict[str, int]:
    """The number of parameters of each part of a model. They sum to that of the model."""
    c = model.info.components
    width = model.encode(np.zeros((8, 8, 3), np.float32)).features.shape[-1]
    parts = {
        "backbone": BACKBONE_PARAMETERS[model.info.spec.backbone],
        "hypernetwork": 0,
        "last layer": (width + 1) * 4 * c,
        "components": 2 * c,
        "kappa": 1,
    }
    return parts | {"hypernetwork": model.info.parameters - sum(parts.values())}


def added_parameters(model: Any) -> int:
    """The number of parameters that the model adds to its backbone, as counted in the paper."""
    return model.info.parameters - BACKBONE_PARAMETERS[model.info.spec.backbone]


def bank_of(model: Any) -> NDArray[np.float64]:
    """The frequency bank, 2×c, in radians per input pixel."""
    return model.encode(np.zeros((8, 8, 3), np.float32)).components


def inspect_model(model: Any) -> dict[str, Any]:
    """Everything that `thera inspect` prints, as one record."""
    length = np.hypot(*bank_of(model))
    return {
        "model": model.name,
        "backbone": model.info.spec.backbone,
        "variant": model.info.spec.variant,
        "kappa": model.info.kappa,
        "kappa_theory": NYQUIST_KAPPA,
        "components": model.info.components,
        "median_frequency": float(np.median(length)),
        "largest_frequency": float(length.max()),
        "parameters": parameters_by_part(model),
        "added_parameters": added_parameters(model),
    }


def inspection_text(record: dict[str, Any]) -> str:
    """The record as text for people."""
    kappa, theory = record["kappa"], record["kappa_theory"]
    largest, median = record["largest_frequency"] / math.pi, record["median_frequency"] / math.pi
    lines = [
        f"{record['model']}: {record['backbone']} backbone, {record['variant']}",
        "",
        f"κ            {kappa:.4f}   ({kappa / theory:.2f} of ln 4 / 2π² = {theory:.4f}, the Gaussian's)",
        f"bank         {record['components']} components, |w| up to {largest:.2f} π, median {median:.2f} π "
        "radians per input pixel",
        "",
        *(f"{part:12} {count:>12,}" for part, count in record["parameters"].items()),
        f"{'all':12} {sum(record['parameters'].values()):>12,}",
        f"{'added':12} {record['added_parameters']:>12,}   (beyond the backbone)",
    ]
    return "\n".join(lines)
