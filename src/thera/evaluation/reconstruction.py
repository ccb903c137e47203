"""The paper's reconstruction table: the error of grids of heat fields, by cell size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from thera.evaluation.fit import fit_grid, learn_bank, random_bank
from thera.evaluation.images import read
from thera.evaluation.inspection import bank_of
from thera.evaluation.paper import paper
from thera.evaluation.records import Record
from thera.evaluation.tables import markdown_grid
from thera.field.psf import NYQUIST_KAPPA


@dataclass(frozen=True)
class Bank:
    """A frequency bank to fit fields with, 2×c, and its κ. A learnt bank is optimised in `steps` steps."""

    name: str
    components: NDArray[np.float64]
    kappa: float = NYQUIST_KAPPA
    steps: int = 0

    @classmethod
    def choose(cls, name: str, components: int = 512, steps: int = 200) -> Bank:
        """A bank by name: "random", "learnt", or that of a model."""
        if name in ("random", "learnt"):
            return cls(name, random_bank(components), steps=steps if name == "learnt" else 0)
        from thera.models import load

        model = load(name)
        return cls(model.name, bank_of(model), model.info.kappa)


def reconstruct(files: Iterable[tuple[str, Path]], cells: Sequence[int], bank: Bank) -> list[Record]:
    """The mean squared error of each (data set, image) for each cell size. Only whole cells count."""
    records = []
    images = [(data, path, read(path).pixels / 255.0) for data, path in files]
    for cell in cells:
        components = bank.components
        if bank.steps:
            pixels = [image for _, _, image in images]
            components = learn_bank(pixels, cell, components, bank.kappa, bank.steps)
        about = {"cell": cell, "bank": bank.name, "components": components.shape[1], "kappa": bank.kappa}
        for data, path, image in images:
            output = fit_grid(image, cell, components, bank.kappa).render(scale=cell)
            error = output - image[: output.shape[0], : output.shape[1]]
            records.append({"data": data, "image": path.name, **about, "mse": float(np.mean(error**2))})
    return records


def reconstruction_markdown(records: Sequence[Record]) -> str:
    """The table of mean squared errors by data set and bank, then the paper's rows."""
    table = paper()["tables"]["reconstruction"]
    cells = sorted({record["cell"] for record in records})
    errors: dict[tuple[str, str], dict[int, list[float]]] = {}
    for r in records:
        row = errors.setdefault((r["data"], f"{r['bank']}, {r['components']} components"), {})
        row.setdefault(r["cell"], []).append(r["mse"])
    for quoted in table["rows"]:
        columns = [column["cell"] for column in table["columns"]]
        values = {cell: [value] for cell, value in zip(columns, quoted["values"], strict=True)}
        errors[f"{quoted['data']}, quoted", quoted["method"]] = values
    rows = [
        [data, bank, *(f"{fmean(found[cell]):.2e}" if cell in found else "—" for cell in cells)]
        for (data, bank), found in errors.items()
    ]
    header = ["data", "bank", *(f"{cell}×{cell}" for cell in cells)]
    notes = (
        "Measured here by least squares with phases of each channel's own; the quoted ones were found by 600 "
        "steps of gradient descent."
    )
    return f"{markdown_grid(header, rows, labels=2)}\n\n{notes}\n"
