"""A teacher's lessons are its own fields, and turning them turns where their targets lie."""

import numpy as np
import pytest
import torch
from ramps import errors_by_position, ramp

from thera.errors import InvalidInput, ModelError
from thera.networks import Spec, Thera
from thera.networks.heat import field_values
from thera.training import loop
from thera.training.config import Config, Data, Teacher
from thera.training.data import Sampler, read_images
from thera.training.lessons import Lessons
from thera.training.run import prepare, read_log


def lessons_of(image, share, kept=3, batch=8):
    torch.manual_seed(3)
    sampler = Sampler([image], Data(patch=16, batch=batch, scales=(1.2, 4), targets=3))
    return Lessons(sampler, Thera(Spec()), Teacher(share=share, kept=kept, reuse=2), batch, short=False)


def test_turned_lessons_are_pixels_of_the_picture_at_their_positions():
    lessons = lessons_of(ramp(), share=0.0)
    lessons.refresh(0)
    errors = errors_by_position(lessons.draw())
    assert errors.amin(1).max() < 0.6  # float16 holds levels to 0.1
    assert len(set(errors.argmin(1).tolist())) > 2


def test_a_lesson_is_what_the_teacher_sees():
    image = np.random.default_rng(0).integers(0, 256, (90, 110, 3), np.uint8)
    lessons = lessons_of(image, share=1.0)
    torch.nn.init.normal_(lessons.teacher.head.weight, std=0.02)
    lessons.refresh(0)
    source = lessons.source[1].permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        value, _ = field_values(lessons.teacher, lessons.teacher.features(source), lessons.x[1], lessons.t[1])
    seen = source.permute(0, 2, 3, 1).unsqueeze(3) + 0.5 * value
    torch.testing.assert_close(lessons.target[1].float(), seen, atol=2e-3, rtol=0)
    assert (seen - source.permute(0, 2, 3, 1).unsqueeze(3)).abs().mean() > 0.01  # there is something to see


def test_the_store_is_filled_at_once_and_then_renewed_a_batch_at_a_time():
    lessons = lessons_of(np.random.default_rng(0).integers(0, 256, (90, 110, 3), np.uint8), share=0.0)
    lessons.refresh(0)
    before = lessons.source.clone()
    lessons.refresh(1)
    assert torch.equal(lessons.source, before)
    lessons.refresh(2)
    changed = [not torch.equal(a, b) for a, b in zip(lessons.source, before, strict=True)]
    assert changed == [True, False, False]


def test_a_run_follows_its_teacher(small, photos, tmp_path):
    config = small(
        data={"patch": 16, "targets": 4},
        teacher={"model": "edsr-air", "kept": 4},
        optimiser={"steps": 60, "rate": 1e-3},
    )
    torch.manual_seed(0)
    run = loop.Run(config, Sampler(read_images([photos], 48), config.data), prepare(config)[0], 60)
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
        loop.Run(config, Sampler(read_images([photos], 48), config.data), prepare(config)[0], 6)


def test_all_of_pro_takes_part_in_a_step_unless_branches_are_left_out(small, photos):
    image = torch.rand(2, 64, 8, 8)
    for drop, same in ((0.0, True), (0.5, False)):
        config = small(network={"variant": "pro"}, optimiser={"drop_path": drop})
        run = loop.Run(config, Sampler(read_images([photos], 48), config.data), prepare(config)[0], 6)
        with torch.no_grad():
            one, other = (run.network.train().hypernetwork(image) for _ in range(2))
        assert torch.equal(one, other) is same
