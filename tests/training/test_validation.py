"""What a run says of itself while it trains is what `thera eval` measures of its weights."""

from __future__ import annotations

import pytest
import torch

from thera.evaluation import methods
from thera.evaluation.images import image_sets, read
from thera.models.weights import save_safetensors
from thera.networks import Thera
from thera.networks.spec import Spec
from thera.training.validation import Validation


@pytest.mark.parametrize(
    "what", [{}, {"activation": "relu"}, {"predicted_components": True}, {"filter": "ideal"}]
)
@pytest.mark.parametrize("ensemble", [False, True])
def test_validation_is_the_evaluation_of_the_same_weights(photos, tmp_path, what, ensemble, evaluate):
    torch.manual_seed(0)
    network = Thera(Spec(backbone="edsr", variant="air", components=4, **what)).eval().requires_grad_(False)
    torch.nn.init.normal_(network.head.weight, std=0.05)
    said = Validation([photos], [3], "cpu")(network, ensemble)
    save_safetensors(network, tmp_path / "weights.safetensors")
    (method,) = methods.load_methods(
        [f"It={tmp_path / 'weights.safetensors'}"], device="cpu", ensemble=ensemble, engine="torch"
    )
    (images,) = image_sets([photos])
    measured = evaluate(method.upscale, [read(path).pixels for path in images.files], [3])
    assert said == {f"{images.name} ×3": pytest.approx(measured[3], abs=1e-3)}


def test_validation_changes_nothing_that_training_draws(photos):
    check, network = Validation([photos], [3], "cpu"), Thera(Spec("edsr", "air"))
    before = torch.get_rng_state()
    check(network)
    assert torch.equal(torch.get_rng_state(), before)
