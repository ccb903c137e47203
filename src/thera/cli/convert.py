"""`thera convert`: a model file of one kind as another."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from thera.cli.parameters import Decorator
from thera.errors import ModelError


def output_options(storage: str) -> Decorator:
    """--storage and --overwrite, as `convert` and `export` take them."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        function = click.option("--overwrite", is_flag=True, help="Replace an output that exists.")(function)
        return click.option(
            "--storage",
            type=click.Choice(["f32", "f16"]),
            default=storage,
            show_default=True,
            help="How weights are stored; f16 halves the file, and they are computed with in f32.",
        )(function)

    return decorate


@contextmanager
def new_file(path: Path, suffixes: tuple[str, ...], overwrite: bool) -> Iterator[Path]:
    """A name to write under that becomes `path` when all went well, and leaves nothing otherwise."""
    from thera.files import check_place, reason_of

    if path.suffix not in suffixes:
        raise ModelError(f"The output {path.name!r} must end in {' or '.join(suffixes)}.")
    check_place(path, overwrite)
    try:
        with tempfile.TemporaryDirectory(prefix=".thera-", dir=path.parent) as folder:
            temporary = Path(folder) / path.name
            temporary.touch()
            mode = temporary.stat().st_mode
            yield temporary
            temporary.chmod(mode)  # some writers keep their files to themselves
            temporary.replace(path)
    except OSError as error:
        if error.errno is None:
            raise
        raise ModelError(f"The output {path} could not be written: {reason_of(error)}.") from error


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

    with new_file(output, (".safetensors", ".onnx"), overwrite) as temporary:
        convert(source, temporary, storage)
