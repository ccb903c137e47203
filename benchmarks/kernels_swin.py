"""How fast the fused Swin layer is on this GPU, pass by pass and cut how; and next to PyTorch's compiler.

    python benchmarks/kernels_swin.py [--only passes cuts layers]

passes: µs of each kernel and each matrix product of one layer, beside the time that its bytes alone take at
BANDWIDTH. cuts: µs of each kernel for several ways to cut it; the fastest, printed below each, belong in
thera/networks/kernels_swin*.py. layers: µs of one training step of a whole layer, fused and compiled from the
plain form. A minute and a half in all, most of it compilation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from harness import Setting, fastest, microseconds, run

from thera.networks import kernels_swin as kernels
from thera.networks import kernels_swin_attention as attention
from thera.networks import kernels_swin_products as products
from thera.networks import swinir
from thera.networks.kernels_swin_attention import Share
from thera.networks.kernels_swin_products import Tile
from thera.networks.swinir import ALIGNED_WIDTH as D

N, H, W = 64, 48, 48  # one batch of training
M = N * H * W
BANDWIDTH = 4.3e6  # bytes a µs: what a large copy reaches on an H200
TILES = {
    "EXPAND": [Tile(128, 128, 64, 8, 3, 128), Tile(64, 128, 64, 4, 2), Tile(128, 64, 64, 4, 3)],
    "EXPAND_BACKWARD": [Tile(128, 128, 64, 8, 3), Tile(64, 128, 64, 4, 2), Tile(64, 128, 64, 4, 3)],
    "SUM_NORM": [Tile(64, D, 64, 4, 2), Tile(64, D, 32, 4, 3), Tile(64, D, 32, 4, 4)],
}
SHARES = {
    "ATTENTION": [Share(4, 2), Share(4, 4, 128), Share(5, 3, 96)],
    "ATTENTION_BACKWARD": [Share(3, 2, 168), Share(2, 3), Share(3, 4, 168)],
}
ROWS = [4, 8, 32]


def passes(shift: int = swinir.SHIFT) -> dict[str, tuple[Callable[[], object], float]]:
    """Each pass of a layer's training step, forward and backward, and the bytes it cannot do without."""
    layer = swinir.SwinLayer(shift).cuda()
    p = kernels.Parameters.of(layer)
    x = torch.randn(N, H, W, swinir.WIDTH, device="cuda", dtype=torch.bfloat16)
    x = swinir.fit(x, N, H, W, D)
    keep = torch.ones(2, N, device="cuda")
    with torch.no_grad():
        out, s = kernels.forward(x, keep, shift, layer.norm1.eps, p)
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
        "norm2 backward": (lambda: kernels.norm_backward(scratch, s.unit2, s.rstd2, g), 4 * one),
        "∂proj product": (lambda: g.T @ s.attended, 2 * one),
        "∂attended product": (lambda: g @ w.proj, 2 * one),
        "attention backward": (
            lambda: kernels.attention_backward(g, s.qkv, s.logsum, p.table, keep[0], shift, H, W),
            7 * one,
        ),
        "∂qkv product": (lambda: qkv.T @ s.unit1, 4 * one),
        "∂unit1 product": (lambda: qkv @ w.qkv, 4 * one),
        "norm1 backward": (lambda: kernels.norm_backward(scratch, s.unit1, s.rstd1, g), 4 * one),
        "unfold": (lambda: kernels.unfold(p, w, gposition), 0),
    }


def show_passes() -> None:
    total = 0.0
    for name, (call, size) in passes().items():
        time = microseconds(call)
        total += time
        print(f"| {name} | {time:.0f} | {size / BANDWIDTH:.0f} |", flush=True)
    print(f"| all | {total:.0f} | |")


def show_cuts() -> None:
    every = {name: call for name, (call, _) in passes().items()}

    def norms() -> None:
        every["norm"]()
        every["norm1 backward"]()

    for module, calls, cuts in (
        (products, ("expand", "expand backward", "proj product, sum and norm"), TILES),
        (attention, ("attention", "attention backward"), SHARES),
    ):
        for name, (constant, others) in zip(calls, cuts.items(), strict=True):
            present = getattr(module, constant)
            fastest(name, every[name], [[Setting(module, constant, cut)] for cut in [present, *others]])
    rows = [kernels.ROW_SIZES["BM"], *ROWS]
    fastest("norms", norms, [[Setting(kernels, "ROW_SIZES", n, "BM")] for n in rows])


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
    "cuts": (show_cuts, "| kernel | cut | µs |"),
    "layers": (show_layers, "| layer | forward, µs | forward and backward, µs |"),
}


if __name__ == "__main__":
    run(__doc__, (N, H, W), PARTS, ["passes", "layers"])
