"""Rendering: from features to the field's values in one pass.

A pixel has 64 or 128 features, up to 2,048 field coefficients and a few dozen output values. The coefficients
never leave the chip here: a program takes some cells and, for one chunk of components after another, computes
their phases and amplitudes, then sines and cosines, and adds the products with the table to its sums.

Matrix products are in TF32, which keeps eleven binary digits. Phases are computed from three such products,
which loses nothing. The plain form is `thera.field.head.Head.oscillations`.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from thera.kernels.available import can_run_large_kernels
from thera.kernels.common import MULTIPROCESSORS, Tile, sine

CHANNELS = 3
TILE = Tile(pixels=64, warps=4, stages=2)
SMALL_TILE = Tile(pixels=32, warps=4, stages=2)  # where shared memory is small
CHUNK = {64: 32, 128: 16}  # components at a time, by the number of features: what fits a multiprocessor
MOST_OFFSETS = 64  # of the table, that one program takes


@triton.jit
def _upper(x):
    """x rounded to TF32, as `upper` does it."""
    return ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _column(weight, k, C: tl.constexpr):
    """C×BK: the weights of outputs k. They are stored output by output."""
    return tl.load(weight + k[None, :] * C + tl.arange(0, C)[:, None])


@triton.jit
def _amplitude(x, weight, bias, k, C: tl.constexpr):
    return tl.dot(x, _column(weight, k, C), input_precision="tf32") + tl.load(bias + k)[None, :]


@triton.jit(do_not_specialize=["P", "W", "OFFSETS"])
def _oscillations(
    features, weight, rest, bias, down, along, table, out, P, W, OFFSETS,
    C: tl.constexpr, K: tl.constexpr, SHIFTED: tl.constexpr, STEPS: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr, BO: tl.constexpr,
):  # fmt: skip
    """The sum over STEPS chunks of BK components, for BM cells at BO offsets."""
    cell = tl.program_id(0) * BM + tl.arange(0, BM)
    real = cell < P
    at = cell.to(tl.int64)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    x = tl.load(features + at[:, None] * C + tl.arange(0, C)[None, :], real[:, None], 0.0)
    upper = _upper(x)
    lower = x - upper
    y0 = tl.zeros((BM, BO), tl.float32)
    y1 = tl.zeros((BM, BO), tl.float32)
    y2 = tl.zeros((BM, BO), tl.float32)
    for step in range(STEPS):
        k = (tl.program_id(2) * STEPS + step) * BK + tl.arange(0, BK)
        # (upper + lower)·(w + rest) but for lower·rest, which is below the last digit of float32.
        w = _column(weight, 3 * K + k, C)
        phase = tl.dot(lower, w, input_precision="tf32")
        phase = tl.dot(upper, _column(rest, k, C), phase, input_precision="tf32")
        phase = tl.dot(upper, w, phase, input_precision="tf32") + tl.load(bias + 3 * K + k)[None, :]
        if SHIFTED:
            phase += tl.load(down + (at // W)[:, None] * K + k[None, :], real[:, None], 0.0)
            phase += tl.load(along + (at % W)[:, None] * K + k[None, :], real[:, None], 0.0)
        sin, cos = sine(phase, False), sine(phase, True)
        entry = table + k[:, None].to(tl.int64) * OFFSETS + o[None, :]
        with_cos = _upper(tl.load(entry, o[None, :] < OFFSETS, 0.0))
        with_sin = _upper(tl.load(entry + K * OFFSETS, o[None, :] < OFFSETS, 0.0))
        a = _amplitude(upper, weight, bias, k, C)
        y0 = tl.dot(a * cos, with_cos, y0, input_precision="tf32")
        y0 = tl.dot(a * sin, with_sin, y0, input_precision="tf32")
        a = _amplitude(upper, weight, bias, K + k, C)
        y1 = tl.dot(a * cos, with_cos, y1, input_precision="tf32")
        y1 = tl.dot(a * sin, with_sin, y1, input_precision="tf32")
        a = _amplitude(upper, weight, bias, 2 * K + k, C)
        y2 = tl.dot(a * cos, with_cos, y2, input_precision="tf32")
        y2 = tl.dot(a * sin, with_sin, y2, input_precision="tf32")
    row = tl.program_id(2).to(tl.int64) * P + at
    to = out + row[:, None] * (3 * OFFSETS) + o[None, :]
    kept = real[:, None] & (o[None, :] < OFFSETS)
    tl.store(to, y0, kept)
    tl.store(to + OFFSETS, y1, kept)
    tl.store(to + 2 * OFFSETS, y2, kept)


class LastLayer(NamedTuple):
    """The last layer as the kernel reads it: the amplitudes channel by channel, then the phases."""

    weight: Tensor  # (4c, C), rounded to TF32
    rest: Tensor  # (c, C): what the rounding took from the weights of the phases
    bias: Tensor  # (4c)

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor) -> "LastLayer":
        """From a weight (C, 4c) and a bias (4c) in the same order."""
        by_output = weight.T.contiguous()
        first = upper(by_output)
        phases = slice(len(bias) - len(bias) // (CHANNELS + 1), None)
        return cls(first, by_output[phases] - first[phases], bias.contiguous())

    @staticmethod
    def fits(width: int, components: int, outputs: int) -> bool:
        """True if the kernel can take this number of features, components and outputs."""
        return width in CHUNK and components % CHUNK[width] == 0 and outputs == (CHANNELS + 1) * components


def upper(x: Tensor) -> Tensor:
    """x rounded to TF32, which drops the last 13 bits of float32."""
    return (x.view(torch.int32) + 4096 & -8192).view(torch.float32)


def oscillations(
    layer: LastLayer, features: Tensor, shift: tuple[Tensor, Tensor] | None, table: Tensor
) -> Tensor:
    """Φ - I of h×w cells at the offsets of the table: (h·w, 3, offsets).

    features: (h, w, C); shift: (h, c) and (w, c), to add to the phases; table: (2c, offsets); all contiguous.
    """
    h, w, C = features.shape
    K, offsets = len(table) // 2, table.shape[1]
    BK, BO = CHUNK[C], max(16, min(MOST_OFFSETS, triton.next_power_of_2(offsets)))
    tile = TILE if can_run_large_kernels() else SMALL_TILE
    tiles = triton.cdiv(h * w, tile.pixels), triton.cdiv(offsets, BO)
    # With few cells, several programs share the components of each: otherwise most of the GPU is idle.
    shares = 1
    while K // BK % (2 * shares) == 0 and 2 * shares * tiles[0] * tiles[1] <= MULTIPROCESSORS:
        shares *= 2
    out = features.new_empty(shares, h * w, CHANNELS, offsets)
    down, along = (None, None) if shift is None else shift
    with torch.cuda.device_of(features):
        _oscillations[(*tiles, shares)](
            features, *layer, down, along, table, out, h * w, w, offsets,
            C=C, K=K, SHIFTED=shift is not None, STEPS=K // BK // shares,
            BM=tile.pixels, BK=BK, BO=BO, **tile.launch(),
        )  # fmt: skip
    return out[0] if shares == 1 else out.sum(0)
