"""OME-TIFFs of microscopes: every plane of channels, depths and times by itself, with the pixel size."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, ParseError

import numpy as np
from numpy.typing import NDArray

from thera.errors import ImageFileError
from thera.files import check_place, replacing
from thera.imaging.files import check_disk
from thera.imaging.formats import FORMATS, Format
from thera.imaging.quiet import quiet
from thera.imaging.sizing import TargetSize
from thera.imaging.tiff import check_complete
from thera.imaging.upscaling import scale_array
from thera.models import Model
from thera.tiled import Options, Plan, make_plan
from thera.values.consistency import check_whole
from thera.values.meaning import Meaning
from thera.values.ranges import Stretch, depth_name

from .ome_xml import Change, images, parse, planes, scaled

#: Sample types that can be scaled, as NumPy writes them.
TYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8")
#: What the axes C, Z and T count.
AXES = ("channels", "depths", "times")
#: The side of tiles in larger planes.
TILE = 512
#: Bytes from which a file is written as BigTIFF, as it may exceed 4 GiB.
BIG = 4_000_000_000


class Stack(NamedTuple):
    """One image of a file: all its planes have this shape and type."""

    shape: tuple[int, int]
    size: tuple[int, int]
    planes: int
    samples: int  # 3 or 4 in planes of colours
    dtype: np.dtype
    levels: int  # of its pyramid

    @property
    def nbytes(self) -> int:
        """Bytes of all planes of the output."""
        return self.planes * math.prod(self.size) * self.samples * self.dtype.itemsize


@dataclass(frozen=True)
class OmeScaling:
    """An OME-TIFF that is about to be scaled into another: opened, planned and checked."""

    source: Path
    output: Path
    model: Model
    options: Options
    stretch: Stretch | None
    stacks: tuple[Stack, ...]
    description: bytes
    plan: Plan  # of a plane of the largest image
    kept: int = 0  # regions of interest that could not be scaled

    @property
    def form(self) -> Format:
        return FORMATS["tiff"]

    @property
    def depth(self) -> str:
        return depth_name(self.stacks[0].dtype)

    @property
    def tiles(self) -> int:
        return self.plan.tiles * sum(stack.planes for stack in self.stacks)

    @property
    def work(self) -> tuple[float, float]:
        """The effort of encoding, in pixels (see `Plan`), and pixels to render."""
        share = self._pixels / math.prod(self.plan.size) * self.options.rotations
        return self.plan.effort * share, math.prod(self.plan.size) * share

    @property
    def _pixels(self) -> int:
        return sum(stack.planes * math.prod(stack.size) for stack in self.stacks)

    @property
    def disk(self) -> int:
        return sum(stack.nbytes * 4 // 3 for stack in self.stacks)

    @property
    def notes(self) -> tuple[str, ...]:
        """How much there is, and what is not scaled."""
        notes = []
        if sum(stack.planes for stack in self.stacks) > 1:
            counts = " and ".join(f"{stack.planes:,}" for stack in self.stacks)
            notes.append(f"{counts} planes (channels, depths, times) are scaled one by one")
        if self.kept:
            notes.append(f"regions of interest that could not be scaled and stay as they were: {self.kept:,}")
        return tuple(notes)

    def run(self, progress: Callable[[int], object] = lambda pixels: None) -> None:
        """Writes the output, whole or not at all. `progress` sums to the pixels of the plan."""
        from tifffile import TiffWriter

        done, shown, whole = 0, 0, math.prod(self.plan.size)
        description: bytes | None = self.description
        with (
            opened(self.source) as tiff,
            replacing(self.output) as file,
            TiffWriter(file, bigtiff=self.disk > BIG, byteorder="<") as writer,
        ):
            for stack, (_, pages) in zip(self.stacks, _series(tiff), strict=True):
                for page in pages:
                    plane = self._scaled(stack, _plane(self.source, page))
                    _write(writer, plane, stack, page, description)
                    description, done = None, done + math.prod(stack.size)
                    progress(done * whole // self._pixels - shown)
                    shown = done * whole // self._pixels

    def _scaled(self, stack: Stack, plane: NDArray) -> NDArray:
        meaning = Meaning(self.stretch or Stretch.usual(stack.dtype))
        return scale_array(self.model, plane, stack.size, meaning, self.options)


def is_ome_tiff(path: Path) -> bool:
    """True for a TIFF that is described by OME-XML."""
    if path.suffix.lower() not in FORMATS["tiff"].suffixes or not path.is_file():
        return False
    try:
        with opened(path) as tiff:
            return bool(tiff.is_ome)
    except Exception:  # the picture reader has a better message
        return False


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An open TIFF. The library's warnings on opening it are not shown."""
    from tifffile import TiffFile

    with quiet():
        tiff = TiffFile(path)
    with tiff:
        yield tiff


