"""A Triton kernel for rendering on a GPU: from features to the field's values in one pass.

The coefficients of a field are 2,048 numbers a pixel, made of 64 or 128 and summed to a few dozen. Here they
never leave the chip: a program owns some cells, and for one chunk of components after the other it computes
their phases and amplitudes, the sines and cosines, and adds the products with the table to its sums. The
plain form beside which this is tested is `thera.field.head.Head.oscillations`.

Products are of TF32 numbers, which hold eleven binary digits. Phases take three of them and lose nothing.
"""

# mypy: disallow-untyped-defs=False
# A kernel's arguments have no types; those in capitals are compile-time constants, as Triton writes them.

import os
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
CHANNELS = 3
CELLS, WARPS, STAGES = 64, 4, 2
CHUNK = {64: 32, 128: 16}  # components at a time, by the width of the features: what fits a multiprocessor
MOST_OFFSETS = 64  # at a time; more are several programs' work
MULTIPROCESSORS = 132  # an H200's: how many programs a small image is cut into; any number is correct


@triton.jit
def _sine(z, COSINE: tl.constexpr):
    """The hardware's, after reduction to one turn, where it is right to 5e-7."""
    z = z - 6.283185307179586 * tl.floor(z * 0.15915494309189535 + 0.5)
    if INTERPRETED:
        return tl.cos(z) if COSINE else tl.sin(z)
    if COSINE:
        return tl.inline_asm_elementwise(
            "cos.approx.f32 $0, $1;", "=r,r", [z], tl.float32, is_pure=True, pack=1
        )
    return tl.inline_asm_elementwise("sin.approx.f32 $0, $1;", "=r,r", [z], tl.float32, is_pure=True, pack=1)


@triton.jit
def _upper(x):
    """The part of x that TF32 holds, as `upper` gives it."""
    return ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _column(weight, k, C: tl.constexpr):
    """C×BK of a weight that is stored by output."""
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
    """The sum over STEPS chunks of BK components, of BM cells at BO offsets."""
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
        # All but the product of the lower parts, which is less than float32's last digit.
        w = _column(weight, 3 * K + k, C)
        phase = tl.dot(lower, w, input_precision="tf32")
        phase = tl.dot(upper, _column(rest, k, C), phase, input_precision="tf32")
        phase = tl.dot(upper, w, phase, input_precision="tf32") + tl.load(bias + 3 * K + k)[None, :]
        if SHIFTED:
            phase += tl.load(down + (at // W)[:, None] * K + k[None, :], real[:, None], 0.0)
            phase += tl.load(along + (at % W)[:, None] * K + k[None, :], real[:, None], 0.0)
        sin, cos = _sine(phase, False), _sine(phase, True)
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
    """The last layer as the kernel reads it: its outputs channel by channel, then the phases."""

    weight: Tensor  # (4c, C), what TF32 holds of it
    rest: Tensor  # (c, C), what is left of the phases'
    bias: Tensor  # (4c)

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor) -> "LastLayer":
        """Of a weight (C, 4c) and a bias (4c) in that order."""
        by_output = weight.T.contiguous()
        first = upper(by_output)
        phases = slice(len(bias) - len(bias) // (CHANNELS + 1), None)
        return cls(first, by_output[phases] - first[phases], bias.contiguous())

    @staticmethod
    def fits(width: int, components: int, outputs: int) -> bool:
        """Whether the kernel is made for so many features, components and outputs."""
        return width in CHUNK and components % CHUNK[width] == 0 and outputs == (CHANNELS + 1) * components


def upper(x: Tensor) -> Tensor:
    """x rounded to TF32: eleven binary digits."""
    return (x.view(torch.int32) + 4096 & -8192).view(torch.float32)


def oscillations(
    layer: LastLayer, features: Tensor, shift: tuple[Tensor, Tensor] | None, table: Tensor
) -> Tensor:
    """Φ - I of h×w cells at the table's offsets, (h·w, 3, offsets).

    features (h, w, C); shift (h, c) and (w, c), added to the phases; table (2c, offsets); all contiguous.
    """
    h, w, C = features.shape
    K, offsets = len(table) // 2, table.shape[1]
    BK, BO = CHUNK[C], max(16, min(MOST_OFFSETS, triton.next_power_of_2(offsets)))
    tiles = triton.cdiv(h * w, CELLS), triton.cdiv(offsets, BO)
    # Few cells leave most of a GPU idle, unless several programs share their components.
    shares = 1
    while K // BK % (2 * shares) == 0 and 2 * shares * tiles[0] * tiles[1] <= MULTIPROCESSORS:
        shares *= 2
    out = features.new_empty(shares, h * w, CHANNELS, offsets)
    down, along = (None, None) if shift is None else shift
    with torch.cuda.device_of(features):
        _oscillations[(*tiles, shares)](
            features, *layer, down, along, table, out, h * w, w, offsets,
            C=C, K=K, SHIFTED=shift is not None, STEPS=K // BK // shares, BM=CELLS, BK=BK, BO=BO,
            num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
    return out[0] if shares == 1 else out.sum(0)
