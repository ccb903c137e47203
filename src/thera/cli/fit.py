"""`thera fit`: fit heat fields to images, without any network."""

from __future__ import annotations

from pathlib import Path

import click

from thera.cli.parameters import append_option
from thera.cli.variadic import VariadicCommand


@click.command("fit", cls=VariadicCommand)
@click.argument(
    "images", metavar="IMAGE...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
@click.option(
    "--cells",
    multiple=True,
    type=click.IntRange(2),
    default=[3, 4, 6, 12, 18],
    show_default=True,
    metavar="N...",
    help="Sides of the local fields, in pixels.",
)
@click.option(
    "--bank",
    default="random",
    show_default=True,
    help="The frequencies: random, learnt (optimised for these images), or those of a MODEL.",
)
@click.option(
    "--components", type=click.IntRange(1), default=512, show_default=True, help="How many frequencies."
)
@click.option(
    "--steps", type=click.IntRange(1), default=200, show_default=True, help="Steps for a learnt bank."
)
@click.option(
    "--low-pass",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw a figure into this file: one field at ×1, ×1/4, ×1/8 and ×1/16 beside a Gaussian filter.",
)
@append_option
def command(
    images: tuple[Path, ...],
    cells: tuple[int, ...],
    bank: str,
    components: int,
    steps: int,
    low_pass: Path | None,
    out: Path | None,
) -> None:
    """Fit grids of heat fields to images or folders of images, supervised at t = 1 only.

    Prints the error for each cell size, beside the paper's table.

    \b
    thera fit Set5 --bank edsr-pro
    thera fit baby.png --low-pass lowpass.png
    """
    from thera.evaluation.figures import check_name, low_pass_figure, save
    from thera.evaluation.images import image_sets
    from thera.evaluation.reconstruction import Bank, reconstruct, reconstruction_markdown
    from thera.evaluation.records import append_records

    if low_pass is not None:
        check_name(low_pass)
    files = [
        (path.resolve().name, file)
        for path in images
        for file in (image_sets([path])[0].files if path.is_dir() else [path])
    ]
    records = reconstruct(files, cells, Bank.choose(bank, components, steps))
    click.echo(reconstruction_markdown(records))
    if out is not None:
        append_records(out, records)
    if low_pass is not None:
        save(low_pass_figure(files[0][1]), low_pass)
        click.echo(f"Drew {low_pass}.")
