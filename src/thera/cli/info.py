"""`thera info`: describe an image, a raster, a model or the installation."""

import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import click

from thera.cli.feedback import Feedback, json_text
from thera.errors import ImageFileError, MissingDependency, ModelError
from thera.optional import require

#: Colour spaces by their numbers in H.273.
_PRIMARIES = {1: "sRGB primaries", 9: "BT.2020", 12: "Display P3"}
_TRANSFER = {8: "linear light", 13: "sRGB", 16: "PQ", 18: "HLG"}


class Fact(NamedTuple):
    """A fact that programs read as `value` and people as `text`."""

    value: Any
    text: str


def _size(*lengths: int) -> Fact:
    return Fact(lengths, "×".join(map(str, lengths)))


@click.command("info")
@click.argument("thing", metavar="[IMAGE_OR_MODEL]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for other programs.")
def command(thing: str | None, as_json: bool) -> None:
    """Describe an image file, a model, or this installation: versions, devices and extras.

    \b
    thera info
    thera info photo.jpg
    thera info edsr-air
    thera info my-model.onnx
    """
    facts = installation() if thing is None else describe(thing)
    if as_json:
        click.echo(json_text({name: _value(fact) for name, fact in facts.items()}, indent=2))
        return
    width = max(map(len, facts))
    for name, fact in facts.items():
        click.echo(f"{name:<{width}}  {_text(fact)}")


def _value(fact: Any) -> Any:
    if isinstance(fact, list):
        return [_value(each) for each in fact]
    return fact.value if isinstance(fact, Fact) else fact


def _text(fact: Any) -> str:
    if isinstance(fact, list):
        return ", ".join(map(_text, fact))
    return fact.text if isinstance(fact, Fact) else str(fact)


def describe(thing: str) -> dict[str, Any]:
    """The facts about a model or, if it is none, about an image."""
    try:
        return _model(thing)
    except ModelError as error:
        model_error = error
    if not os.path.exists(thing):
        raise ModelError(f"{thing!r} is neither a file nor a shipped model: see `thera models`.")
    if os.path.isdir(thing) and Path(thing).suffix == ".zarr":
        return _store(Path(thing))
    try:
        return _image(Path(thing))
    except MissingDependency:
        raise
    except ImageFileError as error:
        # The file is neither: its suffix decides which of the two errors is more helpful.
        raise (model_error if Path(thing).suffix in (".onnx", ".safetensors", ".pkl") else error) from None


def installation() -> dict[str, Any]:
    """The versions of Thera and what it runs on, the devices, and which extras are installed."""
    import platform
    from importlib.metadata import PackageNotFoundError, requires

    from thera._version import __version__

    facts: dict[str, Any] = {
        "thera": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{name: _version(name) or "not installed" for name in ("onnxruntime", "ncnn", "openvino", "torch")},
        "devices": _devices(),
    }
    needs: dict[str, list[str]] = {}
    with suppress(PackageNotFoundError):
        for line in requires("thera") or ():
            found = re.match(r"([\w.-]+)(\[[\w,]+\])?.*extra == [\"'](\w+)[\"']", line)
            if found and found[1] != "thera":
                needs.setdefault(found[3], []).append(found[1])
    needs.pop("dev", None)
    there = {extra: all(map(_version, packages)) for extra, packages in needs.items()}
    none = Fact([], "none")
    facts["extras"] = sorted(extra for extra, installed in there.items() if installed) or none
    facts["not installed"] = sorted(extra for extra, installed in there.items() if not installed) or none
    return facts


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices() -> list[str]:
    """The devices that an installed engine finds; those of CUDA with their names."""
    from thera.models.devices import found

    devices = list(dict.fromkeys(candidate.device for candidate in found()))
    if not any(device.startswith("cuda:") for device in devices):
        return devices
    import torch

    return [f"{d} ({torch.cuda.get_device_name(d)})" if d.startswith("cuda:") else d for d in devices]


def _model(thing: str) -> dict[str, Any]:
    from thera.cli.run import Loading
    from thera.models.choice import ModelChoice

    model = Loading(ModelChoice(thing), Feedback(quiet=False))()
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
        "device": info.device,
        **({"chosen": info.why} if info.why else {}),
        **origin,
    }


