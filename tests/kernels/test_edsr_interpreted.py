"""The EDSR kernels under Triton's interpreter, on a CPU: their arithmetic and their borders.

Triton reads TRITON_INTERPRET when it is imported, so the comparison runs in another process: the `found`
fixture runs this file as a script and gives the tests what it printed.
"""

import copy
import json

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton, which only comes with PyTorch for CUDA")

WIDTH = 16  # the least that a matrix product takes


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def few_bits(network: torch.nn.Module) -> None:
    """Parameters for which half precision holds every feature and every gradient.

    With any others, what is rounded to the other side of a relu changes a gradient by far more.
    """
    for p in network.parameters():
        few = torch.rand(p.shape) < 4 / p[0].numel()  # terms in a sum
        p.data = (
            torch.randint(-1, 2, p.shape) * few * 1.0 if p.ndim == 4 else torch.randint(-2, 2, p.shape) + 0.5
        )


def errors(blocks: int, shape: tuple[int, int, int], dtype: torch.dtype) -> dict[str, float]:
    """Relative errors against the plain form in float64: the output and every parameter's gradient."""
    from thera.networks import edsr

    torch.manual_seed(0)
    network = edsr.EDSR(blocks)
    if dtype != torch.float32:
        few_bits(network)
    plain = copy.deepcopy(network).double()
    image = torch.randn(shape[0], *shape[1:], 3).sign().permute(0, 3, 1, 2)  # laid out as a teacher's batches
    edsr.kernel_dtype = lambda _: dtype
    out = network(image)
    edsr.kernel_dtype = lambda _: None
    reference = plain(image.double())
    weight = torch.randn(out.shape).sign()
    ours = torch.autograd.grad((out * weight).sum(), list(network.parameters()))
    theirs = torch.autograd.grad((reference * weight).sum(), list(plain.parameters()))
    names = ["out", *(name for name, _ in network.named_parameters())]
    pairs = zip(names, (out, *ours), (reference, *theirs), strict=True)
    return {name: relative(a, b) for name, a, b in pairs}


def report() -> dict[str, object]:
    from thera.kernels import edsr as kernels
    from thera.kernels import sums
    from thera.networks import edsr

    sums.FEW = 100  # both widths of its programs, and fewer of them
    edsr.WIDTH = WIDTH
    kernels.MULTIPROCESSORS = 10  # few programs, so that each has several rows and tiles
    return {
        "two blocks": errors(2, (2, 5, 7), torch.float32),
        "many strips": errors(1, (9, 6, 19), torch.float32),
        "one row": errors(1, (3, 1, 20), torch.float32),
        "one column": errors(1, (1, 13, 1), torch.float32),
        "no blocks": errors(0, (2, 3, 4), torch.float32),
        "f16": errors(2, (2, 5, 7), torch.float16),
    }


@pytest.mark.parametrize(
    ("case", "blocks"),
    [("two blocks", 2), ("many strips", 1), ("one row", 1), ("one column", 1), ("no blocks", 0)],
)
def test_fused_network_and_every_gradient_equal_the_plain_form_up_to_the_borders(found, case, blocks):
    """Images smaller than a strip, and some that end within one: what crosses a border would show at once."""
    assert len(found[case]) == 1 + 4 * (blocks + 1)
    assert max(found[case].values()) < 1e-5  # float32 sums of a few hundred terms


def test_fused_network_of_half_precision_is_exact_where_half_precision_is(found):
    assert max(found["f16"].values()) == 0


if __name__ == "__main__":
    print(json.dumps(report()))
