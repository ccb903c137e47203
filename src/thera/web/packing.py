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

import numpy as np

from thera.errors import InvalidInput
from thera.field import HeatField
from thera.field.grid import Box
from thera.field.head import Head
from thera.field.psf import to_numpy

MAGIC = b"THERAFLD"
#: A shader sums this many sinusoids at every pixel of the screen; beyond it, a picture is drawn as tiles.
MOST_COMPONENTS = 64
#: Cells whose coefficients are computed at once.
_BLOCK = 1 << 14


def pack(field: HeatField) -> bytes:
    """The field as bytes for the viewer's `field.js`.

    >>> field = HeatField(np.ones((2, 3, 3)), np.zeros((2, 3, 4)), None, None, np.ones((2, 1)), 0.03)
    >>> pack(field)[:8]
    b'THERAFLD'
    """
    if field.channels != 3 or field.components.shape[1] > MOST_COMPONENTS:
        raise InvalidInput(
            f"A field of {field.components.shape[1]} components and {field.channels} channels cannot be drawn"
            f" by a page, which takes 3 channels and {MOST_COMPONENTS} components at most: use an Air model."
        )
    packed = PackedField((0, 0, *field.shape), field.head)
    packed.put(field, (0, 0))
    return bytes(packed.data)


class PackedField:
    """The packed field of a box of cells, filled in part by part."""

    def __init__(self, box: Box, head: Head) -> None:
        self.origin, self._head = box[:2], head
        H, W = box[2] - box[0], box[3] - box[1]
        facts = {"width": W, "height": H, "components": head.components.tolist(), "kappa": head.kappa}
        header = json.dumps(facts).encode()
        header += b" " * (-(len(MAGIC) + 4 + len(header)) % 16)
        start = MAGIC + struct.pack("<I", len(header)) + header
        shape = (head.components.shape[1] + 1, H, W, 4)
        array = np.empty(len(start) + 2 * math.prod(shape), np.uint8)
        array[: len(start)] = np.frombuffer(start, np.uint8)
        self._layers = array[len(start) :].view("<f2").reshape(shape)
        self.data = memoryview(array).toreadonly()  # type: ignore[arg-type]

    def put(self, field: HeatField, first: tuple[int, int]) -> None:
        """Packs the field of some of the cells, the first of which is `first` of the picture."""
        top, left = (at - start for at, start in zip(first, self.origin, strict=True))
        h, w = field.shape
        features, rows = field.features, max(1, _BLOCK // w)
        layers = self._layers[:, top : top + h, left : left + w]
        layers[0, ..., :3], layers[0, ..., 3] = to_numpy(field.pixels), 1
        for start in range(0, h, rows):
            part = slice(start, min(start + rows, h))
            flat = field.namespace.reshape(features[part, :, :], (-1, features.shape[2]))
            amplitude, phase = (to_numpy(each) for each in self._head.coefficients(flat))
            shape = (part.stop - start, w)
            layers[1:, part, :, :3] = np.moveaxis(amplitude.reshape(*shape, 3, -1), -1, 0)
            layers[1:, part, :, 3] = np.moveaxis(
                (phase - 2 * np.pi * np.round(phase / (2 * np.pi))).reshape(*shape, -1), -1, 0
            )
