"""Reads a packed field as the page does."""

from __future__ import annotations

import json
import math
import struct

import numpy as np

from thera.field import HeatField
from thera.web.packing import MAGIC


def unpack(data: bytes) -> HeatField:
    """The field in packed bytes, as the page sees it: rounded to half floats."""
    assert data[: len(MAGIC)] == MAGIC
    (length,) = struct.unpack_from("<I", data, len(MAGIC))
    start = len(MAGIC) + 4
    facts = json.loads(data[start : start + length])
    components = np.asarray(facts["components"], np.float64)
    shape = (components.shape[1] + 1, facts["height"], facts["width"], 4)
    assert len(data) == start + length + 2 * math.prod(shape)
    layers = np.frombuffer(data, "<f2", math.prod(shape), start + length).reshape(shape)
    amplitude = layers[1:, ..., :3].transpose(1, 2, 0, 3).astype(np.float32)
    phase = layers[1:, ..., 3].transpose(1, 2, 0).astype(np.float32)
    pixels = layers[0, ..., :3].astype(np.float32)
    return HeatField.from_coefficients(pixels, amplitude, phase, components, float(facts["kappa"]))
