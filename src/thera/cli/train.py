"""`thera train`: from a folder of images to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from thera.models.optional import require


@click.command("train")
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--data", multiple=True, required=True, help="A folder or tar file of images; give it once or more."
)
@click.option(
    "--out", default="runs/latest", show_default=True, help="Folder of the run; an unfinished one goes on."
)
@click.option("--minutes", type=float, help="Time budget: the schedule has ended when it is over.")
@click.option("--pause", type=float, help="Stop after so many minutes; the same command goes on later.")
@click.option("--validate", multiple=True, help="A folder of images to score now and then (Y-PSNR).")
@click.option("--scales", default="2,3,4", show_default=True, help="Scales of the validation.")
@click.option("--device", default="auto", show_default=True, help="cuda, cpu, or auto.")
def command(
    config: Path, data: tuple[str, ...], out: str, validate: tuple[str, ...], scales: str, **options: Any
) -> None:
    """Train a model as CONFIG says.

    \b
    thera train configs/edsr-air.toml --data photos/ --minutes 10
    thera train configs/edsr-plus.toml --data train.tar --validate Set5 --out runs/plus
    torchrun --nproc-per-node 4 -m thera train configs/paper/edsr-pro.toml --data DIV2K/
    """
    require("torch", "train", "training")
    from thera.training.config import Config
    from thera.training.plot import plot
    from thera.training.run import progress_line, read_log, start

    start(
        Config.read(config),
        data,
        out,
        validate=validate,
        scales=[float(s) for s in scales.split(",")],
        show=lambda entry: click.echo(progress_line(entry), err=True),
        say=lambda text: click.echo(text, err=True),
        **options,
    )
    plot(read_log(out), Path(out) / "run.png")
