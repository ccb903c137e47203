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
    sizes = [int(pixels.get(f"Size{axis}", 1)) for axis in "ZT"]
    channels = [channel for channel in pixels if _name(channel) == "Channel"]
    colours = len(channels) or int(pixels.get("SizeC", 1))
    return sizes[0] * sizes[1] * colours


def scaled(text: str, changes: Sequence[Change]) -> bytes:
    """The document for scaled images: sizes, pixel sizes and shapes are theirs, all else is kept."""
    root = parse(text)
    root.attrib.pop("UUID", None)  # of the other file
    for pixels, change in zip(images(root), changes, strict=True):
        for axis, old, new in zip("YX", change.source, change.size, strict=True):
            pixels.set(f"Size{axis}", str(new))
            length = pixels.get(f"PhysicalSize{axis}")
            if length is not None:
                pixels.set(f"PhysicalSize{axis}", repr(float(length) * old / new))
        pixels.set("BigEndian", "false")
        for child in [child for child in pixels if _name(child) in ("TiffData", "BinData", "MetadataOnly")]:
            pixels.remove(child)
        at = sum(_name(child) in ("Channel", None) for child in pixels)
        space = (pixels.tag.rpartition("}")[0] + "}") if "}" in pixels.tag else ""
        where = {"IFD": str(change.first), "PlaneCount": str(change.planes)}
        pixels.insert(at, ET.Element(f"{space}TiffData", where))
    _scale_shapes(root, changes)
    return ET.tostring(root, encoding="UTF-8", xml_declaration=True)


def _scale_shapes(root: ET.Element, changes: Sequence[Change]) -> None:
    """Scales the regions of interest, which are in pixels, if all images are scaled alike."""
    factors = {tuple(N / n for n, N in zip(change.source, change.size, strict=True)) for change in changes}
    if len(factors) != 1:
        return
    ((down, across),) = factors
    for union in (element for element in root.iter() if _name(element) == "Union"):
        for shape in union.iter():
            for names, factor in ((_ALONG_X, across), (_ALONG_Y, down)):
                for name in names:
                    if (value := shape.get(name)) is not None:
                        shape.set(name, f"{float(value) * factor:.12g}")
            if (points := shape.get("Points")) is not None:
                pairs = (pair.split(",") for pair in points.split())
                shape.set(
                    "Points", " ".join(f"{float(x) * across:.12g},{float(y) * down:.12g}" for x, y in pairs)
                )
            if _name(shape) == "Transform":  # between scaled coordinates
                for name, factor in (
                    ("A02", across),
                    ("A12", down),
                    ("A01", across / down),
                    ("A10", down / across),
                ):
                    if (value := shape.get(name)) is not None:
                        shape.set(name, f"{float(value) * factor:.12g}")


def _name(element: ET.Element) -> str | None:
    """An element's name without its namespace; None for a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else None
