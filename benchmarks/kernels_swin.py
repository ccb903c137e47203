"""Times of the Swin layer's kernels on this GPU, and of the whole layer.

    python benchmarks/kernels_swin.py [--only passes tiles layers]

passes: µs of each kernel and each matrix product of one layer, beside the time that moving its bytes takes at
BANDWIDTH. tiles: µs of each kernel with several tiles. The fastest is printed below each: write it into the
kernel's file. layers: µs of one training step of a layer, with the kernels and compiled from the plain form.
All of it takes a minute and a half, mostly for compilation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from harness import Setting, fastest, microseconds, run

from thera.kernels.swin import attention, mlp, norm
from thera.kernels.swin import layer as kernels
from thera.networks import swinir
from thera.networks.swinir import ALIGNED_WIDTH as D

N, H, W = 64, 48, 48  # one batch of training
M = N * H * W
BANDWIDTH = 4.3e6  # bytes per µs: what a large copy reaches on an H200
TILES = {  # what differs from the present tile
    "expand": (
        mlp,
        "EXPAND",
        [
            {"stages": 3},
            {"pixels": 64, "warps": 4, "registers": None},
            {"channels": 64, "warps": 4, "stages": 3, "registers": None},
        ],
    ),
    "expand backward": (
        mlp,
        "EXPAND_BACKWARD",
        [{"stages": 3}, {"pixels": 64, "warps": 4}, {"pixels": 64, "warps": 4, "stages": 3}],
    ),
    "proj product, sum and norm": (
        norm,
        "SUM_NORM",
        [{"stages": 2}, {"depth": 32}, {"depth": 32, "stages": 4}],
    ),
    "attention": (
        attention,
        "ATTENTION",
        [{"stages": 2}, {"stages": 4, "registers": 128}, {"programs": 5, "registers": 96}],
    ),
    "attention backward": (
        attention,
        "ATTENTION_BACKWARD",
        [{"stages": 2}, {"programs": 2, "registers": None}, {"stages": 4}],
    ),
    "norm1 backward": (norm, "NORM", [{"pixels": pixels} for pixels in (4, 8, 32)]),
}


def passes(shift: int = swinir.SHIFT) -> dict[str, tuple[Callable[[], object], float]]:
    """Each pass of a layer's training step, forward and backward, and the bytes that it must move."""
    layer = swinir.SwinLayer(shift).cuda()
    p = layer.kernel_parameters()
    x = torch.randn(N, H, W, swinir.WIDTH, device="cuda", dtype=torch.bfloat16)
    x = swinir.fit(x, N, H, W, D)
    keep = torch.ones(2, N, device="cuda")
    with torch.no_grad():
        out, s = kernels.forward(x, keep, shift, layer.norm1.eps, p.table, kernels.fold(p, x.dtype))
    x, g, w = x.view(M, -1), torch.randn_like(out).view(M, -1), s.weights
    wide, qkv, one = torch.randn_like(s.hidden), torch.randn_like(s.qkv), 2 * M * D
    scratch, gposition = torch.zeros_like(g), torch.randn(6, 64, 64, device="cuda")
    return {
        "fold": (lambda: kernels.fold(p, torch.bfloat16), 0),
        "norm": (lambda: kernels.norm(x, None, 1e-5), 2 * one),
        "qkv product": (lambda: s.unit1 @ w.qkv.T, 4 * one),
        "attention": (lambda: kernels.attention(s.qkv, p.table, keep[0], shift, H, W), 4 * one),
        "proj product, sum and norm": (lambda: kernels.add_and_norm(x, s.attended, w.proj, 1e-5), 4 * one),
        "expand": (lambda: kernels.expand(s.unit2, w.expand, keep[1], H * W), 5 * one),
        "project product": (lambda: scratch.addmm_(s.activated, w.project.T), 4 * one),
        "∂project product": (lambda: g.T @ s.activated, 3 * one),
        "expand backward": (lambda: kernels.expand_backward(g, w.project, s.hidden, keep[1], H * W), 5 * one),
        "∂expand product": (lambda: wide.T @ s.unit2, 3 * one),
        "∂unit2 product": (lambda: wide @ w.expand, 3 * one),
        "norm2 backward": (
            lambda: kernels.norm_backward(scratch, s.unit2, s.rstd2, swinir.WIDTH, g),
            4 * one,
        ),
        "∂proj product": (lambda: g.T @ s.attended, 2 * one),
        "∂attended product": (lambda: g @ w.proj, 2 * one),
        "attention backward": (
            lambda: kernels.attention_backward(g, s.qkv, s.logsum, p.table, keep[0], shift, H, W),
            7 * one,
        ),
        "∂qkv product": (lambda: qkv.T @ s.unit1, 4 * one),
        "∂unit1 product": (lambda: qkv @ w.qkv, 4 * one),
        "norm1 backward": (
            lambda: kernels.norm_backward(scratch, s.unit1, s.rstd1, swinir.WIDTH, g),
            4 * one,
        ),
        "unfold": (lambda: kernels.unfold(p, w, gposition), 0),
    }


def show_passes() -> None:
    total = 0.0
    for name, (call, size) in passes().items():
        time = microseconds(call)
        total += time
        print(f"| {name} | {time:.0f} | {size / BANDWIDTH:.0f} |", flush=True)
    print(f"| all | {total:.0f} | |")


def show_tiles() -> None:
    every = {name: call for name, (call, _) in passes().items()}
    for name, (module, constant, changes) in TILES.items():
        present = getattr(module, constant)
        tiles = [present, *(present._replace(**change) for change in changes)]
        fastest(name, every[name], [[Setting(module, constant, tile)] for tile in tiles])


def show_layers() -> None:
    keep = torch.ones(2, N, 1, 1, 1, device="cuda")
    mask = swinir.shift_mask(H, W, keep.device)
    found = swinir.TRITON
    for name, fused, shifts in (("fused", found, (0, swinir.SHIFT)), ("compiled", False, (swinir.SHIFT,))):
        swinir.TRITON = fused
        for shift in shifts:
            layer = swinir.SwinLayer(shift).cuda()
            layer.compile(dynamic=False)
            x = torch.randn(N, H, W, D, device="cuda", dtype=torch.bfloat16)
            x, gout = x.requires_grad_(), torch.randn_like(x)

            def forward() -> torch.Tensor:
                with torch.autocast("cuda", torch.bfloat16):
                    return layer(x, mask, keep)  # noqa: B023 - called at once

            def step() -> object:
                return torch.autograd.grad(forward(), [x, *layer.parameters()], gout)  # noqa: B023

            times = f"{microseconds(forward):.0f} | {microseconds(step):.0f}"
            print(f"| {name}, shifted by {shift} | {times} |", flush=True)
    swinir.TRITON = found


PARTS = {
    "passes": (show_passes, "| pass | µs | its bytes, µs |"),
    "tiles": (show_tiles, "| kernel | tile | µs |"),
    "layers": (show_layers, "| layer | forward, µs | forward and backward, µs |"),
}


if __name__ == "__main__":
    run(__doc__, (N, H, W), PARTS, ["passes", "layers"])
