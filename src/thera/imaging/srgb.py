"""Colours as the web takes them: sRGB, whatever profile a picture has."""

import io
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

from thera.values.ranges import Range

from .picture import CHANNELS, Colour, Picture


def to_srgb(picture: Picture) -> Picture:
    """The picture with its colours in sRGB, which is what the web takes images without a profile to be in.

    A profile that cannot be read is ignored, as browsers do, and so is one that changes nothing. Sixteen bits
    become eight where a profile has to be applied, as the conversion knows no more.
    """
    colour, icc = picture.colour, picture.metadata.icc
    if colour != "cmyk" and (icc is None or not _changes(icc, colour)):
        return picture
    samples = _converted(_to_bytes(picture.samples[..., : CHANNELS[colour]]), icc)
    if samples is None and colour != "cmyk":
        return picture
    if samples is None:
        inks = Image.fromarray(_to_bytes(picture.samples[..., :4]), "CMYK")
        samples = np.asarray(inks.convert("RGB"))
    becomes: Colour = "rgb"
    if colour == "grey":
        samples, becomes = samples[..., 1:2], "grey"
    if picture.alpha:
        samples = np.concatenate([samples, _to_bytes(picture.samples[..., -1:])], axis=2)
    return replace(picture, samples=samples, colour=becomes)


def _changes(icc: bytes, colour: Colour) -> bool:
    """Whether a profile means other colours than sRGB, by more than two of 255."""
    levels = np.linspace(0, 255, 6).round().astype(np.uint8)
    axes = np.meshgrid(*[levels] * CHANNELS[colour], indexing="ij")
    probe = np.stack(axes, axis=-1).reshape(1, -1, CHANNELS[colour])
    found = _converted(probe, icc)
    return found is not None and bool(np.abs(found.astype(int) - probe).max() > 2)


def _converted(colours: NDArray[np.uint8], icc: bytes | None) -> NDArray[np.uint8] | None:
    """Colours of a profile, H×W×1, ×3 or ×4, as sRGB; None where the profile does not say."""
    mode = {1: "L", 3: "RGB", 4: "CMYK"}[colours.shape[2]]
    image = Image.fromarray(colours[..., 0] if mode == "L" else colours, mode)
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(icc or b""))
        found = ImageCms.profileToProfile(image, profile, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError):
        return None
    return None if found is None else np.asarray(found)


def _to_bytes(samples: NDArray) -> NDArray[np.uint8]:
    if samples.dtype == np.uint8:
        return np.ascontiguousarray(samples)
    return Range(0.0, 255.0).restore(Range.of(samples).normalise(samples), np.dtype(np.uint8))
