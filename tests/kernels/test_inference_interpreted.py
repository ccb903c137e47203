"""The kernels of inference under Triton's interpreter, on a CPU: their arithmetic and their borders.

Triton reads TRITON_INTERPRET when it is imported, so the comparison runs in another process: the `found`
fixture runs this file as a script and gives the tests what it printed.
"""

import copy
import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton, which only comes with PyTorch for CUDA")

SCALES = (1, 2, 3, 4, 2.5, 9, 0.6)


def errors(C: int, c: int, shape: tuple[int, int], turns: float) -> list[float]:
    """Largest errors of renderings at all scales, of values that have a standard deviation of about one.

    The phases go through so many turns.
    """
    from thera.field import HeatField
    from thera.kernels.render import LastLayer
    from thera.models.cuda import CudaHead

    class Fused(CudaHead):
        place = None

    torch.manual_seed(0)
    weight = torch.randn(C, 4 * c) / C**0.5
    weight[:, : 3 * c] *= (2 / c) ** 0.5
    weight[:, 3 * c :] *= 3 * turns
    bias = torch.rand(4 * c) - 0.5
    bias[: 3 * c] *= (2 / c) ** 0.5
    constants = weight, bias, 3 * torch.randn(2, c), 0.03
    pixels, features = torch.rand(*shape, 3), torch.randn(*shape, C)
    head = Fused(*constants, tf32=True)
    assert LastLayer.fits(C, c, 4 * c)
    head._layer = LastLayer.of(*head.by_channel)  # as on a GPU
    head.fused = head._agrees()
    assert head.fused
    ours, plain = HeatField.of(head, pixels, features), HeatField(pixels, features, *constants)
    return [(ours.render(scale=s) - plain.render(scale=s)).abs().max().item() for s in SCALES]


def edsr_error(dtype: torch.dtype) -> float:
    """Relative to the plain form in float64."""
    from thera.networks.edsr import EDSR
    from thera.networks.inference import FastEDSR

    torch.manual_seed(0)
    plain = EDSR(blocks=2).to(memory_format=torch.channels_last).requires_grad_(False)
    image = torch.rand(1, 3, 5, 7).contiguous(memory_format=torch.channels_last)
    fast = FastEDSR(copy.deepcopy(plain).to(dtype))(image.to(dtype))
    exact = plain.double()(image.double())
    return ((fast.double() - exact).norm() / exact.norm()).item()


def works_if_broken() -> list[bool]:
    """Whether a head takes a kernel that is wrong by 3 %, and one that does not run."""
    from thera.kernels import render as kernels
    from thera.models.cuda import CudaHead

    torch.manual_seed(0)
    head = CudaHead(torch.randn(64, 128), torch.randn(128), torch.randn(2, 32), 0.03, tf32=True)
    head._layer = kernels.LastLayer.of(*head.by_channel)
    works, taken = kernels.oscillations, []
    for broken in (lambda *given: works(*given) * 1.03, lambda: None):
        kernels.oscillations = broken
        taken.append(head._agrees())
    kernels.oscillations = works
    return taken


def edsr_in_kernels(broken: Callable | None = None) -> bool:
    """Whether EDSR gets the kernel on a GPU older than Hopper, if what follows a convolution breaks."""
    from thera.networks import inference
    from thera.networks.edsr import EDSR

    torch.manual_seed(0)
    inference.TRIED, works = ((3, 5),), inference.convolve
    network = SimpleNamespace(backbone=EDSR(blocks=2).requires_grad_(False), hypernetwork=None)
    if broken is not None:
        inference.convolve = lambda *given, **named: broken(works(*given, **named))
    inference.use_kernels(network, torch.float16)
    inference.convolve = works
    return isinstance(network.backbone, inference.FastEDSR)


def fails(_: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("PassManager::run failed")


def same_finite(value: float) -> list[bool]:
    """Whether one pixel of this value leaves the same numbers finite as in the plain form, after a ReLU and
    after a sum."""
    from thera.kernels.convolution import convolve

    torch.manual_seed(0)
    conv = torch.nn.Conv2d(8, 8, 3, padding=1).requires_grad_(False)
    x = torch.randn(1, 8, 5, 6).contiguous(memory_format=torch.channels_last)
    x[..., 2, 3] = value
    pairs = (convolve(x, conv, relu=True), conv(x).relu()), (convolve(x, conv, other=x), conv(x) + x)
    return [torch.equal(ours.isfinite(), plain.isfinite()) for ours, plain in pairs]


def report() -> dict[str, object]:
    from thera.kernels import available
    from thera.kernels import render as kernels
    from thera.models import cuda

    kernels.MULTIPROCESSORS = 6
    available._shared_memory, cuda.TRIED = lambda: available.SMALL, cuda.TRIED[:1]  # a GPU older than Hopper
    results: dict[str, object] = {
        "air": errors(64, 32, (5, 7), turns=0.1),
        "plus": errors(128, 64, (5, 7), turns=0.1),
        "one cell": errors(64, 64, (1, 1), turns=0.1),
        "several tiles": errors(64, 32, (9, 23), turns=0.1),
        "many turns": errors(64, 32, (3, 4), turns=5),
    }
    weight, x = torch.randn(64, 128), torch.randn(500, 64)
    layer = kernels.LastLayer.of(weight, torch.zeros(128))
    phases = layer.weight[96:].double() + layer.rest.double()
    results["split"] = (phases.T - weight[:, 96:].double()).abs().max().item()
    results["edsr"] = {str(dtype): edsr_error(dtype) for dtype in (torch.float32, torch.float16)}
    results["finite"] = [same_finite(value) for value in (float("inf"), float("nan"))]
    results["broken"] = works_if_broken()
    results["edsr in kernels"] = [edsr_in_kernels(broken) for broken in (None, lambda y: y * 1.03, fails)]
    results["rounded"] = ((kernels.upper(x) - x).abs() / x.abs()).max().item()
    return results


@pytest.mark.parametrize("case", ["air", "plus", "one cell", "several tiles"])
def test_fused_rendering_equals_the_plain_form_at_every_scale(found, case):
    """Amplitudes and tables of eleven binary digits, 2⁻¹² = 2.4e-4 each, in sums whose size is about one."""
    assert len(found[case]) == len(SCALES)
    assert 1e-6 < max(found[case]) < 2e-3


def test_phases_of_many_turns_keep_their_digits(found):
    """Phases that had lost digits to TF32 would be wrong by 2⁻¹² of 30 radians: 7e-3."""
    assert max(found["many turns"]) < 2e-3


def test_phases_are_multiplied_by_all_of_their_weights(found):
    assert found["split"] == 0
    assert 2**-13 < found["rounded"] <= 2**-11


def test_a_kernel_that_does_something_else_on_an_older_gpu_is_not_used(found):
    assert found["broken"] == [False, False]


def test_fused_edsr_equals_the_plain_form(found):
    assert found["edsr"]["torch.float32"] < 1e-6  # the same sums, but for the last bit
    assert 1e-5 < found["edsr"]["torch.float16"] < 2e-3  # 2⁻¹¹ = 5e-4 an operand, a few operands deep


def test_edsr_runs_in_a_kernel_where_that_computes_the_same(found):
    assert found["edsr in kernels"] == [True, False, False]


def test_what_follows_a_convolution_passes_on_what_is_not_finite(found):
    """The engine notices numbers beyond float16 by the features that come of them."""
    assert found["finite"] == [[True, True], [True, True]]


if __name__ == "__main__":
    print(json.dumps(report()))
