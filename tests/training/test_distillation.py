"""Distillation: targets are the fields of the teacher, and stored patches are drawn in new orientations."""

import numpy as np
import pytest
import torch
from ramps import errors_by_position, ramp

from thera.errors import InvalidInput, ModelError
from thera.networks import Spec, Thera
from thera.networks.heat import field_values
from thera.training import loop
from thera.training.config import Config, Data, Teacher
from thera.training.data import Sampler
from thera.training.distillation import Distillation
from thera.training.images import read_images
from thera.training.run import initial_network, read_log


def distillation(image, share, kept=3, batch=8, ensemble=False):
    torch.manual_seed(3)
    sampler = Sampler([image], Data(patch=16, batch=batch, scales=(1.2, 4), targets=3))
    teacher = Teacher(share=share, ensemble=ensemble, kept=kept, reuse=2)
    return Distillation(sampler, Thera(Spec()), teacher, batch, bf16=False)


def test_stored_targets_are_pixels_of_the_picture_at_their_positions():
    store = distillation(ramp(), share=0.0)
    store.refresh(0)
    errors = errors_by_position(store.draw())
    assert errors.amin(1).max() < 0.6  # float16 holds levels to 0.1
    assert len(set(errors.argmin(1).tolist())) > 2


def test_a_target_is_what_the_teacher_predicts():
    image = np.random.default_rng(0).integers(0, 256, (90, 110, 3), np.uint8)
    store = distillation(image, share=1.0)
    torch.nn.init.normal_(store.teacher.head.weight, std=0.02)
    store.refresh(0)
    source = store.source[1].permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        value, _ = field_values(store.teacher, store.teacher.features(source), store.x[1], store.t[1])
    predicted = source.permute(0, 2, 3, 1).unsqueeze(3) + 0.5 * value
    torch.testing.assert_close(store.target[1].float(), predicted, atol=2e-3, rtol=0)
    assert (predicted - source.permute(0, 2, 3, 1).unsqueeze(3)).abs().mean() > 0.01  # it is not the input


def test_a_target_of_the_ensemble_is_the_mean_of_four_predictions():
    store = distillation(
        np.random.default_rng(0).integers(0, 256, (90, 110, 3), np.uint8), share=1.0, ensemble=True
    )
    torch.nn.init.normal_(store.teacher.head.weight, std=0.02)
    store.refresh(0)
    source = store.source[1].permute(0, 3, 1, 2).float() / 255
    # The picture turned counterclockwise: what was (down, right) of a centre is then (-right, down) of it.
    turned = {
        0: lambda x: x,
        1: lambda x: torch.stack([-x[..., 1], x[..., 0]], -1),
        2: lambda x: -x,
        3: lambda x: torch.stack([x[..., 1], -x[..., 0]], -1),
    }
    values = []
    for k, turn in turned.items():
        features = store.teacher.features(torch.rot90(source, k, (2, 3)))
        value, _ = field_values(store.teacher, features, torch.rot90(turn(store.x[1]), k, (1, 2)), store.t[1])
        values.append(torch.rot90(value, -k, (1, 2)).detach())
    predicted = source.permute(0, 2, 3, 1).unsqueeze(3) + 0.5 * sum(values) / 4
    torch.testing.assert_close(store.target[1].float(), predicted, atol=2e-3, rtol=0)
    assert (values[0] - values[1]).abs().mean() > 0.01  # a single prediction is not the mean


def test_the_store_is_filled_at_once_and_then_renewed_a_batch_at_a_time():
    store = distillation(np.random.default_rng(0).integers(0, 256, (90, 110, 3), np.uint8), share=0.0)
    store.refresh(0)
    before = store.source.clone()
    store.refresh(1)
    assert torch.equal(store.source, before)
    store.refresh(2)
    changed = [not torch.equal(a, b) for a, b in zip(store.source, before, strict=True)]
    assert changed == [True, False, False]


def test_a_run_follows_its_teacher(small, photos, tmp_path):
    config = small(
        data={"patch": 16, "targets": 4},
        teacher={"model": "edsr-air", "kept": 4},
        optimiser={"steps": 60, "rate": 1e-3},
    )
    torch.manual_seed(0)
    run = loop.Run(config, Sampler(read_images([photos], 48), config.data), initial_network(config)[0], 60)
    loop.train(run, tmp_path / "run", every=20)
    losses = [entry["l1"] for entry in read_log(tmp_path / "run")]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"teacher": {"share": 2}}, "teacher.share"),
        ({"teacher": {"kept": 0}}, "teacher.kept"),
        ({"optimiser": {"drop_path": 1}}, "optimiser.drop_path"),
    ],
)
def test_a_mistake_is_named(values, message):
    with pytest.raises(InvalidInput, match=message):
        Config.parse(values)


def test_a_teacher_that_does_not_exist_is_named(small, photos):
    config = small(teacher={"model": "edsr-ultra"})
    with pytest.raises(ModelError, match="edsr-ultra"):
        loop.Run(config, Sampler(read_images([photos], 48), config.data), initial_network(config)[0], 6)


def test_all_of_pro_takes_part_in_a_step_unless_branches_are_left_out(small, photos):
    image = torch.rand(2, 64, 8, 8)
    for drop, same in ((0.0, True), (0.5, False)):
        config = small(network={"variant": "pro"}, optimiser={"drop_path": drop})
        run = loop.Run(config, Sampler(read_images([photos], 48), config.data), initial_network(config)[0], 6)
        with torch.no_grad():
            one, other = (run.network.train().hypernetwork(image) for _ in range(2))
        assert torch.equal(one, other) is same
