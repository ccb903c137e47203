"""`thera ablations`: the paper's ablations, trained and measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from thera.cli.variadic import VariadicCommand
from thera.optional import require

FOLDER = click.Path(path_type=Path)


@click.command("ablations", cls=VariadicCommand)
@click.option(
    "--configs", type=FOLDER, default="configs/ablations", show_default=True, help="A folder of TOML files."
)
@click.option(
    "--data", multiple=True, metavar="PATH...", help="Images to train on, unless all is trained already."
)
@click.option("--seconds", type=float, default=60, show_default=True, help="Training time of each.")
@click.option(
    "--validate", multiple=True, metavar="DIR...", help="Images to measure on. Default: nothing is measured."
)
@click.option(
    "--scales", multiple=True, type=float, metavar="S...", default=[2, 3, 4, 6, 8], help="2 3 4 6 8."
)
@click.option(
    "--names", multiple=True, metavar="NAME...", help="Only these files, in this order. Default: all."
)
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Runs of each, for a ±.")
@click.option(
    "--pause", type=click.FloatRange(0), metavar="MINUTES", help="Stop then; the next call goes on."
)
@click.option(
    "--at-equal-patches",
    is_flag=True,
    help="Also train the full model for only as many patches as each slower ablation has seen.",
)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE...", help="Changes to all of them.")
@click.option("--workers", type=int, default=2, show_default=True, help="Images measured at a time.")
@click.option("--device", default="auto", show_default=True, help="cuda, cpu, or auto.")
@click.option(
    "--precision",
    type=click.Choice(["f32", "tf32"]),
    default="f32",
    show_default=True,
    help="Of measuring; tf32 is faster on NVIDIA GPUs.",
)
@click.option(
    "--replace",
    "replace_results",
    is_flag=True,
    help="Drop stored measurements of other weights or images of the same name.",
)
@click.option("--runs", type=FOLDER, default="runs/ablations", show_default=True, help="For the weights.")
@click.option(
    "-o", "--out", type=FOLDER, default="docs/results", show_default=True, help="For the measurements."
)
def command(**options: Any) -> None:
    """Train every ablation of the paper for the same time, and measure it; or methods against each other.

    Measurements are stored under the name of --runs: ablations.jsonl and ablations.json, methods.jsonl and
    methods.json, and so on. `thera eval --report` makes tables of them. The same command continues an
    interrupted one; a row that fails does not stop the others.

    \b
    thera ablations --data photos/ --seconds 60 --validate Set14/ photo20/ --scales 2 3 4 6 8
    thera ablations --configs configs/methods --runs runs/methods --data photos/
    thera ablations --configs configs/methods --runs runs/methods --validate Set5/ Set14/
    thera ablations --configs configs/kernels --runs runs/kernels --seeds 3 --data photos/ --validate Set5/
    """
    require("torch", "train", "training")
    from thera.models.torch_engine import resolve_device
    from thera.training.ablations import run_ablations

    run_ablations(**options | {"device": str(resolve_device(options["device"]))})
