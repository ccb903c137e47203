"""`thera eval`: measure models on folders of images, as in the paper's tables."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click

from thera.cli.parameters import engine_options
from thera.cli.variadic import VariadicCommand
from thera.errors import InvalidInput

TABLES = (".md", ".csv", ".tex")  # written beside the results


@click.command("eval", cls=VariadicCommand)
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@click.option("--data", multiple=True, metavar="DIR...", help="Folders of images, one table each.")
@click.option(
    "--pairs",
    multiple=True,
    metavar="DIR...",
    help="Folders of pairs taken at two focal lengths, low/NAME and high/NAME, instead of --data.",
)
@click.option("--scales", multiple=True, type=float, metavar="S...", help="Such as 2 3 4 or 2.5 12 30.")
@click.option(
    "--degrade",
    multiple=True,
    metavar="WHAT...",
    help="Damage the low-resolution images first: jpeg:40, noise:5, blur:0.8, blur:0.8+noise:5, none.",
)
@click.option(
    "--metrics",
    multiple=True,
    type=click.Choice(["psnr_rgb", "psnr_y", "psnr_y8", "ssim", "gmsd"]),
    help="Tables to print. Default: the PSNR that is published for the data set.",
)
@click.option(
    "--baselines",
    multiple=True,
    type=click.Choice(["nearest", "bicubic", "lanczos", "sinc", "none"]),
    default=["nearest", "bicubic", "lanczos", "sinc"],
    show_default=True,
    help="Methods to compare with; sinc resizes the first model's ×4 output with Lanczos.",
)
@click.option("--ensemble/--no-ensemble", default=True, help="Mean of four rotations, as published.")
@click.option("--both", is_flag=True, help="Measure each model in one pass and with the ensemble.")
@partial(engine_options, precision="f32")
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="One line per image; an interrupted run continues from it. Tables are written beside it."
    "  [default: results/eval.jsonl, or results/pairs.jsonl]",
)
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Images at a time.")
@click.option(
    "--replace", is_flag=True, help="Drop stored results of other models or images of the same name."
)
@click.option("--paper/--no-paper", default=True, help="Quote the paper's numbers for the same data set.")
@click.option(
    "--report",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Only write DIR.md from the results stored in DIR.",
)
def command(
    models: tuple[str, ...],
    data: tuple[str, ...],
    pairs: tuple[str, ...],
    scales: tuple[float, ...],
    degrade: tuple[str, ...],
    metrics: tuple[str, ...],
    baselines: tuple[str, ...],
    ensemble: bool,
    both: bool,
    engine: str,
    device: str,
    precision: str,
    out: Path | None,
    workers: int,
    replace: bool,
    paper: bool,
    report: Path | None,
) -> None:
    """Measure models as in publications: PSNR, SSIM and GMSD on folders of images.

    MODEL is a name, a file, or LABEL=FILE,FILE,… for the mean and standard deviation over several runs of
    one model. Without MODEL, only the baselines are measured.

    \b
    thera eval edsr-air edsr-pro --data Set5 Set14 --scales 2 3 4
    thera eval --data Set5 --scales 2 3 4 --metrics psnr_y8 --baselines bicubic
    thera eval edsr-air --data Set14 --scales 2 4 --degrade none jpeg:40 noise:5 blur:0.8
    thera eval mine.safetensors edsr-plus --pairs heldout/nikon heldout/iphone --no-ensemble
    """
    from thera.evaluation.damage import stated
    from thera.evaluation.images import image_sets
    from thera.evaluation.methods import load_methods
    from thera.evaluation.pair_runs import pair_sets, pair_tables, run_pairs
    from thera.evaluation.paper import QUOTED, quoted_rows
    from thera.evaluation.report import write_report
    from thera.evaluation.runner import Refusals, run
    from thera.evaluation.tables import published_metric, summarise, to_csv, to_latex, to_markdown

    if report is not None:
        click.echo(f"Wrote {write_report(report)}.")
        return
    if pairs and (data or scales or degrade or metrics):
        raise click.UsageError(
            "Pairs have their own scale: leave --data, --scales, --degrade, --metrics out."
        )
    if not data and not pairs:
        raise click.UsageError("Missing option '--data': name at least one folder of images.")
    out = out or Path("results", "pairs.jsonl" if pairs else "eval.jsonl")
    if out.suffix in TABLES:
        raise InvalidInput(f"The results {out} would be lost to their own table: end it in .jsonl.")
    found = pair_sets(pairs)
    sets = [images.damaged(damage) for images in image_sets(data) for damage in stated(degrade)]
    chosen = [] if "none" in baselines else list(baselines)
    methods = load_methods(models, chosen, ensemble, both, engine=engine, device=device, precision=precision)
    refusals = None
    try:
        if pairs:
            records = run_pairs(methods, found, out, workers, replace, _progress)
        else:
            records = run(methods, sets, scales, out, workers, replace, _progress)
    except Refusals as error:
        if not error.records:
            raise
        refusals, records = error, error.records
    tables = pair_tables(records) if pairs else []
    measured = {record["data"] for record in records}
    for images in (images for images in sets if images.name in measured):
        for metric in metrics or (published_metric(images.name),):
            table = summarise(records, images.name, metric, scales)
            quoted = quoted_rows(images.name, metric, scales) if paper else []
            if quoted:
                table.rows += quoted
                table.notes.append(QUOTED)
            tables.append(table)
    markdown = "\n".join(to_markdown(table) for table in tables)
    latex = "\n".join(to_latex(table) for table in tables)
    for suffix, text in zip(TABLES, (markdown, to_csv(tables), latex), strict=True):
        out.with_suffix(suffix).write_text(text, encoding="utf-8")
    click.echo(markdown)
    click.echo(f"{out}: {len(records)} results; the tables are in {out.stem}.md, .csv and .tex beside it.")
    if refusals is not None:
        raise refusals


def _progress(units: Iterable[Any], total: int) -> Iterable[Any]:
    from tqdm import tqdm

    return tqdm(units, total=total, unit="image", disable=None)
