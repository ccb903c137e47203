"""`thera bench`: time and memory of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from thera.cli.parameters import Size, append_option
from thera.cli.variadic import VariadicCommand
from thera.errors import TheraError


class Side(Size):
    """WIDTHxHEIGHT, or the side of a square; converted to (height, width)."""

    name = "N|WxH"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        square = isinstance(value, str) and value.isdecimal()
        height, width = super().convert(f"{value}x{value}" if square else value, param, ctx)
        if min(height, width) < 1:
            self.fail(f"{value!r} is no size: give at least one pixel.", param, ctx)
        return height, width


@click.command("bench", cls=VariadicCommand)
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@click.option(
    "--sizes",
    multiple=True,
    type=Side(),
    default=["48"],
    show_default=True,
    metavar="N|WxH...",
    help="Sizes of inputs, in pixels: 48 is 48x48.",
)
@click.option("--scale", type=float, default=4, show_default=True, help="How much the inputs are enlarged.")
@click.option(
    "--engines",
    multiple=True,
    type=click.Choice(["auto", "onnx", "ncnn", "openvino", "torch"]),
    help="What runs the models. Default: onnx, or auto with --device or --precision.",
)
@click.option("--device", default="auto", show_default=True, help="Where models run: cpu, cuda, …")
@click.option("--precision", default="auto", show_default=True, help="auto, f32, tf32, bf16 or f16.")
@click.option(
    "--repeats", type=click.IntRange(1), default=10, show_default=True, help="Calls to take the median of."
)
@click.option("--devices", is_flag=True, help="Measure all engines and devices of this computer instead.")
@append_option
def command(
    models: tuple[str, ...],
    sizes: tuple[tuple[int, int], ...],
    scale: float,
    engines: tuple[str, ...],
    device: str,
    precision: str,
    repeats: int,
    devices: bool,
    out: Path | None,
) -> None:
    """Measure time and peak memory, each case in its own process, beside the paper's table.

    Without MODEL, all models that come with Thera are measured.

    A case that fails, for example because it does not fit into memory, leaves the others.

    With --devices, every engine on every device that is found encodes a small image. A star marks what
    Thera takes by itself. It is remembered: repeat this if an earlier choice was made on a busy computer.

    \b
    thera bench --sizes 48 256 --engines onnx torch
    thera bench runs/methods/*.safetensors --sizes 48 510x340 --engines torch --precision f32
    thera bench --devices edsr-plus
    """
    from thera.evaluation.bench import Case, bench_markdown, measure_apart
    from thera.evaluation.records import append_records
    from thera.models import shipped

    if devices and (device, precision, engines) != ("auto", "auto", ()):
        raise click.UsageError("--devices measures all engines and devices: leave out what names some.")
    engines = engines or ("onnx" if device == precision == "auto" else "auto",)
    names = models or tuple(model.name for model in shipped())
    if not names:
        raise click.UsageError("No model was named, and none comes with this Thera: name a model or a file.")
    if devices:
        show_devices(names)
        return
    records, failures = [], []
    for name in names:
        for engine in engines:
            for height, width in sizes:
                case = Case(name, engine, device, precision, width, height, scale, repeats)
                try:
                    records.append(measure_apart(case))
                except TheraError as error:  # one that does not fit into memory leaves the others
                    failures.append(str(error))
                    continue
                if out is not None:
                    append_records(out, records[-1:])
    if records:
        click.echo(bench_markdown(records))
    if failures:
        raise TheraError("\n".join(failures))


def show_devices(names: tuple[str, ...]) -> None:
    """A table of the engines and devices of this computer, fastest first for each precision."""
    from thera.models.choosing import SIDE
    from thera.models.devices import survey
    from thera.models.loading import locate

    for name in names:
        locate(name)  # says which one there is not, before anything is measured
    click.echo(f"milliseconds to encode {SIDE}×{SIDE} pixels; * is what Thera takes at this precision")
    for name in names:
        click.echo(f"\n{name}")
        for timing in survey(name):
            star = "*" if timing.chosen else " "
            engine, device = timing.candidate
            click.echo(
                f"  {timing.precision:<5} {star} {engine:<9} {device:<10} {1000 * timing.seconds:8.1f}"
            )
