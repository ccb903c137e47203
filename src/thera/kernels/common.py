"""What several kernels share: the type of their launch settings, and small functions to call in a kernel."""

import os
from typing import NamedTuple

import torch
import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")  # on a CPU, in the tests
MULTIPROCESSORS = 132  # of an H200. It only decides how work is shared out: any number is correct.
SIZES = ["M", "H", "W"]  # image sizes, for `do_not_specialize`: no kernel is compiled for one of them


class Tile(NamedTuple):
    """How a kernel is launched: what a program works on at a time, and what the compiler may use."""

    pixels: int
    channels: int = 0  # or hidden units, or components of the field
    depth: int = 0  # of a matrix product: how much of the summed axis is loaded at a time
    warps: int = 4  # 32 threads each
    stages: int = 1  # of the software pipeline: how many steps of a loop have their loads under way
    registers: int | None = None  # per thread, at most: fewer let more programs share a multiprocessor
    programs: int = 1  # per multiprocessor, in kernels whose programs loop over many tiles

    def launch(self) -> dict[str, int | None]:
        """For kernels in which the compiler chooses the loops that it pipelines."""
        return {"num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers}

    def launch_staged(self) -> dict[str, int]:
        """For kernels that say themselves, by `tl.range(…, num_stages=STAGES)`, which loop is pipelined."""
        return {"num_warps": self.warps, "STAGES": self.stages}


@triton.jit
def sine(z, COSINE: tl.constexpr):
    """sin z or cos z by the GPU's own instruction. Within one turn its error is at most 5e-7."""
    z = z - 6.283185307179586 * tl.floor(z * 0.15915494309189535 + 0.5)
    if INTERPRETED:
        return tl.cos(z) if COSINE else tl.sin(z)
    if COSINE:
        return tl.inline_asm_elementwise(
            "cos.approx.f32 $0, $1;", "=r,r", [z], tl.float32, is_pure=True, pack=1
        )
    return tl.inline_asm_elementwise("sin.approx.f32 $0, $1;", "=r,r", [z], tl.float32, is_pure=True, pack=1)


@triton.jit
def gelu(h, FAST: tl.constexpr):
    """gelu(h) = h·s, and s = (1 + tanh u)/2 with u = √(2/π)(h + 0.044715 h³), which the derivative needs."""
    u = h * (0.7978845608028654 + 0.035677408136300125 * (h * h))
    if FAST:  # one instruction, exact to 11 bits: more than 16-bit formats keep
        tanh = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [u], dtype=tl.float32, is_pure=True, pack=1
        )
        s = 0.5 * tanh + 0.5
    else:
        s = 1 / (1 + tl.exp(-2 * u))
    return h * s, s


@triton.jit
def gelu_slope(h, g, s):
    """gelu'(h) = s + h s (1 - s) · 2 du/dh, with g and s from `gelu`."""
    return s + (g - g * s) * (1.5957691216057308 + 0.21406444881780075 * (h * h))


def fast_gelu(operand: torch.dtype) -> bool:
    """True if the approximate `gelu` is exact enough and can run."""
    return operand != torch.float32 and not INTERPRETED


def matmul_precision(operand: torch.dtype) -> str:
    """`input_precision` of `tl.dot`. float32 follows PyTorch's setting: TF32, or three TF32 products that
    are almost exact. Shorter formats have one way only."""
    if operand != torch.float32 or INTERPRETED:
        return "ieee"
    matmul = torch.backends.cuda.matmul
    tf32 = matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    return "tf32" if tf32 else "tf32x3"
