"""`thera info`: describe an image, a raster or a model."""

import json
import os
from pathlib import Path
from typing import Any

import click

from thera.errors import ImageFileError, MissingDependency, ModelError


@click.command("info")
@click.argument("thing", metavar="IMAGE_OR_MODEL")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for other programs.")
def command(thing: str, as_json: bool) -> None:
    """Describe an image file or a model.

    \b
    thera info photo.jpg
    thera info edsr-air
    thera info my-model.onnx
    """
    facts = describe(thing)
    if as_json:
        click.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        click.echo(f"{name:<{width}}  {text}")


def describe(thing: str) -> dict[str, Any]:
    """The facts about a model or, if it is none, about an image."""
    try:
        return _model(thing)
    except ModelError as error:
        model_error = error
    if not os.path.exists(thing):
        raise ModelError(f"{thing!r} is neither a file nor a shipped model: see `thera models`.")
    try:
        return _image(Path(thing))
    except MissingDependency:
        raise
    except ImageFileError as error:
        # The file is neither: its suffix decides which of the two errors is more helpful.
        raise (model_error if Path(thing).suffix in (".onnx", ".safetensors", ".pkl") else error) from None


def _model(thing: str) -> dict[str, Any]:
    from thera.models import load

    model = load(thing)
    info = model.info
    origin = {key: info.metadata[key] for key in ("source", "trained") if info.metadata.get(key)}
    return {
        "name": info.name,
        "kind": "model",
        "backbone": info.spec.backbone,
        "variant": info.spec.variant,
        "parameters": info.parameters,
        "components": info.components,
        "kappa": round(info.kappa, 6),
        "published": info.spec.published,
        "halo": info.halo,
        "engine": info.engine,
        **origin,
    }


def _image(path: Path) -> dict[str, Any]:
    from thera.geo.raster import is_raster
    from thera.imaging.reading import read

    if is_raster(path):
        return _raster(path)
    picture = read(path)
    layout, metadata = picture.layout, picture.metadata
    carried = {
        "ICC profile": metadata.icc,
        "EXIF": metadata.exif,
        "XMP": metadata.xmp,
        "text": metadata.text,
        "georeference": metadata.tiff_tags,
    }
    facts: dict[str, Any] = {
        "name": path.name,
        "kind": f"{picture.format} image",
        "size": f"{layout.width}×{layout.height}",
        "colour": {"grey": "grey", "rgb": "RGB", "cmyk": "CMYK"}[layout.colour],
        "alpha": "yes" if layout.alpha else "no",
        "depth": layout.depth,
        "carries": [name for name, value in carried.items() if value] or ["nothing else"],
    }
    if metadata.dpi:
        facts["resolution"] = f"{metadata.dpi[0]:g}×{metadata.dpi[1]:g} dpi"
    if picture.notes:
        facts["as read"] = list(picture.notes)
    return facts


def _raster(path: Path) -> dict[str, Any]:
    from thera.geo.raster import describe
    from thera.values.ranges import depth_name

    raster = describe(path)
    system = raster.crs or raster.gcps[1]
    nodata = dict.fromkeys(f"{value:.15g}" for value in raster.nodata if value is not None)
    return {
        "name": path.name,
        "kind": "raster",
        "size": f"{raster.shape[1]}×{raster.shape[0]}",
        "bands": raster.count,
        "depth": depth_name(raster.dtype),
        "coordinates": system.to_string() if system else "none",
        "nodata": list(nodata) or ["none"],
    }
