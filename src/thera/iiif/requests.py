"""What an image request asks for: region, size, rotation, quality and format of the Image API 3.0.

    {identifier}/{region}/{size}/{rotation}/{quality}.{format}

Everything here is arithmetic on whole pixels of the image as `info.json` describes it; nothing is read.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from thera.errors import InvalidInput
from thera.imaging.formats import FORMATS, Format

QUALITIES = ("default", "color", "gray", "bitonal")
IMAGE_FORMATS: dict[str, tuple[Format, str]] = {
    "jpg": (FORMATS["jpeg"], "image/jpeg"),
    "png": (FORMATS["png"], "image/png"),
    "webp": (FORMATS["webp"], "image/webp"),
}

_WHOLE, _DECIMAL = r"([0-9]{1,9})", r"([0-9]{1,9}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})"
_PIXELS = re.compile(",".join([_WHOLE] * 4))
_PERCENT = re.compile("pct:" + ",".join([_DECIMAL] * 4))
_BOX = re.compile(r"([0-9]{0,99}),([0-9]{0,99})")  # any that a float can hold: too large is said as such
_SCALE = re.compile("pct:" + _DECIMAL)
_ROTATION = re.compile("(!?)" + _DECIMAL)


@dataclass(frozen=True)
class Canvas:
    """The image as clients see it: its size, and how many pixels a response may have."""

    width: int
    height: int
    max_area: int

    def largest(self, width: int, height: int, upscaled: bool) -> tuple[int, int]:
        """The size of `max` or `^max` for a region: its own or the canvas's, as far as the area allows."""
        scale = min(self.width / width, self.height / height) if upscaled else 1.0
        return self.confined(width, height, scale)

    def confined(self, width: int, height: int, scale: float) -> tuple[int, int]:
        """A region's size at a scale, or at the largest smaller one that the area allows."""
        if width * height * scale * scale <= self.max_area:
            size = _side(width * scale), _side(height * scale)
            if size[0] * size[1] <= self.max_area:
                return size
        scale = min(scale, math.sqrt(self.max_area / (width * height)))
        return max(1, math.floor(width * scale)), max(1, math.floor(height * scale))


@dataclass(frozen=True)
class ImageRequest:
    """A parsed image request: a region in whole pixels, to be scaled, mirrored, turned and written.

    `region` is (left, top, width, height), `size` the (width, height) it is scaled to before it is turned by
    `angle` degrees clockwise.
    """

    canvas: Canvas
    region: tuple[int, int, int, int]
    size: tuple[int, int]
    mirrored: bool
    angle: float
    quality: str
    format: str

    @property
    def turned_size(self) -> tuple[int, int]:
        """(width, height) of the response: of the box around the turned image."""
        width, height = self.size
        if self.angle % 90 == 0:
            return (width, height) if self.angle % 180 == 0 else (height, width)
        cos, sin = (abs(f(math.radians(self.angle))) for f in (math.cos, math.sin))
        return _rounded(width * cos + height * sin), _rounded(width * sin + height * cos)

    @property
    def canonical(self) -> str:
        """The canonical spelling of this request, from region to format.

        >>> canvas = Canvas(600, 400, 10**7)
        >>> parse("pct:0,0,100,100", "^pct:50", "!90.0", "color.png", canvas, default="color").canonical
        'full/300,200/!90/default.png'
        """
        left, top, width, height = self.region
        whole = self.region == (0, 0, self.canvas.width, self.canvas.height)
        larger = self.size[0] > width or self.size[1] > height
        if self.size == self.canvas.largest(width, height, upscaled=False):
            size = "max"
        elif larger and self.size == self.canvas.largest(width, height, upscaled=True):
            size = "^max"
        else:
            size = f"{'^' * larger}{self.size[0]},{self.size[1]}"
        region = "full" if whole else f"{left},{top},{width},{height}"
        angle = np.format_float_positional(self.angle, trim="-")
        return f"{region}/{size}/{'!' * self.mirrored}{angle}/{self.quality}.{self.format}"


def parse(region: str, size: str, rotation: str, ending: str, canvas: Canvas, default: str) -> ImageRequest:
    """Parses the four parts of an image URI. `default` is the quality that "default" stands for.

    >>> parse("0,0,100,100", "^200,", "0", "default.jpg", Canvas(600, 400, 10**7), default="color").size
    (200, 200)
    >>> parse("full", "700,", "0", "default.jpg", Canvas(600, 400, 10**7), default="color")
    Traceback (most recent call last):
    thera.errors.InvalidInput: The size 700, is larger than the region of 600×400: write ^700, to enlarge it.
    """
    quality, _, form = ending.rpartition(".")
    if form not in IMAGE_FORMATS:
        raise InvalidInput(f"The format {form!r} is not served: ask for {', '.join(IMAGE_FORMATS)}.")
    if quality not in QUALITIES:
        raise InvalidInput(f"The quality {quality!r} is not served: ask for {', '.join(QUALITIES)}.")
    box = parse_region(region, canvas)
    scaled, turned = parse_size(size, box[2], box[3], canvas), parse_rotation(rotation)
    quality = "default" if quality == default else quality
    request = ImageRequest(canvas, box, scaled, *turned, quality, form)
    _check_size(request)
    return request


