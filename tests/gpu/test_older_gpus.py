"""The code of older GPUs, run on a Hopper GPU: `pytest -m gpu`.

TRITON_OVERRIDE_ARCH makes Triton write a kernel as for another GPU (`mma.sync` instead of `wgmma`) and
assemble it for the one that is there. This does not test the assembler for the other GPU. Triton keeps what
it has compiled, whatever the variable says later, so this file runs itself as a script for each GPU.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

from thera.kernels import available

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(
        torch.cuda.is_available() and not available.can_run_large_kernels(), reason="needs a Hopper GPU"
    ),
]

OLDER = {"sm80": 163 << 10, "sm86": 99 << 10, "sm89": 99 << 10}  # bytes of shared memory for a program
SIZES = [(1, 1), (5, 7), (48, 48), (150, 190)]  # the last is more than a small image
SCALES = [8, 4, 1, 2.5]


def errors(variant: str) -> dict[str, float]:
    """Relative errors in f16 against float32 on the CPU: of features, and of renderings of the same ones."""
    from thera.field import HeatField, Point
    from thera.models import Model
    from thera.models.torch_engine import TorchEngine
    from thera.models.weights import describe
    from thera.networks import Spec, Thera
    from thera.networks.convnext import Block
    from thera.networks.inference import FastEDSR
    from thera.networks.swinir import SwinLayer

    torch.manual_seed(0)
    network = Thera(Spec("edsr", variant)).eval()
    with torch.no_grad():
        network.head.weight.mul_(3)  # a new network has amplitudes near zero
    cpu, cuda = TorchEngine(network, "cpu"), TorchEngine(network, "cuda", "f16")
    assert cuda.head.fused
    assert isinstance(cuda._network.backbone, FastEDSR)
    assert not any(isinstance(layer, Block) for layer in cuda._network.modules())
    assert all(layer.kernels for layer in cuda._network.modules() if isinstance(layer, SwinLayer))
    model, found = Model(cuda, describe(network)), {}
    for size in SIZES:
        image = torch.rand(*size, 3)
        field, expected = model.encode(image), cpu.features(image)
        found[f"{size}"] = ((field.features.cpu() - expected).abs().max() / expected.abs().max()).item()
        arrays = (torch.zeros_like(field.pixels), field.features, field.head_weight, field.head_bias)
        waves = HeatField.of(field.head, *arrays[:2])  # without the pixels
        plain = HeatField(*(array.cpu() for array in arrays), field.components, field.kappa)
        contrast = plain.render(scale=SCALES[0], region=(0, 0, 1, 1), psf=Point()).square().mean().sqrt()
        for scale in SCALES:
            if scale * max(size) < 500:
                ours, theirs = (each.render(scale=scale, psf=Point()) for each in (waves, plain))
                error = (ours.cpu() - theirs).square().mean().sqrt()
                found[f"{size} ×{scale}"] = (error / contrast).item()
    return found


def instructions() -> list[str]:
    """Which of two instructions for matrix products the compiled kernels have."""
    from thera.kernels import render
    from thera.kernels.convnext import block

    code = [
        kernel.asm["ptx"]
        for function in (block._forward, render._oscillations)
        for cache, *_ in function.device_caches.values()
        for kernel in cache.values()
    ]
    return [name for name in ("wgmma", "mma.sync") if any(name in text for text in code)]


@pytest.fixture(scope="module", params=OLDER)
def found(request) -> dict:
    environment = os.environ | {"TRITON_OVERRIDE_ARCH": request.param}
    command = [sys.executable, __file__, str(OLDER[request.param])]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_the_code_of_older_gpus_computes_what_the_plain_form_does(found):
    assert found["instructions"] == ["mma.sync"]
    for variant, part in found["errors"].items():
        renderings = {name: error for name, error in part.items() if "×" in name}
        features = {name: error for name, error in part.items() if name not in renderings}
        # Tens of layers with eleven binary digits; rendering has two such products.
        assert features and max(features.values()) < 5e-3, (variant, features)
        assert renderings and max(renderings.values()) < 2e-3, (variant, renderings)


if __name__ == "__main__":
    available._shared_memory = lambda: int(sys.argv[1])
    results = {variant: errors(variant) for variant in ("air", "plus", "pro")}
    print(json.dumps({"errors": results, "instructions": instructions()}))