def _series(tiff: Any) -> list[tuple[Any, list[Any]]]:
    """The images of a file with their planes. The library's warnings are not shown."""
    with quiet():
        return [(series, list(series.pages)) for series in tiff.series]


def _described(source: Path, text: str) -> list[Element]:
    """The `Pixels` of each image in the OME-XML of a file. Their sizes are numbers."""
    try:
        found = images(parse(text))
        for pixels in found:
            planes(pixels)
    except (ParseError, ValueError) as error:
        raise ImageFileError(f"{source} has damaged OME-XML ({error}).") from error
    if not found:
        raise ImageFileError(
            f"{source} holds pixels alone, and another file describes them (a companion of OME): give the"
            " file that does."
        )
    return found


def describe(source: Path) -> list[dict[str, Any]]:
    """What the OME-XML of a file says of each image: numbers, and names of what they count."""
    check_complete(source)
    with opened(source) as tiff:
        found = _described(source, tiff.ome_metadata)
    try:
        return list(map(_facts, found))
    except ValueError as error:
        raise ImageFileError(f"{source} has damaged OME-XML ({error}).") from error


def _facts(pixels: Element) -> dict[str, Any]:
    """The sides of a pixel are pairs of a number and a unit."""
    units = {axis: pixels.get(f"PhysicalSize{axis}Unit", "µm") for axis in "XYZ"}
    sides = {axis: pixels.get(f"PhysicalSize{axis}") for axis in units}
    counts = {name: int(pixels.get(f"Size{axis}", 1)) for axis, name in zip("CZT", AXES, strict=True)}
    return {
        "size": tuple(int(pixels.get(f"Size{axis}", 0)) for axis in "XY"),
        "planes": {"all": planes(pixels), **counts},
        "depth": _depth(pixels.get("Type", "unknown")),
        "pixel size": [(float(side), units[axis]) for axis, side in sides.items() if side],
    }


def _depth(name: str) -> str:
    """A readable name of a sample type of OME.

    >>> _depth("uint16"), _depth("float"), _depth("complex")
    ('16-bit', '32-bit float', 'complex')
    """
    known = {"float": "f4", "double": "f8", **{np.dtype(each).name: each for each in TYPES}}
    return depth_name(np.dtype(known[name])) if name in known else name


def prepare_ome_tiff(
    source: Path,
    output: Path,
    model: Model,
    target: TargetSize,
    options: Options | None = None,
    stretch: Stretch | None = None,
    overwrite: bool = False,
) -> OmeScaling:
    """Describes `source`, and checks everything that scaling it to the OME-TIFF `output` needs."""
    options = options or Options()
    check_place(output, overwrite, source)
    check_complete(source)
    with opened(source) as tiff:
        text = tiff.ome_metadata
        counts = [planes(pixels) for pixels in _described(source, text)]
        try:
            series = _series(tiff)
        except Exception as error:  # of a damaged description, any
            raise ImageFileError(f"{source} has OME-XML that does not fit its planes ({error}).") from error
        if [len(pages) for _, pages in series] != counts:
            raise ImageFileError(f"{source} has OME-XML that does not fit its planes.")
        stacks = tuple(_stack(source, one, pages, target) for one, pages in series)
    changes, first = [], 0
    for stack in stacks:
        if options.consistent:
            check_whole(stack.shape, stack.size)
        changes.append(Change(stack.shape, stack.size, first, stack.planes))
        first += stack.planes
    largest = max(stacks, key=lambda stack: math.prod(stack.size))
    held = sum(math.prod(size) for size in (largest.shape, largest.size)) * largest.samples
    plan = make_plan(model, largest.shape, largest.size, options, held=held * largest.dtype.itemsize)
    try:
        description, kept = scaled(text, changes)
    except ValueError as error:
        raise ImageFileError(f"{source} has damaged OME-XML ({error}).") from error
    job = OmeScaling(source, output, model, options, stretch, stacks, description, plan, kept)
    check_disk(output, largest.size, job.disk)
    return job


