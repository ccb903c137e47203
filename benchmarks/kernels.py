"""Times of the ConvNeXt block's and the heat field's kernels on this GPU.

    python benchmarks/kernels.py [--only tiles kernels blocks]

tiles: µs of each kernel with several tiles. The fastest is printed below each: write it into the kernel's
file. kernels: µs of each kernel with its present tile, and of all blocks of a training step together. blocks:
µs of one training step of a block, with the kernels and compiled from the plain form. All of it takes a
minute, mostly for compilation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from harness import Setting, fastest, microseconds, run

from thera.kernels import field, norm
from thera.kernels.common import Tile
from thera.kernels.convnext import block as kernels
from thera.kernels.convnext import depthwise
from thera.kernels.convnext.block import fused_block, fused_block_backward
from thera.networks import convnext

N, H, W = PIXELS = (64, 48, 48)  # one batch of training
COMPONENTS = 512
FORWARDS = {
    64: [
        Tile(pixels=128, channels=64, warps=8, stages=2, registers=128),
        Tile(pixels=64, channels=64, warps=4, stages=3, registers=128),
    ],
    96: [
        Tile(pixels=64, channels=64, warps=4, stages=3, registers=168),
        Tile(pixels=128, channels=64, warps=8, stages=2, registers=255),
        Tile(pixels=128, channels=128, warps=8, stages=2, registers=255),
    ],
    128: [
        Tile(pixels=128, channels=64, warps=8, stages=3, registers=255),
        Tile(pixels=128, channels=128, warps=8, stages=2, registers=255),
        Tile(pixels=64, channels=64, warps=8, stages=2, registers=128),
    ],
}
BACKWARDS = {
    64: [
        Tile(pixels=64, channels=128, warps=8, stages=2, registers=255),
        Tile(pixels=64, channels=64, warps=4, stages=2, registers=255, programs=2),
    ],
    96: [Tile(pixels=64, channels=128, warps=8, stages=2, registers=255)],
    128: [
        Tile(pixels=32, channels=128, warps=8, stages=2, registers=255),
        Tile(pixels=32, channels=64, warps=4, stages=3, registers=255, programs=2),
    ],
}
NORM_BACKWARDS = [Tile(pixels=p, warps=w) for p, w in ((8, 2), (8, 4), (16, 8), (32, 4), (4, 1))]
STRIPS = [
    *(Tile(pixels=8, channels=32, warps=1, stages=4, programs=programs) for programs in (12, 16, 24)),
    Tile(pixels=8, channels=32, warps=1, stages=6, programs=8),
    Tile(pixels=8, channels=32, warps=2, stages=4, programs=16),
    Tile(pixels=4, channels=32, warps=1, stages=4, programs=16),
    Tile(pixels=4, channels=32, warps=1, stages=4, programs=32),
    Tile(pixels=8, channels=64, warps=2, stages=4, programs=8),
]
FIELD_FORWARDS = [
    *(field.FORWARD._replace(stages=stages) for stages in (1, 2)),
    Tile(pixels=32, channels=32, warps=4, stages=2),
]
FIELD_BACKWARDS = [
    *(field.BACKWARD._replace(stages=stages) for stages in (2, 3)),
    field.BACKWARD._replace(pixels=32, warps=8, stages=2),
]


def tensors(width: int) -> tuple[tuple, tuple]:
    """Arguments of the forward and of the backward operation."""
    x = torch.randn(*PIXELS, width, device="cuda", dtype=torch.bfloat16)
    gout, block = torch.randn_like(x), convnext.Block(width).cuda().requires_grad_(False)
    depthwise, gamma, beta, w1, b1, w2, b2 = block.parameters()
    forward = (x, depthwise, gamma, beta, w1, b1, w2, b2, torch.bfloat16, 1e-6, True)
    _, *saved = fused_block(*forward)
    return forward, (gout, x, *saved, gamma, beta, w1)


def heat_calls() -> tuple[Callable[[], object], Callable[[], object]]:
    """The field of one step, and its gradients."""
    make = lambda *shape: torch.randn(*shape, device="cuda")  # noqa: E731
    amplitude, phase = make(N * H * W, 3 * COMPONENTS).bfloat16(), 3 * make(N * H * W, COMPONENTS)
    bank, kappa = 8 * make(2, COMPONENTS), torch.tensor(0.03, device="cuda")
    x, t = make(*PIXELS, 1, 2).clamp(-0.5, 0.5), torch.rand(N, device="cuda")
    inputs, gv, gs = (amplitude, phase, bank, kappa, x, t), make(*PIXELS, 1, 3), make(*PIXELS, 1, 3, 2)
    return lambda: field.heat_forward(*inputs), lambda: field.heat_backward(*inputs, gv, gs)


def gradient_calls() -> tuple[Callable[[], object], Callable[[], object]]:
    """The gradients of the norm and of the depthwise convolution, of all blocks of a step."""
    norms, convolutions = [], []
    for width, count in convnext.STAGES:
        gout, x, unit, rstd, taps, *_ = tensors(width)[1]
        parts = 4 * width // kernels.BACKWARD[width].channels
        norms += [(unit.new_zeros(parts, N * H * W, width), unit, rstd, width)] * count
        convolutions += [(gout, x, unit, taps)] * count
    return (
        lambda: [norm.norm_backward(*arguments) for arguments in norms],
        lambda: [depthwise.depthwise_backward(*arguments) for arguments in convolutions],
    )


def show_tiles() -> None:
    for width in convnext.KERNEL_WIDTHS:
        forward, backward = tensors(width)
        for name, call, tiles in (
            ("FORWARD", lambda: fused_block(*forward), FORWARDS),  # noqa: B023 - called at once
            ("BACKWARD", lambda: fused_block_backward(*backward), BACKWARDS),  # noqa: B023
        ):
            table = getattr(kernels, name)
            choices = [[Setting(kernels, name, tile, width)] for tile in [table[width], *tiles[width]]]
            fastest(f"{name.lower()} of {width}", call, choices)
    norms, convolutions = gradient_calls()
    tiles = [[Setting(norm, "NORM_BACKWARD", tile)] for tile in [norm.NORM_BACKWARD, *NORM_BACKWARDS]]
    fastest("norm backward of all", norms, tiles)
    strips = [[Setting(depthwise, "STRIP", strip)] for strip in [depthwise.STRIP, *STRIPS]]
    fastest("depthwise backward of all", convolutions, strips)
    for name, call, tiles in zip(
        ("FORWARD", "BACKWARD"), heat_calls(), (FIELD_FORWARDS, FIELD_BACKWARDS), strict=True
    ):
        choices = [[Setting(field, name, tile)] for tile in [getattr(field, name), *tiles]]
        fastest(f"heat field, {name.lower()}", call, choices)


def show_kernels() -> None:
    total = 0.0
    for width, count in convnext.STAGES:
        forward, backward = tensors(width)
        fused_block_backward(*backward)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(10):
                fused_block(*forward)
                fused_block_backward(*backward)
            torch.cuda.synchronize()
        for event in profile.key_averages():
            if event.device_time_total:
                total += count * event.device_time_total / 10
                print(f"| {width} | {event.key} | {event.device_time_total / 10:.1f} |", flush=True)
    print(f"| all {sum(count for _, count in convnext.STAGES)} blocks | | {total:.0f} |")


def show_blocks() -> None:
    for width in convnext.KERNEL_WIDTHS:
        x = torch.randn(*PIXELS, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        gout = torch.randn_like(x)
        kernel_widths = convnext.KERNEL_WIDTHS
        for name, widths in (("fused", kernel_widths), ("compiled from the plain form", ())):
            convnext.KERNEL_WIDTHS = widths
            block = convnext.Block(width).cuda()
            block.compile(dynamic=False)

            def forward() -> torch.Tensor:
                with torch.autocast("cuda", torch.bfloat16):
                    return block(x)  # noqa: B023 - called at once

            def step() -> object:
                return torch.autograd.grad(forward(), [x, *block.parameters()], gout)  # noqa: B023

            print(
                f"| {width} | {name} | {microseconds(forward):.0f} | {microseconds(step):.0f} |", flush=True
            )
            torch._dynamo.reset()
        convnext.KERNEL_WIDTHS = kernel_widths


PARTS = {
    "tiles": (show_tiles, "| kernel | tile | µs |"),
    "kernels": (show_kernels, "| width | kernel | µs |"),
    "blocks": (show_blocks, "| width | block | forward, µs | forward and backward, µs |"),
}


if __name__ == "__main__":
    run(__doc__, PIXELS, PARTS, list(PARTS))