def _image(path: Path) -> dict[str, Any]:
    from thera.geo.ome_tiff import describe, is_ome_tiff
    from thera.geo.raster import is_raster
    from thera.imaging.reading import read

    if is_ome_tiff(path):
        found = [_ome_facts(image) for image in describe(path)]
        every = {key: [image[key] for image in found] for key in found[0]}
        own = {key: values if len(found) > 1 else values[0] for key, values in every.items()}
        return {"name": path.name, "kind": "OME-TIFF", **own}
    if is_raster(path):
        return _raster(path)
    picture = read(path)
    layout, metadata = picture.layout, picture.metadata
    carried = {
        "ICC profile": metadata.icc,
        "EXIF": metadata.exif,
        "XMP": metadata.xmp,
        "IPTC": metadata.iptc,
        "text": metadata.text,
        "georeference": metadata.tiff_tags,
    }
    facts: dict[str, Any] = {
        "name": path.name,
        "kind": f"{picture.format} image",
        "size": _size(layout.width, layout.height),
        "colour": {"grey": "grey", "rgb": "RGB", "cmyk": "CMYK"}[layout.colour],
        "alpha": Fact(layout.alpha, "yes" if layout.alpha else "no"),
        "depth": layout.depth,
        "carries": [name for name, value in carried.items() if value] or Fact([], "nothing else"),
    }
    if metadata.cicp:
        names = zip(("primaries", "transfer"), (_PRIMARIES, _TRANSFER), metadata.cicp[:2], strict=True)
        facts["colour space"] = ", ".join(known.get(n, f"{kind} {n} of H.273") for kind, known, n in names)
    if metadata.dpi:
        facts["resolution"] = Fact(metadata.dpi, f"{metadata.dpi[0]:g}×{metadata.dpi[1]:g} dpi")
    if picture.notes:
        facts["as read"] = list(picture.notes)
    return facts


def _ome_facts(image: dict[str, Any]) -> dict[str, Any]:
    """What `thera.geo.ome_tiff.describe` says of an image, for people, too."""
    planes, sides = image["planes"], image["pixel size"]
    axes = ", ".join(f"{count} {name}" for name, count in planes.items() if name != "all" and count > 1)
    return image | {
        "size": _size(*image["size"]),
        "planes": Fact(planes, f"{planes['all']} ({axes})" if axes else str(planes["all"])),
        "pixel size": Fact(sides, " × ".join(f"{side:g} {unit}" for side, unit in sides) or "unknown"),
    }


def _store(path: Path) -> dict[str, Any]:
    zarr = require("zarr", "dask", "a Zarr store")
    try:
        node = zarr.open(path, mode="r")
        arrays = {"": node} if isinstance(node, zarr.Array) else dict(node.members(max_depth=None))
        kind = "Zarr array" if isinstance(node, zarr.Array) else "Zarr group"
        if "multiscales" in node.attrs or "multiscales" in node.attrs.get("ome", {}):
            kind = "OME-Zarr image"
        facts: dict[str, Any] = {"name": path.name, "kind": f"{kind}, format {node.metadata.zarr_format}"}
        for name, array in sorted(arrays.items()):
            if isinstance(array, zarr.Array):
                shape, chunks, dtype = _size(*array.shape), _size(*array.chunks), str(array.dtype)
                stored = {"shape": shape.value, "dtype": dtype, "chunks": chunks.value}
                text = f"{shape.text} {dtype} in chunks of {chunks.text}"
                facts[name or "array"] = Fact(stored, text)
    except Exception as error:  # damaged metadata can lead to any
        raise ImageFileError(f"{path} cannot be read as a Zarr store: {error}.") from error
    return facts


def _raster(path: Path) -> dict[str, Any]:
    from thera.geo.raster import describe
    from thera.values.ranges import depth_name

    raster = describe(path)
    system = raster.crs or raster.gcps[1]
    # JSON has no NaN.
    nodata = {f"{v:.15g}": "nan" if math.isnan(v) else v for v in raster.nodata if v is not None}
    return {
        "name": path.name,
        "kind": "raster",
        "size": _size(*raster.shape[::-1]),
        "bands": raster.count,
        "depth": depth_name(raster.dtype),
        "coordinates": system.to_string() if system else Fact(None, "none"),
        "nodata": [Fact(value, text) for text, value in nodata.items()] or Fact([], "none"),
    }
