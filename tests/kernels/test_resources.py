"""The kernels of inference fit the shared memory of GPUs older than Hopper, as compiled for them.

No GPU is needed: launches are recorded instead of run, with tensors that have no memory. Each kernel is
compiled as its largest model needs it.
"""

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton, which only comes with PyTorch for CUDA")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from thera.kernels import available, field, render
from thera.kernels.convnext import block
from thera.kernels.swin import attention, mlp
from thera.kernels.swin.sizes import ALIGNED_HIDDEN, ALIGNED_WIDTH, HEADS
from thera.networks.spec import FILTERS

LIMITS = {80: 163 << 10, 86: 99 << 10, 89: 99 << 10}  # bytes per program: A100; RTX 30; RTX 40, L4, L40
DESKTOP, HOPPER = 86, 227 << 10
HEIGHT, WIDTH = 344, 512
PIXELS = HEIGHT * WIDTH
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16"}


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def half(*shape: int) -> torch.Tensor:
    return tensor(*shape, dtype=torch.float16)


def blocks(rows: int, columns: int, width: int) -> None:
    parameters = tensor(9, width), half(4 * width, width), tensor(4 * width), half(width, 4 * width)
    block.forward(half(1, rows, columns, width), *parameters, tensor(width), 1e-6, False)


def rendering(features: int, components: int) -> None:
    layer = render.LastLayer(
        tensor(4 * components, features), tensor(components, features), tensor(4 * components)
    )
    shift = tensor(HEIGHT, components), tensor(WIDTH, components)
    render.oscillations(layer, tensor(HEIGHT, WIDTH, features), shift, tensor(2 * components, 64))


def swin_attention() -> None:
    attention.attention(half(PIXELS, 3 * ALIGNED_WIDTH), tensor(225, HEADS), None, 4, HEIGHT, WIDTH)


def swin_expand() -> None:
    mlp.expand(half(PIXELS, ALIGNED_WIDTH), half(ALIGNED_HIDDEN, ALIGNED_WIDTH), None, PIXELS)


@pytest.fixture
def launches(monkeypatch, tmp_path):
    """The launches of kernels, in order: the function, its arguments, and those given by name."""
    found: list[tuple[JITFunction, tuple, dict]] = []

    def record(self, *args, grid, warmup, **named):
        found.append((self, args, named))

    monkeypatch.setattr(JITFunction, "run", record)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return found


def shared_memory(launch: tuple[JITFunction, tuple, dict], capability: int) -> int:
    """The bytes that a launch needs on a GPU of this compute capability, as compiled for it."""
    function, args, named = launch
    given = dict(zip((p.name for p in function.params), args, strict=False)) | named
    signature, constants, attributes = {}, {}, {}
    for i, parameter in enumerate(function.params):
        value = given.pop(parameter.name)
        if parameter.is_constexpr or value is None:
            signature[parameter.name], constants[i,] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name], attributes[i,] = TYPES[value.dtype], [["tt.divisibility", 16]]
        else:
            signature[parameter.name] = "fp32" if isinstance(value, float) else "i32"
    options = {name: value for name, value in given.items() if value is not None}
    source = ASTSource(function, signature, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).metadata.shared


KERNELS = {
    "ConvNeXt": lambda: blocks(HEIGHT, WIDTH, 128),
    "ConvNeXt, small image": lambda: blocks(48, 48, 128),
    "rendering, Plus": lambda: rendering(128, 512),
    "rendering, Pro": lambda: rendering(64, 512),
    "attention": swin_attention,
    "mlp": swin_expand,
}


@pytest.mark.parametrize(
    ("memory", "found", "tried"),
    [
        (0, False, 0),
        (64 << 10, False, 0),  # Turing
        (96 << 10, False, 0),  # Volta
        *((limit, True, 1) for limit in LIMITS.values()),
        (HOPPER, True, 0),
    ],
)
def test_kernels_are_tried_on_gpus_older_than_hopper_that_have_room_for_them(
    memory, found, tried, monkeypatch
):
    monkeypatch.setattr(available, "_shared_memory", lambda: memory)
    calls = []

    def both():
        calls.append("tried")
        return torch.ones(3), torch.ones(3)

    assert available.agree(both, 1e-3) is found and len(calls) == tried
    assert available.can_run_large_kernels() is (memory == HOPPER)  # training


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_fits_a_desktop_gpu(kernel, launches):
    KERNELS[kernel]()
    assert 0 < shared_memory(launches[0], DESKTOP) <= LIMITS[DESKTOP]


@pytest.mark.parametrize("filter_", FILTERS)
def test_training_compiles_with_each_filter(filter_, launches):
    N, H, W, q, c = 2, 48, 48, 1, 32
    pixels = tensor(N * H * W, 3 * c), tensor(N * H * W, c), tensor(2, c), tensor()
    points = tensor(N, H, W, q, 2), tensor(N)
    field.heat_forward(*pixels, *points, filter_)
    field.heat_backward(*pixels, *points, tensor(N, H, W, q, 3), tensor(N, H, W, q, 3, 2), filter_)
    forward, backward = (
        launch for launch in launches if launch[0] in (field._heat_forward, field._heat_backward)
    )
    assert {forward[2]["FILTER"], backward[2]["FILTER"]} == {filter_}
    for launch in (forward, backward):
        assert shared_memory(launch, 90) <= HOPPER


def test_other_gpus_older_than_hopper_need_no_more(launches):
    swin_expand()
    needed = {capability: shared_memory(launches[0], capability) for capability in LIMITS}
    assert len(set(needed.values())) == 1 and min(LIMITS.values()) == available.SMALL


def test_the_tile_for_a_large_shared_memory_would_not_fit(launches, monkeypatch):
    """So the smaller one is needed, and the compiler's figure is one that a limit can catch."""
    monkeypatch.setattr(render, "can_run_large_kernels", lambda: True)
    rendering(128, 512)
    assert LIMITS[DESKTOP] < shared_memory(launches[0], DESKTOP) < LIMITS[80]
