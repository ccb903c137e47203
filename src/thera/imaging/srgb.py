"""Colours as the web takes them: sRGB, whatever profile a picture has, converted window by window."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

from thera.field.grid import Box
from thera.values.bands import Bands
from thera.values.planes import Plane, planes_of
from thera.values.ranges import Range
from thera.values.transfer import LINEAR, SRGB, recoded

from .metadata import NODATA_TAG
from .picture import CHANNELS, Colour, Picture, row_bands

_BYTES = Range(0.0, 255.0)
_MODES: dict[Colour, str] = {"grey": "L", "rgb": "RGB", "cmyk": "CMYK"}


def srgb_planes(picture: Picture, halo: int) -> list[Plane]:
    """What a network that looks `halo` pixels far sees of a picture shown in sRGB: its colours, then its
    alpha if that covers them and is not the same everywhere.

    A profile that cannot be read is ignored, as browsers do, and so is one that changes nothing. Sixteen bits
    become eight where a profile has to be applied, as the conversion knows no more. So does light, of which
    nothing is brighter than white.
    """
    own = picture.planes(halo)
    covers = own[-1].group.alpha
    transform = _transform(picture.metadata.icc, picture.colour)
    light = picture.encoding == LINEAR
    unchanged = transform is None or not _changes(transform, picture.colour)
    if picture.colour != "cmyk" and not light and unchanged:
        return own if covers else own[:1]
    bands = Bands.of_colours("grey" if picture.colour == "grey" else "rgb", alpha=covers)
    span = Range(0.0, 1.0) if light else own[0].span
    samples = SrgbSamples(picture, bands, transform, span, own[-1].span)
    return planes_of(samples, bands, [_BYTES] * len(bands.groups), halo)


def without_nodata(picture: Picture) -> Picture:
    """The picture as it is shown: transparent where all of its colours are the nodata value of its file.

    A pixel that has some of its colours is shown, with 0 for those that it lacks.
    """
    texts = [str(tag.value) for tag in picture.metadata.tiff_tags if tag.code == NODATA_TAG]
    try:
        nodata = float(texts[0].strip("\0 "))
    except (ValueError, IndexError):
        return picture
    if picture.alpha:
        return picture
    H, W, count = picture.samples.shape
    known, dtype = Bands(picture.bands.groups, (nodata,) * count), picture.samples.dtype
    samples, whole = np.empty((H, W, count + 1), dtype), True
    for rows in row_bands(picture.samples):
        valid = known.valid(picture.samples[rows], range(count))
        if valid is None:
            valid = np.ones((1, 1, count), bool)
        whole = whole and bool(valid.all())
        samples[rows, :, :count] = np.where(valid, picture.samples[rows], dtype.type(0))
        seen = np.any(valid, axis=2, keepdims=True)
        samples[rows, :, count:] = seen * int((Range.of_type(dtype) or Range(0, 1)).high)
    return picture if whole else replace(picture, samples=samples, alpha=True)


@dataclass(frozen=True)
class SrgbSamples:
    """The samples of a picture as sRGB bytes: grey or RGB, and its alpha if `bands` has one.

    `span` and `alpha_span` are the ranges of its own samples. Without a `transform`, inks become colours as
    Pillow mixes them.
    """

    picture: Picture
    bands: Bands
    transform: Any
    span: Range
    alpha_span: Range
    dtype = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, int]:
        return self.picture.layout.size

    def read(self, box: Box, bands: Sequence[int]) -> tuple[NDArray, NDArray[np.bool_] | None]:
        top, left, bottom, right = box
        window = self.picture.samples[top:bottom, left:right]
        alpha = None if self.bands.alpha is None else window[..., -1]
        if bands[0] == self.bands.alpha:
            samples = _to_bytes(window[..., -1:], self.alpha_span)
        else:
            colour = self.picture.colour
            window = window[..., : CHANNELS[colour]]
            if self.picture.encoding == LINEAR:
                window = recoded(self.span.normalise(window), LINEAR, SRGB)
            samples = _converted(_to_bytes(window, self.span), colour, self.transform)
            samples = samples[..., 1:2] if colour == "grey" else samples
        return samples, self.bands.valid(samples, bands, alpha)


def _transform(icc: bytes | None, colour: Colour) -> Any:
    """The conversion from a profile to sRGB; None where the profile does not say."""
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(icc or b""))
        return ImageCms.buildTransform(profile, ImageCms.createProfile("sRGB"), _MODES[colour], "RGB")
    except (ImageCms.PyCMSError, OSError):
        return None


def _changes(transform: Any, colour: Colour) -> bool:
    """True if a conversion changes colours by more than two of 255."""
    levels = np.linspace(0, 255, 6).round().astype(np.uint8)
    axes = np.meshgrid(*[levels] * CHANNELS[colour], indexing="ij")
    probe = np.stack(axes, axis=-1).reshape(1, -1, CHANNELS[colour])
    return bool(np.abs(_converted(probe, colour, transform).astype(int) - probe).max() > 2)


def _converted(colours: NDArray[np.uint8], colour: Colour, transform: Any) -> NDArray[np.uint8]:
    """Colours h×w×1, ×3 or ×4 as h×w×3 bytes of sRGB."""
    image = Image.fromarray(colours[..., 0] if colour == "grey" else colours, _MODES[colour])
    if transform is None:
        return np.asarray(image.convert("RGB"))
    return np.asarray(ImageCms.applyTransform(image, transform))


def _to_bytes(samples: NDArray, span: Range) -> NDArray[np.uint8]:
    if samples.dtype == np.uint8:
        return np.ascontiguousarray(samples)
    return _BYTES.restore(span.normalise(samples), np.dtype(np.uint8))
