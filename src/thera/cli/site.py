"""`thera site`: a page for any web host, with the network running in the visitor's browser."""

from __future__ import annotations

from pathlib import Path

import click

from thera.cli.parameters import NAMED_PATH


@click.command("site")
@click.argument("out", type=NAMED_PATH)
@click.option(
    "--picture", "pictures", multiple=True, type=NAMED_PATH, help="Open this one at first; repeatable."
)
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    help="A model to offer, the default first; repeatable. [default: edsr-air, edsr-plus]",
)
@click.option(
    "--runtime", type=NAMED_PATH, help="The npm package onnxruntime-web, for WebGPU where a browser has it."
)
def command(out: Path, pictures: tuple[Path, ...], models: tuple[str, ...], runtime: Path | None) -> None:
    """Write a page that enlarges pictures in the visitor's browser, as a folder for any web host.

    \b
    thera site demo/ --picture photo.jpg
    python -m http.server -d demo               look at it: http://127.0.0.1:8000

    Everything it needs is in the folder. Nothing is loaded from elsewhere, and no picture leaves the
    visitor's computer. After the first visit it works without a network.
    """
    from thera.memory import human_bytes
    from thera.site.building import MODELS, write_site

    size = write_site(out, pictures, models or MODELS, runtime)
    click.echo(f"Wrote {out}, {human_bytes(size)}. Look at it with: python -m http.server -d {out}", err=True)
