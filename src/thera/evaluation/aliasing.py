"""Aliasing over continuous scale, and equivariance: does a turned or shifted picture give a turned or shifted
result?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.evaluation.figures import zone_plate
from thera.evaluation.methods import Method
from thera.evaluation.metrics import psnr_rgb
from thera.evaluation.protocol import Upscaler, cut, unit
from thera.evaluation.records import Record
from thera.evaluation.resize import imresize
from thera.evaluation.runner import checksum
from thera.evaluation.tables import markdown_grid
from thera.field.psf import to_numpy

REDUCTIONS = (0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
ENLARGEMENTS = (1.5, 2.0, 2.7, 4.0, 6.0, 8.0)
PLATE_CONTRAST = math.sqrt(1 / 8)  # RMS of a zone plate between 0 and 1
EQUIVARIANCE_SCALE = 4
BORDER = 16  # output pixels left out on each side, where padding differs


def folded_contrast(upscale: Upscaler, scale: float, side: int = 0) -> float:
    """What a method shows of a zone plate that is not in it: RMS contrast over that of the plate.

    Made smaller: what is left where the plate is finer than the output can show. All of it is folded from
    above the output's Nyquist frequency. Made larger: what the output has above the input's Nyquist
    frequency, where the plate has nothing.
    """
    side = side or (256 if scale < 1 else 64)
    image, size = zone_plate(side), round(side * scale)
    output = to_numpy(upscale(image, (size, size)))[..., 0] - 0.5
    if scale > 1:
        window = np.hanning(size)[:, None] * np.hanning(size)
        spectrum = np.abs(np.fft.fft2(output * window)) ** 2
        frequency = np.abs(np.fft.fftfreq(size)) * size / side  # in cycles per input pixel
        beyond = np.maximum(frequency[:, None], frequency) > 1.15 / 2
        energy = spectrum[beyond].sum() / size**2 / (window**2).sum()
        return float(math.sqrt(energy) / PLATE_CONTRAST)
    at = np.abs((np.arange(size) + 0.5) * side / size - side / 2)  # input pixels from the middle
    finest = np.maximum(at[:, None], at)  # of both axes; at side / 2 it is the input's Nyquist frequency
    beyond = finest > 1.15 * scale * side / 2
    return float(np.sqrt(np.mean(output[beyond] ** 2)) / PLATE_CONTRAST)


def turned(upscale: Upscaler, picture: NDArray[np.uint8]) -> float:
    """PSNR in dB between the result of a picture turned by 90° and the turned result."""
    image = unit(picture)
    size = (image.shape[0] * EQUIVARIANCE_SCALE, image.shape[1] * EQUIVARIANCE_SCALE)
    plain = to_numpy(upscale(image, size))
    other = to_numpy(upscale(np.ascontiguousarray(np.rot90(image)), size[::-1]))
    return psnr_rgb(cut(np.rot90(plain), BORDER), cut(other, BORDER))


def shifted(upscale: Upscaler, picture: NDArray[np.uint8]) -> float:
    """PSNR in dB between the result of a picture shifted by half a pixel and the shifted result.

    `picture` has twice the resolution: it is halved from its first and from its second column on.
    """
    height, width = (n // 2 - 1 for n in picture.shape[:2])
    halves = [imresize(picture[: 2 * height, i : i + 2 * width], (height, width)) for i in (0, 1)]
    size = (height * EQUIVARIANCE_SCALE, width * EQUIVARIANCE_SCALE)
    plain, other = (to_numpy(upscale(unit(half), size)) for half in halves)
    moved = EQUIVARIANCE_SCALE // 2
    return psnr_rgb(cut(plain[:, moved:], BORDER), cut(other[:, :-moved], BORDER))


def measure(
    methods: Sequence[Method],
    picture: NDArray[np.uint8],
    stored: Sequence[Record] = (),
    scales: Sequence[float] = (*REDUCTIONS, *ENLARGEMENTS),
) -> list[Record]:
    """One record for each method: its aliasing at each scale, and both equivariances on the picture.

    The picture is halved first, so it needs 48 pixels a side. What `stored` has of the same picture and the
    same scales is kept; only methods that are not there, or with other weights, are measured.
    """
    height, width = (n // 2 * 2 for n in picture.shape[:2])
    if min(height, width) < 48:
        raise InvalidInput(
            f"A picture of {width}×{height} pixels is too small: give one of 48 a side or more."
        )
    half = imresize(picture[:height, :width], (height // 2, width // 2))
    pixels, columns = checksum(picture), [f"{scale:g}" for scale in scales]
    alike = [r for r in stored if r.get("pixels") == pixels and list(r["aliasing"]) == columns]
    found = {record["method"]: record for record in alike}
    for method in methods:
        if found.get(method.name, {}).get("identity") == method.identity:
            continue
        found[method.name] = {
            "method": method.name,
            "identity": method.identity,
            "pixels": pixels,
            "aliasing": {
                column: round(folded_contrast(method.upscale, scale), 4)
                for column, scale in zip(columns, scales, strict=True)
            },
            "turn": _finite(turned(method.upscale, half)),
            "shift": _finite(shifted(method.upscale, picture)),
        }
    return list(found.values())


def _finite(decibels: float) -> float | None:
    """For JSON: None stands for no difference at all."""
    return None if math.isinf(decibels) else round(decibels, 2)


def aliasing_markdown(records: Sequence[Record]) -> str:
    """A Markdown table of aliasing and equivariance, a row for each method."""
    scales = list(records[0]["aliasing"])
    header = ["", *(f"×{scale}" for scale in scales), "turn, dB", "shift, dB"]
    rows = []
    for record in records:
        cells = [f"{record['aliasing'][scale]:.3f}" for scale in scales]
        dB = ["identical" if record[key] is None else f"{record[key]:.1f}" for key in ("turn", "shift")]
        rows.append([record["method"], *cells, *dB])
    return (
        "Contrast that a method shows of a zone plate and that is not in it, as a share of the plate's: "
        "below ×1 what folds from above the output's Nyquist frequency, above ×1 what is beyond the input's. "
        "Lower is better. Then two PSNRs at ×4: between the result of a picture turned by 90° and the turned "
        "result, and the same for a shift by half an input pixel. Higher is better. One pass each.\n\n"
        f"{markdown_grid(header, rows)}\n\n"
        "Detail that a network adds while it enlarges counts above ×1, too. "
        "Made by `thera figures alias-scale`, which also draws the curve below."
    )
