"""`thera export`: write a model as ONNX."""

from pathlib import Path

import click

from thera.cli.convert import check_output, output_options


@click.command("export")
@click.argument("source", metavar="MODEL")
@click.argument("output", type=click.Path(path_type=Path))
@output_options("f16")
def command(source: str, output: Path, storage: str, overwrite: bool) -> None:
    """Write MODEL as an ONNX file that runs anywhere, for images of any size. Needs thera[export].

    \b
    thera export run/model.safetensors mine.onnx
    thera upscale photo.jpg --scale 4 --model mine.onnx
    """
    from thera.models import export

    check_output(output, (".onnx",), overwrite)
    export(source, output, storage)
