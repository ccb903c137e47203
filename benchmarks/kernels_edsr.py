"""Times of EDSR's training kernels on this GPU, and of the whole network.

    python benchmarks/kernels_edsr.py [--only passes tiles networks]

passes: µs of each kind of convolution with what follows it, and of the weights' gradients. tiles: the same
with several tiles. networks: µs of a training step of the whole backbone, with the kernels and with compiled
blocks. All of it takes half a minute, mostly for compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from harness import microseconds, run
from triton.runtime.errors import OutOfResources

from thera.kernels import edsr as kernels
from thera.networks import edsr

N, H, W, D, L = 64, 48, 48, edsr.WIDTH, 33  # one batch of training; the number of equal convolutions
WORK = 18e-6 * N * H * W * D**2  # operations of one convolution, in millions
TILES = {  # pixels, warps, stages
    "FIRST": [(64, 4, 2), (128, 4, 3), (128, 8, 2), (256, 8, 2)],
    "CONVOLUTION": [(128, 8, 2), (128, 8, 4), (128, 4, 3), (64, 4, 4)],
    "WEIGHTS": [(64, 8, 2), (64, 8, 3), (32, 8, 4)],
}


class Call(NamedTuple):
    run: Callable[[], object]
    count: int = 1  # of the convolutions that it computes
    channels: int = D  # that they read


def calls() -> dict[str, Call]:
    image, head = torch.rand(N, 3, H, W, device="cuda"), torch.randn(D, 3, 3, 3, device="cuda")
    x = torch.randn(L, N, H, W, D, device="cuda", dtype=torch.bfloat16)
    gout, out = torch.randn_like(x), torch.empty_like(x[0])
    weight = torch.randn(D, 9, D, device="cuda").mul(0.05).bfloat16()
    bias, k = torch.randn(D, device="cuda"), kernels
    return {
        "first": Call(lambda: k.first(image, head, bias, out), channels=3),
        "first, ∂weights": Call(lambda: k.first_gradients(image, x[0], x[1]), channels=3),
        "conv₁ and relu": Call(lambda: k.convolve(x[0], weight, bias, "relu", out=out)),
        "conv₂ and sum": Call(lambda: k.convolve(x[0], weight, bias, "add", x[1], out=out)),
        "∂conv₂ and mask": Call(lambda: k.convolve(x[0], weight, None, "mask", x[1], out=out)),
        "∂conv₁ and sum": Call(lambda: k.convolve(x[0], weight, None, "add", x[1], out=out)),
        "∂weights": Call(lambda: k.weights_gradients(x, gout), L),
    }


def timed(call: Callable[[], object]) -> float | str:
    try:
        return microseconds(call)
    except OutOfResources as error:
        return str(error)


def show_passes() -> None:
    for name, (call, count, channels) in calls().items():
        time = microseconds(call) / count
        print(f"| {name} | {time:.1f} | {WORK * channels / D / time:.0f} |", flush=True)


def show_tiles() -> None:
    names = {
        "FIRST": ("first", "first, ∂weights"),
        "CONVOLUTION": ("conv₁ and relu", "conv₂ and sum", "∂conv₂ and mask"),
        "WEIGHTS": ("∂weights",),
    }
    every = calls()
    for constant, candidates in TILES.items():
        chosen = getattr(kernels, constant)
        others = [chosen._replace(pixels=p, warps=w, stages=s) for p, w, s in candidates]
        for tile in [chosen, *others]:
            setattr(kernels, constant, tile)
            times = [timed(every[name].run) for name in names[constant]]
            count = every[names[constant][0]].count
            shown = ", ".join(t if isinstance(t, str) else f"{t / count:.1f}" for t in times)
            sizes = tile.pixels, tile.warps, tile.stages
            print(f"| {constant} | {sizes}{' (chosen)' * (tile == chosen)} | {shown} |", flush=True)
        setattr(kernels, constant, chosen)


def show_networks() -> None:
    image, kernel_dtype = torch.rand(N, 3, H, W, device="cuda"), edsr.kernel_dtype
    image = image.contiguous(memory_format=torch.channels_last)
    for name in ("kernels", "compiled blocks"):
        network = edsr.EDSR().cuda().to(memory_format=torch.channels_last)
        if name == "compiled blocks":
            edsr.kernel_dtype = lambda _: None
            for module in (network.head, *network.body, network.tail):
                module.compile(dynamic=False)

        def forward() -> torch.Tensor:
            with torch.autocast("cuda", torch.bfloat16):
                return network(image)  # noqa: B023 - called at once

        gout = torch.randn_like(forward())

        def step() -> object:
            return torch.autograd.grad(forward(), list(network.parameters()), gout)  # noqa: B023

        print(f"| {name} | {microseconds(forward):.0f} | {microseconds(step):.0f} |", flush=True)
    edsr.kernel_dtype = kernel_dtype


PARTS = {
    "passes": (show_passes, "| pass | µs per convolution | TFLOP/s |"),
    "tiles": (show_tiles, "| constant | pixels, warps, stages | µs per convolution |"),
    "networks": (show_networks, "| network | forward, µs | forward and backward, µs |"),
}


if __name__ == "__main__":
    torch.backends.cudnn.benchmark = True
    run(__doc__, (N, H, W), PARTS, list(PARTS))
