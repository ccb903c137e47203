"""`thera inspect`: what training made of a model."""

from __future__ import annotations

from pathlib import Path

import click

from thera.cli.feedback import json_text


@click.command("inspect")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option(
    "--figure",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the frequency bank of one model into this file (PNG, PDF, SVG).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per model, for other programs.")
def command(models: tuple[str, ...], figure: Path | None, as_json: bool) -> None:
    """Show a model's κ, its frequency bank and the parameters of each part.

    \b
    thera inspect edsr-air --figure bank.png
    """
    from thera.evaluation.inspection import bank_of, inspect_model, inspection_text
    from thera.models import load

    if figure is not None:
        from thera.evaluation.charts import bank_figure
        from thera.evaluation.figures import check_name, save

        if len(models) != 1:
            raise click.UsageError("--figure draws one model's bank: name one model.")
        check_name(figure)
    for i, name in enumerate(models):
        model = load(name)
        record = inspect_model(model)
        if as_json:
            click.echo(json_text(record))
        else:
            click.echo(("\n" if i else "") + inspection_text(record))
        if figure is not None:
            save(bank_figure(bank_of(model), record["kappa"], model.name), figure)
            click.echo(f"\nDrew {figure}.")
