"""Stated damage is what it says, and the same every time."""

import io

import numpy as np
import pytest
from PIL import Image

from thera.errors import InvalidInput
from thera.evaluation.damage import damaged, stated
from thera.evaluation.protocol import degrade


def test_jpeg_is_pillows(picture):
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=40)
    np.testing.assert_array_equal(damaged(picture, "jpeg:40"), np.array(Image.open(file)))


def test_noise_has_the_stated_deviation_and_is_the_same_every_time():
    grey = np.full((200, 200, 3), 128, np.uint8)
    noisy = damaged(grey, "noise:5")
    assert abs(noisy.astype(float).std() - 5) < 0.05 and abs(noisy.astype(float).mean() - 128) < 0.05
    np.testing.assert_array_equal(noisy, damaged(grey, "noise:5"))


def test_blur_has_the_stated_deviation_and_keeps_constants():
    dot = np.zeros((31, 31, 3), np.uint8)
    dot[15, 15] = 255
    spread = damaged(dot, "blur:1.5").astype(float)[..., 0]
    at = np.arange(31) - 15
    assert abs(np.sqrt((spread.sum(0) * at**2).sum() / spread.sum()) - 1.5) < 0.1
    flat = np.full((9, 12, 3), 77, np.uint8)
    np.testing.assert_array_equal(damaged(flat, "blur:0.8"), flat)


def test_several_steps_are_taken_in_order(picture):
    once = damaged(damaged(picture, "blur:0.8"), "jpeg:60")
    np.testing.assert_array_equal(damaged(picture, "blur:0.8+jpeg:60"), once)
    np.testing.assert_array_equal(damaged(picture, ""), picture)


def test_only_the_low_resolution_image_is_damaged(picture):
    clean, other = degrade(picture, 2), degrade(picture, 2, "jpeg:40")
    np.testing.assert_array_equal(clean.target, other.target)
    np.testing.assert_array_equal(other.source, damaged(clean.source, "jpeg:40"))


@pytest.mark.parametrize(
    "text", ["jpeg:0", "jpeg:40.5", "jpeg", "noise:-1", "blur:x", "grain:3", "jpeg:40+snow:1"]
)
def test_impossible_damage_is_refused_by_name(text):
    with pytest.raises(InvalidInput, match=text.rpartition("+")[2]):
        stated([text])
