"""The protocol: what is cropped, rounded, clipped and cut."""

import numpy as np
import pytest

from thera.errors import InvalidInput
from thera.evaluation.protocol import METRICS, check_scale, cut, degrade, score
from thera.evaluation.resize import imresize, resize


def bicubic(image, size):
    return resize(image, size)


def test_target_is_cropped_to_a_multiple_of_the_scale(photograph):
    picture = photograph(50, 47)
    for scale, low, high in [(2, (25, 23), (50, 46)), (3, (16, 15), (48, 45)), (4, (12, 11), (48, 44))]:
        source, target = degrade(picture, scale)
        assert (source.shape[:2], target.shape[:2]) == (low, high)
        np.testing.assert_array_equal(target, picture[: high[0], : high[1]])


def test_non_integer_scales_crop_to_the_nearest_whole_size(photograph):
    source, target = degrade(photograph(50, 47), 2.3)
    assert source.shape[:2] == (21, 20)
    assert target.shape[:2] == (48, 46)


def test_source_is_the_eight_bit_reduction_of_the_cropped_target(picture):
    source, target = degrade(picture[:50, :47], 3)
    np.testing.assert_array_equal(source, imresize(target, (16, 15)))


@pytest.mark.parametrize(
    ("metric", "border"), [("psnr_y", 3), ("psnr_y8", 3), ("psnr_rgb", 9), ("ssim", 9), ("gmsd", 9)]
)
def test_exactly_the_published_border_is_ignored(metric, border, photograph):
    target = photograph(60, 60)
    good = score(target / 255 * 0.9, target, 3, metric)
    outside, inside = (target / 255 * 0.9 for _ in range(2))
    outside[border - 1] = outside[-border] = outside[:, border - 1, :] = outside[:, -border] = 1
    inside[border, border:-border] = 1
    assert score(outside, target, 3, metric) == good
    assert score(inside, target, 3, metric) != good


def test_outputs_are_clipped_but_not_rounded():
    target = np.full((40, 40, 3), 255, np.uint8)
    assert score(np.full(target.shape, 1.7), target, 2) == np.inf
    # A tenth of a grey level below would vanish if the output were rounded.
    assert score(np.full(target.shape, 1 - 0.1 / 255), target, 2) == pytest.approx(68.13, abs=0.01)


def test_bicubic_on_a_known_picture_scores_what_it_scored(picture, evaluate):
    # Values of this picture, recorded when the kernel agreed with MATLAB's weights and Set5 with the
    # published 33.66 / 30.39 / 28.42 dB; crop, colour weights, rounding and kernel all move them.
    scores = evaluate(bicubic, [picture], [2, 3, 4], "psnr_y")
    assert scores == pytest.approx({2: 32.5867, 3: 30.3227, 4: 28.6009}, abs=1e-4)


def test_every_metric_runs_at_a_non_integer_scale(picture, evaluate):
    for metric in METRICS:
        assert np.isfinite(evaluate(bicubic, [picture], [2.5], metric)[2.5])


def test_an_image_smaller_than_the_scale_is_refused(photograph):
    with pytest.raises(InvalidInput, match="5×40 pixels is too small for ×8"):
        degrade(photograph(40, 5), 8)


def test_a_border_that_eats_the_image_is_refused():
    with pytest.raises(InvalidInput, match="leaves nothing"):
        cut(np.zeros((20, 30, 3)), 10)


@pytest.mark.parametrize("scale", [0.5, 0, -2, float("nan"), float("inf")])
def test_scales_that_cannot_be_evaluated_are_refused(scale):
    with pytest.raises(InvalidInput, match="1 or more"):
        check_scale(scale)


def test_sixteen_bit_images_are_refused_not_truncated(picture):
    with pytest.raises(InvalidInput, match="8-bit"):
        degrade(picture.astype(np.uint16), 2)
