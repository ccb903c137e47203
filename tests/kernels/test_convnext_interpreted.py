"""The ConvNeXt kernels under Triton's interpreter, on a CPU: their arithmetic and their borders.

Triton reads TRITON_INTERPRET when it is imported, so the comparison runs in another process: the `found`
fixture runs this file as a script and gives the tests what it printed.
"""

import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

triton = pytest.importorskip("triton", reason="needs Triton, which only comes with PyTorch for CUDA")

PARAMETERS = 7


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def errors(width: int, dtype: torch.dtype, shape: tuple[int, int, int]) -> list[float]:
    """Relative errors against the plain form in float64: the output, ∂x, every parameter's gradient."""
    from thera.kernels.convnext.block import convnext_block
    from thera.networks.convnext import Block

    torch.manual_seed(0)
    block, plain = Block(width), Block(width).double()
    torch.nn.init.normal_(block.norm.weight)
    torch.nn.init.normal_(block.norm.bias)
    plain.load_state_dict(block.state_dict())
    x = torch.randn(*shape, width).to(dtype).requires_grad_()
    exact = x.detach().double().requires_grad_()
    out = convnext_block(x, block.depthwise.weight, block.norm, block.expand, block.project, dtype)
    reference = plain(exact)
    weight = torch.randn(out.shape)
    ours = torch.autograd.grad((out * weight).sum(), [x, *block.parameters()])
    theirs = torch.autograd.grad((reference * weight).sum(), [exact, *plain.parameters()])
    pairs = zip((out, *ours), (reference, *theirs), strict=True)
    return [relative(a, b) for a, b in pairs]


def prepared_error() -> float:
    """The relative error of the form for inference."""
    from thera.networks.convnext import Block
    from thera.networks.inference import FastBlock

    torch.manual_seed(1)
    block = Block(16).requires_grad_(False)
    torch.nn.init.normal_(block.norm.weight)
    x = torch.randn(1, 5, 7, 16)
    return relative(FastBlock(block, torch.float32)(x), block(x))


def blocks_in_kernels(broken: Callable | None = None) -> int:
    """How many of six blocks run in a kernel on a GPU older than Hopper, if the kernel of width 16 breaks."""
    from thera.kernels import available
    from thera.networks import inference
    from thera.networks.convnext import Block, ConvNeXt

    available._shared_memory, inference.TRIED = lambda: available.SMALL, ((3, 5), (4, 7))
    body = ConvNeXt().requires_grad_(False)
    body.layers = torch.nn.Sequential(*(Block(width) for width in (8, 8, 16, 16, 24, 24)))
    network = SimpleNamespace(backbone=None, hypernetwork=body)
    works = inference.forward

    def forward(x: torch.Tensor, *rest: object) -> tuple[torch.Tensor, ...]:
        result = works(x, *rest)
        return (broken(result[0]),) if broken and x.shape[-1] == 16 else result

    inference.forward = forward
    inference.use_kernels(network, torch.float16)
    inference.forward = works
    return sum(isinstance(layer, inference.FastBlock) for layer in body.layers)


def out_of_resources(_: torch.Tensor) -> torch.Tensor:
    raise triton.OutOfResources(131072, 101376, "shared memory")


def report() -> dict[str, object]:
    from thera.kernels import sums
    from thera.kernels.common import Tile
    from thera.kernels.convnext import block, depthwise

    sums.FEW = 100  # both widths of its programs, and fewer of them
    block.MULTIPROCESSORS = depthwise.MULTIPROCESSORS = 4  # few programs, so that each has several tiles
    block.SMALL = 0
    block.FORWARD_SMALL = Tile(pixels=32, channels=32)
    for width in (8, 16, 24):
        block.FORWARD[width] = Tile(pixels=32, channels=32)
        block.BACKWARD[width] = Tile(pixels=64 if width == 24 else 16, channels=32)
    shapes = ((2, 3, 5, 8), (8, 1, 3, 3), (8,), (8,), (32, 8), (32,), (8, 32), (8,))
    inputs = [torch.randn(shape).requires_grad_() for shape in shapes]
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    # Several strips of columns, lines and channels.
    depthwise.STRIP = Tile(pixels=4, channels=8, stages=2, programs=4)
    found = {
        "f32": errors(16, torch.float32, (2, 5, 7)),
        "f16": errors(16, torch.float16, (2, 3, 5)),
        "in two parts": errors(24, torch.float32, (2, 4, 9)),
        "one row": errors(8, torch.float32, (3, 1, 6)),
        "one column": errors(8, torch.float32, (3, 6, 1)),
        "prepared": prepared_error(),
        "operation": torch.library.opcheck(
            block.fused_block, (*inputs, torch.float32, 1e-6, True), test_utils=checks
        ),
    }
    found["blocks in kernels"] = [
        blocks_in_kernels(broken)
        for broken in (None, lambda y: y * 1.03, lambda y: y * float("nan"), out_of_resources)
    ]
    block.SMALL = 1000
    return found | {"padded": errors(24, torch.float32, (2, 4, 9))}


@pytest.mark.parametrize("case", ["f32", "in two parts", "one row", "one column", "padded"])
def test_fused_block_and_every_gradient_equal_the_plain_form_up_to_the_borders_of_each_image(found, case):
    """Several images smaller than a tile: whatever crosses a border would show in the first digit."""
    assert len(found[case]) == 2 + PARAMETERS
    assert max(found[case]) < 1e-5  # float32 sums of at most 100 terms


def test_fused_block_with_final_parameters_equals_the_plain_form(found):
    assert found["prepared"] < 1e-6


def test_on_an_older_gpu_blocks_run_in_kernels_where_these_do_the_same_there(found):
    """Of four GPUs, one computes all widths right; on the others one width is wrong, NaN or does not run."""
    assert found["blocks in kernels"] == [6, 4, 4, 4]


def test_fused_block_in_half_precision_keeps_half_precision(found):
    assert max(found["f16"]) < 3e-3  # 2⁻¹¹ = 5e-4 an operand, a few operands deep


def test_fused_block_is_a_well_formed_operation_for_autograd_and_the_compiler(found):
    assert set(found["operation"].values()) == {"SUCCESS"}


if __name__ == "__main__":
    print(json.dumps(report()))