def _stack(source: Path, series: Any, pages: list[Any], target: TargetSize) -> Stack:
    if not all(pages):
        place = next(i for i, page in enumerate(pages) if not page)
        raise ImageFileError(
            f"{source} has no plane {place + 1} of {len(pages)}: it may be in a file that is not beside it."
        )
    page = pages[0].keyframe
    if page.axes not in ("YX", "YXS", "SYX"):
        raise ImageFileError(f"{source} has planes with the axes {page.axes}: expected rows and columns.")
    dtype = np.dtype(page.dtype).newbyteorder("=")
    if dtype.str[1:] not in TYPES:
        raise ImageFileError(f"{source} holds {dtype} numbers: expected at most 32 bits, or floats.")
    shape = page.imagelength, page.imagewidth
    return Stack(shape, target.for_image(shape), len(pages), page.samplesperpixel, dtype, len(series.levels))


def _plane(source: Path, page: Any) -> NDArray:
    """The samples of a plane, H×W×samples."""
    try:
        with quiet():
            plane: NDArray = page.asarray()
    except Exception as error:  # codecs raise errors of their own
        raise ImageFileError(f"{source} is damaged or cut short ({error}).") from error
    plane = plane.astype(plane.dtype.newbyteorder("="), copy=False)
    if page.axes == "SYX":
        return np.moveaxis(plane, 0, -1)
    return plane if plane.ndim == 3 else plane[..., None]


def _write(writer: Any, plane: NDArray, stack: Stack, page: Any, description: bytes | None) -> None:
    """Writes a plane, and as many levels of a pyramid as the input has."""
    colour = stack.samples >= 3
    grey = "miniswhite" if page.keyframe.photometric == 0 else "minisblack"
    how: dict[str, Any] = {
        "photometric": "rgb" if colour else grey,
        "planarconfig": "contig" if stack.samples > 1 else None,
        "extrasamples": page.keyframe.extrasamples if stack.samples > (3 if colour else 1) else None,
        "compression": "adobe_deflate",
        "predictor": 3 if stack.dtype.kind == "f" else 2,
        "tile": (TILE, TILE) if max(stack.size) > TILE else None,
        "metadata": None,
        "software": False,
        "iccprofile": page.keyframe.tags.valueof(34675),
    }
    levels = min(stack.levels, max(1, int(math.log2(min(stack.size))) + 1))
    for level in range(levels):
        if level:
            plane = _halved(plane)
            how |= {"subfiletype": 1}
        else:
            how |= {"subifds": levels - 1, "description": description, **_resolution(page.keyframe, stack)}
        writer.write(plane if stack.samples > 1 else plane[..., 0], **how)
        for name in ("subifds", "description", "resolution", "resolutionunit"):
            how.pop(name, None)


def _resolution(page: Any, stack: Stack) -> dict[str, Any]:
    """The resolution of a scaled plane, if the plane has one that TIFF can carry."""
    unit = page.tags.valueof(296, default=2)
    if not {282, 283} <= {tag.code for tag in page.tags} or unit not in range(1, 6):
        return {}
    factors = (N / n for n, N in zip(stack.shape[::-1], stack.size[::-1], strict=True))
    across, down = (old * factor for old, factor in zip(page.get_resolution(), factors, strict=True))
    fits = min(across, down) > 1e-6 and max(across, down) < 2**32
    return {"resolution": (across, down), "resolutionunit": unit} if fits else {}


def _halved(plane: NDArray) -> NDArray:
    """Means over 2×2 pixels."""
    H, W, samples = plane.shape
    even = plane[: H // 2 * 2, : W // 2 * 2]
    means = even.reshape(H // 2, 2, W // 2, 2, samples).mean(axis=(1, 3), dtype=np.float64)
    return (np.rint(means) if plane.dtype.kind in "ui" else means).astype(plane.dtype)
