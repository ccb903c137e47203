"""`thera bench`: time and memory of models."""

from __future__ import annotations

from pathlib import Path

import click

from thera.cli.parameters import append_option
from thera.cli.variadic import VariadicCommand


@click.command("bench", cls=VariadicCommand)
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@click.option(
    "--sizes",
    multiple=True,
    type=click.IntRange(1),
    default=[48],
    show_default=True,
    metavar="N...",
    help="Sides of square inputs, in pixels.",
)
@click.option("--scale", type=float, default=4, show_default=True, help="How much the inputs are enlarged.")
@click.option(
    "--engines",
    multiple=True,
    type=click.Choice(["auto", "onnx", "ncnn", "openvino", "torch"]),
    default=["onnx"],
    show_default=True,
    help="What runs the models.",
)
@click.option("--device", default="auto", show_default=True, help="Where models run: cpu, cuda, …")
@click.option("--precision", default="f32", show_default=True, help="f32, tf32, bf16 or f16.")
@click.option(
    "--repeats", type=click.IntRange(1), default=10, show_default=True, help="Calls to take the median of."
)
@append_option
def command(
    models: tuple[str, ...],
    sizes: tuple[int, ...],
    scale: float,
    engines: tuple[str, ...],
    device: str,
    precision: str,
    repeats: int,
    out: Path | None,
) -> None:
    """Measure time and peak memory, each case in its own process, beside the paper's table.

    Without MODEL, all models that come with Thera are measured.

    \b
    thera bench --sizes 48 256 --engines onnx torch
    """
    from thera.evaluation.bench import Case, bench_markdown, measure_apart
    from thera.evaluation.records import append_records
    from thera.models import shipped

    names = models or tuple(model.name for model in shipped())
    if not names:
        raise click.UsageError("No model was named, and none comes with this Thera: name a model or a file.")
    records = []
    for name in names:
        for engine in engines:
            for side in sizes:
                case = Case(name, engine, device, precision, side, scale, repeats)
                records.append(measure_apart(case))
    click.echo(bench_markdown(records))
    if out is not None:
        append_records(out, records)
