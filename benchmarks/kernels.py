"""How fast the fused ConvNeXt block and the heat field are on this GPU, cut how; and the block compiled.

    python benchmarks/kernels.py [--only tiles kernels blocks]

tiles: µs of each kernel for several ways to cut it; the fastest, printed below each, belong in the files
that hold them. kernels: µs of each kernel as cut there, and of all blocks of a training step together.
blocks: µs of one training step of a whole block, fused and compiled from the plain form. A minute in all,
most of it compilation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from harness import Setting, fastest, microseconds, run

from thera.networks import convnext
from thera.networks import kernels as heat
from thera.networks import kernels_convnext as kernels
from thera.networks import kernels_convnext_depthwise as depthwise
from thera.networks.kernels import Cut
from thera.networks.kernels_convnext import Rows, Tile, fused_block, fused_block_backward
from thera.networks.kernels_convnext_depthwise import Strip

N, H, W = PIXELS = (64, 48, 48)  # one batch of training
COMPONENTS = 512
FORWARDS = {
    64: [Tile(128, 64, 8, 2, 128), Tile(64, 64, 4, 3, 128)],
    96: [Tile(64, 64, 4, 3, 168), Tile(128, 64, 8, 2), Tile(128, 128, 8, 2)],
    128: [Tile(128, 64, 8, 3), Tile(128, 128, 8, 2), Tile(64, 64, 8, 2, 128)],
}
BACKWARDS = {
    64: [Tile(64, 128, 8, 2), Tile(64, 64, 4, 2, 255, 2)],
    96: [Tile(64, 128, 8, 2)],
    128: [Tile(32, 128, 8, 2), Tile(32, 64, 4, 3, 255, 2)],
}
NORM_BACKWARDS = [Rows(8, 2), Rows(8, 4), Rows(16, 8), Rows(32, 4), Rows(4, 1)]
STRIPS = [
    *(Strip(8, 32, 1, 4, programs) for programs in (12, 16, 24)),
    Strip(8, 32, 1, 6, 8),
    Strip(8, 32, 2, 4, 16),
    Strip(4, 32, 1, 4, 16),
    Strip(4, 32, 1, 4, 32),
    Strip(8, 64, 2, 4, 8),
]
HEAT_FORWARDS = [Cut(16, 32, 4, 1), Cut(16, 32, 4, 2), Cut(32, 32, 4, 2)]
HEAT_BACKWARDS = [Cut(16, 32, 4, 2), Cut(16, 32, 4, 3), Cut(32, 32, 8, 2)]


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
    return lambda: heat.heat_forward(*inputs), lambda: heat.heat_backward(*inputs, gv, gs)


def gradient_calls() -> tuple[Callable[[], object], Callable[[], object]]:
    """The gradients of the norm and of the depthwise convolution, of all blocks of a step."""
    norms, convolutions = [], []
    for width, count in convnext.STAGES:
        gout, x, unit, rstd, taps, *_ = tensors(width)[1]
        parts = 4 * width // kernels.BACKWARD[width].hidden
        norms += [(unit.new_zeros(parts, N * H * W, width), unit, rstd)] * count
        convolutions += [(gout, x, unit, taps, kernels.MULTIPROCESSORS)] * count
    return (
        lambda: [kernels.norm_backward(*arguments) for arguments in norms],
        lambda: [depthwise.depthwise_backward(*arguments) for arguments in convolutions],
    )


def show_tiles() -> None:
    for width in convnext.FUSED_WIDTHS:
        forward, backward = tensors(width)
        for name, call, tiles in (
            ("FORWARD", lambda: fused_block(*forward), FORWARDS),  # noqa: B023 - called at once
            ("BACKWARD", lambda: fused_block_backward(*backward), BACKWARDS),  # noqa: B023
        ):
            table = getattr(kernels, name)
            choices = [[Setting(kernels, name, tile, width)] for tile in [table[width], *tiles[width]]]
            fastest(f"{name.lower()} of {width}", call, choices)
    norms, convolutions = gradient_calls()
    rows = [[Setting(kernels, "NORM_BACKWARD", rows)] for rows in [kernels.NORM_BACKWARD, *NORM_BACKWARDS]]
    fastest("norm backward of all", norms, rows)
    strips = [[Setting(depthwise, "STRIP", strip)] for strip in [depthwise.STRIP, *STRIPS]]
    fastest("depthwise backward of all", convolutions, strips)
    for name, call, cuts in zip(
        ("FORWARD", "BACKWARD"), heat_calls(), (HEAT_FORWARDS, HEAT_BACKWARDS), strict=True
    ):
        choices = [[Setting(heat, name, cut)] for cut in [getattr(heat, name), *cuts]]
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
    for width in convnext.FUSED_WIDTHS:
        x = torch.randn(*PIXELS, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        gout = torch.randn_like(x)
        fused_widths = convnext.FUSED_WIDTHS
        for name, widths in (("fused", fused_widths), ("compiled from the plain form", ())):
            convnext.FUSED_WIDTHS = widths
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
        convnext.FUSED_WIDTHS = fused_widths


PARTS = {
    "tiles": (show_tiles, "| kernel | cut | µs |"),
    "kernels": (show_kernels, "| width | kernel | µs |"),
    "blocks": (show_blocks, "| width | block | forward, µs | forward and backward, µs |"),
}


if __name__ == "__main__":
    run(__doc__, PIXELS, PARTS, list(PARTS))
