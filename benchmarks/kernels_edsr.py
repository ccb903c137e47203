"""How fast EDSR trains on this GPU: each pass with Triton and with cuDNN, and the whole network.

    python benchmarks/kernels_edsr.py [--only passes cuts networks]

passes: µs of each kind of convolution with all that follows it, and of the weights' gradients; the faster
belongs in PASSES of thera/networks/kernels_edsr.py. cuts: µs for several ways to cut the kernels. networks:
µs of a training step of the whole backbone, with the kernels and with compiled blocks. Half a minute in all,
most of it compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from harness import microseconds, run
from triton.runtime.errors import OutOfResources

from thera.networks import backbones
from thera.networks import kernels_edsr as kernels
from thera.networks.kernels_edsr import Cut

N, H, W, D, L = 64, 48, 48, backbones.WIDTH, 33  # one batch of training; the convolutions of one width
WORK = 18e-6 * N * H * W * D**2  # operations of one convolution, in millions
CUTS = {
    "FIRST": [Cut(64, 4, 2), Cut(128, 4, 3), Cut(128, 8, 2), Cut(256, 8, 2)],
    "CONVOLUTION": [Cut(128, 8, 2), Cut(128, 8, 4), Cut(128, 4, 3), Cut(64, 4, 4)],
    "WEIGHTS": [Cut(64, 8, 2), Cut(64, 8, 3), Cut(64, 8, 4), Cut(32, 8, 4)],
}


class Call(NamedTuple):
    part: str  # the pass that it belongs to
    run: Callable[[], object]
    count: int = 1  # of the convolutions that it computes
    channels: int = D  # that they read


def calls() -> dict[str, Call]:
    image, head = torch.rand(N, 3, H, W, device="cuda"), torch.randn(D, 3, 3, 3, device="cuda")
    x = torch.randn(L, N, H, W, D, device="cuda", dtype=torch.bfloat16)
    gout, out = torch.randn_like(x), torch.empty_like(x[0])
    weight = torch.randn(L, D, 9, D, device="cuda").mul(0.05).bfloat16()
    bias, k = torch.randn(D, device="cuda"), kernels
    return {
        "the first": Call("first", lambda: k.first(image, head, bias, out), channels=3),
        "the first's ∂weights": Call("first", lambda: k.first_gradients(image, head, x[0], x[1]), channels=3),
        "conv₁ and relu": Call("forward", lambda: k.convolve(x[0], weight[0], bias, "relu", out=out)),
        "conv₂ and sum": Call("forward", lambda: k.convolve(x[0], weight[0], bias, "add", x[1], out=out)),
        "∂conv₂ and mask": Call("backward", lambda: k.convolve(x[0], weight[0], None, "mask", x[1], out=out)),
        "∂conv₁ and sum": Call("backward", lambda: k.convolve(x[0], weight[0], None, "add", x[1], out=out)),
        "∂weights": Call("weights", lambda: k.weights_gradients(x, gout, weight), L),
    }


def timed(call: Callable[[], object]) -> float | str:
    try:
        return microseconds(call)
    except OutOfResources as error:
        return str(error)


def show_passes() -> None:
    totals = {name: dict.fromkeys(("triton", "cudnn"), 0.0) for name in kernels.PASSES}
    for name, (part, call, count, channels) in calls().items():
        for choice in ("triton", "cudnn"):
            chosen, kernels.PASSES[part] = kernels.PASSES[part], choice
            time = microseconds(call) / count
            kernels.PASSES[part] = chosen
            totals[part][choice] += time
            print(f"| {name} | {choice} | {time:.1f} | {WORK * channels / D / time:.0f} |", flush=True)
    fastest = {part: min(times, key=times.__getitem__) for part, times in totals.items()}
    print(f"\nPASSES = {fastest}")


def show_cuts() -> None:
    names = {
        "FIRST": ("the first", "the first's ∂weights"),
        "CONVOLUTION": ("conv₁ and relu", "conv₂ and sum", "∂conv₂ and mask"),
        "WEIGHTS": ("∂weights",),
    }
    every, passes = calls(), kernels.PASSES
    kernels.PASSES = dict.fromkeys(passes, "triton")
    for constant, candidates in CUTS.items():
        chosen = getattr(kernels, constant)
        for cut in dict.fromkeys([chosen, *candidates]):
            setattr(kernels, constant, cut)
            times = [timed(every[name].run) for name in names[constant]]
            count = every[names[constant][0]].count
            shown = ", ".join(t if isinstance(t, str) else f"{t / count:.1f}" for t in times)
            print(f"| {constant} | {tuple(cut)}{' (chosen)' * (cut == chosen)} | {shown} |", flush=True)
        setattr(kernels, constant, chosen)
    kernels.PASSES = passes


def show_networks() -> None:
    image, passes, fused = torch.rand(N, 3, H, W, device="cuda"), kernels.PASSES, backbones.fused_operand
    image = image.contiguous(memory_format=torch.channels_last)
    forms = {
        "as chosen": passes,
        "all Triton": dict.fromkeys(passes, "triton"),
        "all cuDNN": dict.fromkeys(passes, "cudnn"),
        "compiled blocks": None,
    }
    for name, choice in forms.items():
        network = backbones.EDSR().cuda().to(memory_format=torch.channels_last)
        if choice is None:
            backbones.fused_operand = lambda _: None
            for module in (network.head, *network.body, network.tail):
                module.compile(dynamic=False)
        else:
            kernels.PASSES = choice

        def forward() -> torch.Tensor:
            with torch.autocast("cuda", torch.bfloat16):
                return network(image)  # noqa: B023 - called at once

        gout = torch.randn_like(forward())

        def step() -> object:
            return torch.autograd.grad(forward(), list(network.parameters()), gout)  # noqa: B023

        print(f"| {name} | {microseconds(forward):.0f} | {microseconds(step):.0f} |", flush=True)
    kernels.PASSES, backbones.fused_operand = passes, fused


PARTS = {
    "passes": (show_passes, "| pass | with | µs a convolution | TFLOP/s |"),
    "cuts": (show_cuts, "| constant | pixels, warps, stages | µs a convolution |"),
    "networks": (show_networks, "| network | forward, µs | forward and backward, µs |"),
}


if __name__ == "__main__":
    torch.backends.cudnn.benchmark = True
    run(__doc__, (N, H, W), PARTS, list(PARTS))
