"""`thera train`: from a folder of images to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from thera.cli.variadic import VariadicCommand
from thera.optional import require


@click.command("train", cls=VariadicCommand)
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--data", multiple=True, metavar="PATH...", help="Folders or tar files of images.")
@click.option(
    "--pairs",
    multiple=True,
    metavar="DIR...",
    help="Folders with low/ and high/ pictures of the same scenes, or City100's: instead of --data, or with "
    "it in the share of data.paired.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="runs/latest",
    show_default=True,
    help="Folder of the run. An unfinished run in it is continued.",
)
@click.option("--minutes", type=float, help="Time budget of a run whose configuration gives no steps.")
@click.option("--pause", type=float, help="Stop after so many minutes; the same command continues.")
@click.option("--validate", multiple=True, metavar="DIR...", help="Images to score now and then (Y-PSNR).")
@click.option(
    "--scales", multiple=True, type=float, metavar="S...", default=[2, 3, 4], help="For --validate: 2 3 4."
)
@click.option(
    "--degrade",
    multiple=True,
    metavar="WHAT...",
    help="For --validate, as in thera eval: none jpeg:40 noise:5.",
)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE...", help="Such as optimiser.rate=2e-4.")
@click.option("--device", default="auto", show_default=True, help="cuda, cpu, or auto.")
def command(config: Path, data: tuple[str, ...], out: Path, **options: Any) -> None:
    """Train a model as CONFIG says: a TOML file, or a folder of them that run one after the other.

    \b
    thera train configs/edsr-air.toml --data photos/ --minutes 10
    thera train configs/edsr-plus.toml --data a.tar b.tar --minutes 30 --validate Set5 --out runs/plus
    thera train configs/edsr-air.toml --data photos/ --set optimiser.steps=100000 seed=3
    thera train configs/shipped/edsr-plus/ --data photos/ --out runs/edsr-plus
    torchrun --nproc-per-node 4 -m thera train configs/paper/edsr-pro.toml --data DIV2K/
    """
    if not data and not options["pairs"]:
        raise click.UsageError("Missing option '--data': name folders or tar files of images.")
    require("torch", "train", "training")
    from thera.training.run import progress_line
    from thera.training.stages import train

    train(
        config,
        data,
        out,
        show=lambda entry: click.echo(progress_line(entry), err=True),
        say=lambda text: click.echo(text, err=True),
        **options,
    )
