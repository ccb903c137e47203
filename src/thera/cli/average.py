"""`thera average`: the mean of several trained networks."""

from pathlib import Path

import click

from thera.cli.convert import check_output, output_options


@click.command("average")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), help="The safetensors file to write."
)
@output_options("f16")
def command(models: tuple[str, ...], out: Path, storage: str, overwrite: bool) -> None:
    """Write the mean of networks of one kind, such as a run's end and the model it started from.

    \b
    thera average runs/a/weights.safetensors runs/b/weights.safetensors -o mine.safetensors
    """
    from thera.models import save_safetensors
    from thera.optional import require

    require("torch", "torch", "the mean of networks")
    from thera.training.average import average

    check_output(out, (".safetensors",), overwrite)
    network, about = average(models)
    save_safetensors(network, out, storage, about)
    click.echo(f"The mean of {len(models)} networks is {out}.", err=True)
