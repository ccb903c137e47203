"""How fast the fused ConvNeXt block is on this GPU, cut how; and next to PyTorch's compiler.

    python benchmarks/kernels.py [--only tiles|kernels|blocks] [--widths 64 96 128]

tiles: µs and TFLOP/s of the forward and backward pass for several ways to cut them: the fastest belong in
FORWARD and BACKWARD of thera/networks/kernels_convnext.py. kernels: µs of each kernel as cut there.
blocks: µs of one training step of a whole block, fused and compiled from the plain form.
"""

from __future__ import annotations

import argparse

import torch
import triton
from harness import microseconds
from triton.runtime.errors import OutOfResources

from thera.networks import convnext
from thera.networks.kernels_convnext import BACKWARD, FORWARD, Tile, fused_block, fused_block_backward

PIXELS = (64, 48, 48)  # one batch of training
FORWARD_TILES = {
    64: [Tile(64, 64, 4, 2, 128), Tile(64, 64, 4, 3), Tile(64, 128, 4, 2), Tile(128, 64, 8, 3, 128)],
    128: [Tile(128, 128, 8, 2), Tile(128, 64, 8, 3), Tile(64, 64, 8, 2, 128), Tile(64, 64, 4, 2)],
}
BACKWARD_TILES = {
    64: [Tile(64, 128, 8, 3), Tile(32, 256, 8, 2), Tile(64, 64, 4, 2, programs=2), Tile(32, 128, 8, 2)],
    128: [Tile(32, 128, 8, 3), Tile(64, 128, 8, 2), Tile(32, 128, 16, 2, 128), Tile(64, 64, 8, 2)],
}


def tensors(width: int) -> tuple[tuple, tuple]:
    """Arguments of the forward and of the backward operation."""
    make = lambda *shape: torch.randn(*shape, device="cuda")  # noqa: E731
    x, gout = make(*PIXELS, width).bfloat16(), make(*PIXELS, width).bfloat16()
    taps, b1, b2 = make(9, width), make(4 * width), make(width)
    w1, w2 = (make(*shape).bfloat16() * width**-0.5 for shape in ((4 * width, width), (width, 4 * width)))
    forward = (x, taps, w1, b1, w2, b2, 1e-6, True)
    _, unit, rstd = fused_block(*forward)
    return forward, (gout, x, unit, rstd, taps, w1, b1, w2)


def tiles(width: int) -> None:
    square = 16e-6 * PIXELS[0] * PIXELS[1] * PIXELS[2] * width**2  # operations of a forward pass, in millions
    passes = zip(
        ("forward", "backward"),
        (FORWARD, BACKWARD),
        (FORWARD_TILES, BACKWARD_TILES),
        (fused_block, fused_block_backward),
        (square, 2.5 * square),
        tensors(width),
        strict=True,
    )
    for name, table, candidates, operation, work, arguments in passes:
        chosen = table[width]
        for tile in dict.fromkeys([chosen, *candidates[triton.next_power_of_2(width)]]):
            table[width] = tile
            try:
                time = microseconds(lambda: operation(*arguments))  # noqa: B023 - called at once
            except OutOfResources as error:
                print(f"| {width} | {name} | {tile} | {error} | |", flush=True)
                continue
            mark = " (chosen)" if tile == chosen else ""
            print(f"| {width} | {name} | {tuple(tile)}{mark} | {time:.0f} | {work / time:.0f} |", flush=True)
        table[width] = chosen


def kernels(width: int) -> None:
    forward, backward = tensors(width)
    fused_block_backward(*backward)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(10):
            fused_block(*forward)
            fused_block_backward(*backward)
        torch.cuda.synchronize()
    for event in profile.key_averages():
        if event.device_time_total:
            print(f"| {width} | {event.key} | {event.device_time_total / 10:.0f} |", flush=True)


def blocks(width: int) -> None:
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

        print(f"| {width} | {name} | {microseconds(forward):.0f} | {microseconds(step):.0f} |", flush=True)
        torch._dynamo.reset()
    convnext.FUSED_WIDTHS = fused_widths


HEADERS = {
    "tiles": "| width | pass | pixels, hidden, warps, stages, registers, programs | µs | TFLOP/s |",
    "kernels": "| width | kernel | µs |",
    "blocks": "| width | block | forward, µs | forward and backward, µs |",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=HEADERS, default=list(HEADERS))
    parser.add_argument("--widths", nargs="+", type=int, default=convnext.FUSED_WIDTHS)
    a = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, {PIXELS[0]}×{PIXELS[1]}×{PIXELS[2]} pixels, bfloat16")
    torch.manual_seed(0)
    for part in a.only:
        header = HEADERS[part]
        print(f"\n{header}\n{'| --- ' * (header.count('|') - 1)}|")
        for width in a.widths:
            {"tiles": tiles, "kernels": kernels, "blocks": blocks}[part](width)


if __name__ == "__main__":
    main()
