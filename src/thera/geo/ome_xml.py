"""OME-XML of an image whose pixels become smaller or larger."""

import io
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from xml.etree import ElementTree as ET

#: Attributes of shapes that are lengths or places along x and along y, in pixels.
_ALONG_X = ("X", "X1", "X2", "Width", "RadiusX")
_ALONG_Y = ("Y", "Y1", "Y2", "Height", "RadiusY")


class Change(NamedTuple):
    """What becomes of an image: its size, and the directories of its planes in the file."""

    source: tuple[int, int]  # (height, width), as is the next
    size: tuple[int, int]
    first: int
    planes: int


def parse(text: str) -> ET.Element:
    """The root of a document, with comments. Its prefixes are used for writing, too."""
    for _, (prefix, uri) in ET.iterparse(io.BytesIO(text.encode()), events=("start-ns",)):
        with suppress(ValueError):  # a reserved one is written as another
            ET.register_namespace(prefix, uri)
    return ET.fromstring(text.encode(), ET.XMLParser(target=ET.TreeBuilder(insert_comments=True)))


def images(root: ET.Element) -> list[ET.Element]:
    """The `Pixels` of each image, in order."""
    return [element for element in root.iter() if _name(element) == "Pixels"]


def planes(pixels: ET.Element) -> int:
    """How many planes the pixels of an image are stored in."""
    samples = [int(child.get("SamplesPerPixel", 1)) for child in pixels if _name(child) == "Channel"]
    depths, times, colours = (int(pixels.get(f"Size{axis}", 1)) for axis in "ZTC")
    return depths * times * (colours // max([1, *samples[:1]]))


def scaled(text: str, changes: Sequence[Change]) -> tuple[bytes, int]:
    """The document for scaled images, and how many regions of interest in it could not be scaled.

    Sizes, pixel sizes and regions are those of the scaled images. All else is kept.
    """
    root = parse(text)
    root.attrib.pop("UUID", None)  # of the other file
    for pixels, change in zip(images(root), changes, strict=True):
        for axis, old, new in zip("YX", change.source, change.size, strict=True):
            pixels.set(f"Size{axis}", str(new))
            name = f"PhysicalSize{axis}"
            if (length := pixels.get(name)) is not None:
                try:
                    pixels.set(name, repr(float(length) * old / new))
                except ValueError:
                    raise ValueError(f'{name}="{length}" is not a number') from None
        pixels.set("BigEndian", "false")
        for child in [child for child in pixels if _name(child) in ("TiffData", "BinData", "MetadataOnly")]:
            pixels.remove(child)
        at = sum(_name(child) in ("Channel", None) for child in pixels)
        space = (pixels.tag.rpartition("}")[0] + "}") if "}" in pixels.tag else ""
        where = {"IFD": str(change.first), "PlaneCount": str(change.planes)}
        pixels.insert(at, ET.Element(f"{space}TiffData", where))
    kept = _scale_regions(root, changes)
    return ET.tostring(root, encoding="UTF-8", xml_declaration=True), kept


def _scale_regions(root: ET.Element, changes: Sequence[Change]) -> int:
    """Scales the regions of interest, which are in pixels. Returns how many stay as they are.

    They stay if the images are not scaled alike, if they are masks, whose pixels are part of the document, or
    if their numbers cannot be read.
    """
    factors = {tuple(N / n for n, N in zip(change.source, change.size, strict=True)) for change in changes}
    unions = [element for element in root.iter() if _name(element) == "Union"]
    shapes = [shape for union in unions for shape in union if _name(shape)]
    if len(factors) != 1:
        return len(shapes)
    ((down, across),) = factors
    kept = 0
    for shape in shapes:
        parts = list(shape.iter())
        try:
            new = [_scaled_values(part, down, across) for part in parts]
        except ValueError:
            new = []
        if not new or any(_name(part) == "Mask" for part in parts):
            kept += 1
            continue
        for part, values in zip(parts, new, strict=True):
            part.attrib.update(values)
    return kept


def _scaled_values(part: ET.Element, down: float, across: float) -> dict[str, str]:
    """The attributes of a shape, or of its transform, that change with the pixels."""
    factors = {**dict.fromkeys(_ALONG_X, across), **dict.fromkeys(_ALONG_Y, down)}
    if _name(part) == "Transform":  # between scaled coordinates
        factors = {"A02": across, "A12": down, "A01": across / down, "A10": down / across}
    old = {name: part.attrib[name] for name in factors if name in part.attrib}
    new = {name: f"{float(value) * factors[name]:.12g}" for name, value in old.items()}
    if (points := part.get("Points")) is not None:
        pairs = (pair.split(",") for pair in points.split())
        new["Points"] = " ".join(f"{float(x) * across:.12g},{float(y) * down:.12g}" for x, y in pairs)
    return new


def _name(element: ET.Element) -> str | None:
    """An element's name without its namespace; None for a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else None