def parse_region(text: str, canvas: Canvas) -> tuple[int, int, int, int]:
    """(left, top, width, height) of `full`, `square`, `x,y,w,h` or `pct:x,y,w,h`, cut at the image's edges.

    >>> canvas = Canvas(600, 400, 10**7)
    >>> parse_region("square", canvas), parse_region("500,300,200,200", canvas)
    ((100, 0, 400, 400), (500, 300, 100, 100))
    """
    W, H = canvas.width, canvas.height
    if text == "full":
        return 0, 0, W, H
    if text == "square":
        side = min(W, H)
        return (W - side) // 2, (H - side) // 2, side, side
    if found := _PIXELS.fullmatch(text):
        x, y, w, h = map(int, found.groups())
    elif found := _PERCENT.fullmatch(text):
        px, py, pw, ph = (float(part) / 100 for part in found.groups())
        x, y = _rounded(px * W), _rounded(py * H)
        w, h = _rounded((px + pw) * W) - x, _rounded((py + ph) * H) - y
    else:
        raise InvalidInput(f"The region {text!r} is none: write full, square, x,y,w,h or pct:x,y,w,h.")
    w, h = min(w, W - x), min(h, H - y)
    if w < 1 or h < 1:
        raise InvalidInput(f"The region {text} has no pixel of the image, which is {W}×{H}.")
    return x, y, w, h


def parse_size(text: str, width: int, height: int, canvas: Canvas) -> tuple[int, int]:
    """(width, height) that a region of this width and height is scaled to.

    >>> parse_size("!300,300", 600, 400, Canvas(600, 400, 10**7))
    (300, 200)
    """
    upscaled, form = text.startswith("^"), text.removeprefix("^")
    confined = form.startswith("!")
    if form == "max":
        return canvas.largest(width, height, upscaled)
    if found := _SCALE.fullmatch(form):
        scale = float(found[1]) / 100
        size = _rounded(width * scale), _rounded(height * scale)
        larger = scale > 1
    elif (found := _BOX.fullmatch(form.removeprefix("!"))) and any(found.groups()):
        w, h = (int(part) if part else None for part in found.groups())
        if confined and (w is None or h is None):
            raise InvalidInput(f"The size {text!r} lacks a number: write !w,h with both.")
        if 0 in (w, h):
            raise InvalidInput(f"The size {text} has no pixel: ask for a larger one.")
        scales = [side / own for side, own in ((w, width), (h, height)) if side is not None]
        scale = min(scales)
        larger = max(scales) > 1 if not confined else scale > 1
        if confined:
            size = canvas.confined(width, height, scale)
        else:
            size = w or _side(width * scale), h or _side(height * scale)
    else:
        raise InvalidInput(
            f"The size {text!r} is none: write max, w, or ,h or w,h or !w,h or pct:n, after ^ to enlarge."
        )
    if larger and not upscaled:
        raise InvalidInput(
            f"The size {text} is larger than the region of {width}×{height}: write ^{text} to enlarge it."
        )
    return size


def parse_rotation(text: str) -> tuple[bool, float]:
    """True if the image is mirrored, and the degrees that it is turned by after that.

    >>> parse_rotation("!22.5")
    (True, 22.5)
    """
    found = _ROTATION.fullmatch(text)
    if found is None or float(found[2]) > 360:
        raise InvalidInput(f"The rotation {text!r} is none: write degrees from 0 to 360, with ! to mirror.")
    return bool(found[1]), float(found[2]) % 360


def _check_size(request: ImageRequest) -> None:
    """Refuses images without pixels, with more than a response may have, or than the format holds."""
    form = IMAGE_FORMATS[request.format][0]
    most = request.canvas.max_area
    for width, height in (request.size, request.turned_size):
        if width < 1 or height < 1:
            raise InvalidInput(
                f"The size comes to {width}×{height}, which has no pixel: ask for a larger one."
            )
        if width * height > most:
            raise InvalidInput(
                f"The image would be {width:,}×{height:,}, and {most:,} pixels are sent at once: ask for a"
                " smaller size, or for regions."
            )
        if max(width, height) > form.max_side:
            raise InvalidInput(
                f"The image would be {width:,}×{height:,}, and {request.format} holds {form.max_side:,} a"
                " side: ask for png."
            )


def _side(value: float) -> int:
    """A side computed from the other one: at least one pixel."""
    return max(1, _rounded(value))


def _rounded(value: float) -> int:
    """The nearest whole number, halves up, as clients compute sizes."""
    return math.floor(value + 0.5)
