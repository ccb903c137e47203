"""A field as a browser's GPU reads it: half floats, one layer of a texture for each component.

| bytes | what |
| --- | --- |
| 8 | `MAGIC` |
| 4 | n, the length of the header, little-endian |
| n | JSON: `width`, `height`, `components` (2×c), `kappa`; padded so that what follows starts at 16·k |
| (c + 1)·H·W·8 | float16, little-endian, (c + 1)×H×W×4: the pixels (r, g, b, 1), then of each component the \
amplitudes and the phase (aᵣ, a_g, a_b, φ), φ in [-π, π] |

Phases are kept apart from the amplitudes because an angle of at most π loses no more than 2⁻¹⁰ to a half
float, whatever its amplitude. What all of it costs is measured in the tests: below 0.3/255.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator

import numpy as np

from thera.errors import FieldFileError, InvalidInput
from thera.field import HeatField
from thera.field.psf import to_numpy

MAGIC = b"THERAFLD"
#: A shader sums this many sinusoids at every pixel of the screen; beyond it, a picture is drawn as tiles.
MOST_COMPONENTS = 64
#: Cells whose coefficients are computed at once.
_BLOCK = 1 << 14


def packable(field: HeatField) -> bool:
    """Whether a page can evaluate this field itself: of three colours and few components, as Air's are."""
    return field.channels == 3 and field.components.shape[1] <= MOST_COMPONENTS


def packed_bytes(shape: tuple[int, int], components: int) -> int:
    """About how large `pack` makes a field of H×W cells.

    >>> packed_bytes((256, 256), 32)
    17301504
    """
    return 8 * (components + 1) * shape[0] * shape[1]


def pack(field: HeatField) -> bytes:
    """The field as bytes for `page/field.js`.

    >>> field = HeatField(np.ones((2, 3, 3)), np.zeros((2, 3, 4)), None, None, np.ones((2, 1)), 0.03)
    >>> unpack(pack(field))
    HeatField(2×3×3, 1 components, κ=0.03, numpy on cpu)
    """
    if not packable(field):
        raise InvalidInput(
            f"A field of {field.components.shape[1]} components and {field.channels} channels cannot be drawn"
            f" by a page, which takes 3 channels and {MOST_COMPONENTS} components at most: use an Air model."
        )
    (H, W), c = field.shape, field.components.shape[1]
    layers = np.ones((c + 1, H * W, 4), "<f2")
    layers[0, :, :3] = to_numpy(field.pixels).reshape(H * W, 3)
    features = field.namespace.reshape(field.features, (H * W, -1))
    for start in range(0, H * W, _BLOCK):
        block = slice(start, start + _BLOCK)
        amplitude, phase = (to_numpy(part) for part in field.coefficients(features[block, :]))
        layers[1:, block, :3] = amplitude.transpose(2, 0, 1)
        layers[1:, block, 3] = (phase - 2 * np.pi * np.round(phase / (2 * np.pi))).T
    return b"".join([*_header(field), layers.tobytes()])


def _header(field: HeatField) -> Iterator[bytes]:
    H, W = field.shape
    facts = {"width": W, "height": H, "components": field.components.tolist(), "kappa": field.kappa}
    header = json.dumps(facts).encode()
    header += b" " * (-(len(MAGIC) + 4 + len(header)) % 16)
    yield MAGIC
    yield struct.pack("<I", len(header))
    yield header


def unpack(data: bytes) -> HeatField:
    """The field in packed bytes, as the page sees it: rounded to half floats."""
    try:
        if data[: len(MAGIC)] != MAGIC:
            raise ValueError("no packed field")
        (length,) = struct.unpack_from("<I", data, len(MAGIC))
        start = len(MAGIC) + 4
        facts = json.loads(data[start : start + length])
        components = np.asarray(facts["components"], np.float64)
        shape = (components.shape[1] + 1, facts["height"], facts["width"], 4)
        layers = np.frombuffer(data, "<f2", math.prod(shape), start + length).reshape(shape)
        kappa = float(facts["kappa"])
    except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        raise FieldFileError(
            "These bytes are no packed field or are cut short: pack the field again."
        ) from error
    amplitude = layers[1:, ..., :3].transpose(1, 2, 0, 3).astype(np.float32)
    phase = layers[1:, ..., 3].transpose(1, 2, 0).astype(np.float32)
    pixels = layers[0, ..., :3].astype(np.float32)
    return HeatField.from_coefficients(pixels, amplitude, phase, components, kappa)
