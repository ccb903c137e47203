"""`thera export`: write a model as ONNX."""

from pathlib import Path

import click

from thera.cli.convert import check_output, output_options, written


@click.command("export")
@click.argument("source", metavar="MODEL")
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "-s", "--scale", metavar="FACTOR", help="Write an image-to-image network for this scale: 4, 2.5, 4/3."
)
@click.option(
    "--tile",
    type=click.IntRange(1, 4096),
    metavar="N",
    help="With --scale: for images of N×N pixels alone, for programs that want one size.",
)
@output_options("f16")
def command(
    source: str, output: Path, scale: str | None, tile: int | None, storage: str, overwrite: bool
) -> None:
    """Write MODEL as an ONNX file that runs anywhere, for images of any size.

    \b
    thera export run/model.safetensors mine.onnx
    thera upscale photo.jpg --scale 4 --model mine.onnx

    With --scale the file is one plain network, from an image (1×3×H×W, RGB in 0..1) to the image at that
    scale, for other programs that run super-resolution networks. It is for them alone: Thera itself takes
    files without a scale, which do every scale. At a fraction such as 4/3, give it images whose sides are
    multiples of 3: at other sizes it spaces pixels by exactly 3/4, where `thera upscale` fits them.

    Models that come with Thera need the package onnx with --scale, and thera[export] without.

    \b
    thera export edsr-plus plus-x4.onnx --scale 4
    """
    from thera.models import export

    if tile and scale is None:
        raise click.UsageError("--tile is for networks of one scale: give --scale, too.")
    check_output(output, (".onnx",), overwrite)
    export(source, output, storage, scale=scale, tile=tile)
    written(output)
