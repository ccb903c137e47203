"""`thera convert`: turn one kind of model file into another."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from thera.cli.parameters import Decorator
from thera.errors import ModelError


def output_options(storage: str) -> Decorator:
    """--storage and --overwrite, for commands that write a model."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        function = click.option("--overwrite", is_flag=True, help="Replace an output that exists.")(function)
        return click.option(
            "--storage",
            type=click.Choice(["f32", "f16"]),
            default=storage,
            show_default=True,
            help="How weights are stored. f16 halves the file; computations stay in f32.",
        )(function)

    return decorate


def check_output(path: Path, suffixes: tuple[str, ...], overwrite: bool) -> None:
    """Refuse, before the work, an output of another kind, or one that exists (unless `overwrite`)."""
    from thera.files import check_place

    if path.suffix not in suffixes:
        raise ModelError(f"The output {path.name!r} must end in {' or '.join(suffixes)}.")
    check_place(path, overwrite)


def written(path: Path) -> None:
    """Says what was written."""
    from thera.cli.feedback import echo
    from thera.memory import human_bytes

    echo(f"{path} is written ({human_bytes(path.stat().st_size)}).")


@click.command("convert")
@click.argument("source", metavar="MODEL")
@click.argument("output", type=click.Path(path_type=Path))
@output_options("f32")
def command(source: str, output: Path, storage: str, overwrite: bool) -> None:
    """Write MODEL as OUTPUT, .safetensors or .onnx. Needs thera[torch], for ONNX thera[export].

    \b
    thera convert thera-rdn-pro.pkl rdn-pro.safetensors     a published checkpoint
    thera convert rdn-pro.safetensors rdn-pro.onnx          for ONNX Runtime, without PyTorch
    """
    from thera.models import convert

    check_output(output, (".safetensors", ".onnx"), overwrite)
    convert(source, output, storage)
    written(output)
