"""ComfyUI's nodes, with stand-ins for the three of its hooks that they use."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import thera

torch = pytest.importorskip("torch", reason="pip install 'thera[torch]'")
FOLDER = Path(__file__).parents[2] / "integrations" / "comfyui"


class Interrupted(Exception):
    pass


class Hooks:
    """What the nodes told ComfyUI, and whether somebody pressed stop."""

    def __init__(self) -> None:
        self.shown: list[float] = []
        self.stopped = False

    def throw(self) -> None:
        if self.stopped:
            self.stopped = False
            raise Interrupted


@pytest.fixture(scope="module")
def loaded():
    hooks = Hooks()
    management = types.ModuleType("comfy.model_management")
    management.throw_exception_if_processing_interrupted = hooks.throw
    management.processing_interrupted = lambda: hooks.stopped
    management.get_torch_device = lambda: torch.device("cpu")

    class ProgressBar:
        def __init__(self, total: int) -> None:
            self.total = total

        def update_absolute(self, value: int, total: int) -> None:
            hooks.shown.append(value / total)

    utils = types.ModuleType("comfy.utils")
    utils.ProgressBar = ProgressBar
    comfy = types.ModuleType("comfy")
    comfy.model_management, comfy.utils = management, utils
    with pytest.MonkeyPatch.context() as patch:
        for module in (comfy, management, utils):
            patch.setitem(sys.modules, module.__name__, module)
        spec = importlib.util.spec_from_file_location("thera_comfyui", FOLDER / "__init__.py")
        package = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "thera_comfyui", package)
        spec.loader.exec_module(package)
        yield package.NODE_CLASS_MAPPINGS, hooks


@pytest.fixture(scope="module")
def batch():
    return torch.rand((2, 9, 12, 3), generator=torch.Generator().manual_seed(0))


def close(result, image, scale):
    expected = np.clip(thera.upscale(image.numpy(), scale, model="edsr-air", engine="auto"), 0, 1)
    return result.shape == expected.shape and np.abs(result.numpy() - expected).max() < 1e-4


def test_a_batch_and_its_mask_are_upscaled_as_by_thera(loaded, batch):
    nodes, hooks = loaded
    hooks.shown.clear()
    masks = batch[..., 0]
    images, scaled = nodes["TheraUpscale"]().upscale(batch, "edsr-air", 2.5, "cpu", masks)
    assert all(close(images[i], batch[i], 2.5) for i in range(2))
    assert all(close(scaled[i], masks[i], 2.5) for i in range(2))
    assert hooks.shown == sorted(hooks.shown) and hooks.shown[-1] == 1


def test_one_side_sets_the_other_and_a_mask_gets_the_images_size(loaded, batch):
    empty = torch.zeros(1, 64, 64)  # what ComfyUI gives for a picture without transparency
    images, mask = loaded[0]["TheraUpscale"]().upscale(batch[:1], "edsr-air", 9.0, "cpu", empty, width=30)
    assert images.shape == (1, 22, 30, 3) and mask.shape == (1, 22, 30) and not mask.any()


def test_an_image_is_encoded_once_and_a_part_of_it_is_that_of_the_whole(loaded, batch):
    nodes = loaded[0]
    (field,) = nodes["TheraEncode"]().encode(batch[:1], "edsr-air", "cpu")
    (whole,) = nodes["TheraRender"]().render(field, 4)
    assert close(whole[0], batch[0], 4)
    (part,) = nodes["TheraRender"]().render(field, 4, x=3, y=2, part_width=5, part_height=4)
    assert torch.allclose(part, whole[:, 8:24, 12:32], atol=1e-5)
    with pytest.raises(ValueError, match="outside of the image of 12×9"):
        nodes["TheraRender"]().render(field, 4, x=12)


def test_the_stop_button_stops(loaded, batch):
    nodes, hooks = loaded
    hooks.stopped = True
    with pytest.raises(Interrupted):
        nodes["TheraUpscale"]().upscale(batch, "edsr-air", 2, "cpu")
    assert not hooks.stopped


def test_the_workflow_uses_inputs_that_the_nodes_have(loaded):
    nodes = loaded[0]
    steps = json.loads((FOLDER / "workflows" / "upscale.json").read_text(encoding="utf-8")).values()
    ours = [step for step in steps if step["class_type"] in nodes]
    assert {step["class_type"] for step in ours} == set(nodes)
    for step in ours:
        inputs = nodes[step["class_type"]].INPUT_TYPES()
        assert inputs["required"].keys() <= step["inputs"].keys()
        assert step["inputs"].keys() <= inputs["required"].keys() | inputs["optional"].keys()
