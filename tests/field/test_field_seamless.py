"""Beyond ×8 a picture can be read without the borders of its cells, and no finer than at ×8."""

from __future__ import annotations

import numpy as np
import pytest
from field_reference import centres, coefficients, random_field
from test_field_render import TOLERANCE

import thera.field as tf
from thera.field.grid import BLEND_REACH

SEAMLESS = tf.Seamless()


def shares(at: float, cells: int) -> dict[int, float]:
    """The cells that are read at a place along an axis, and how much of each: one, or two about a border."""
    border = round(at)
    behind = min(max(0.5 + (at - border) / (2 * BLEND_REACH), 0), 1)
    if border in (0, cells):  # of the image
        return {min(border, cells - 1): 1.0}
    return {cell: share for cell, share in ((border - 1, 1 - behind), (border, behind)) if share}


def blended(field: tf.HeatField, point: np.ndarray) -> np.ndarray:
    """The definition: every cell's own field, continued beyond its borders, at t = 1/64, by its share."""
    pixels, amplitude, phase = coefficients(field)
    gain = np.exp(-field.kappa / 64 * (field.components**2).sum(0))
    total = np.zeros(field.channels)
    for row, down in shares(point[0], field.shape[0]).items():
        for col, along in shares(point[1], field.shape[1]).items():
            x = point - np.array([row, col]) - 0.5
            sines = gain * np.sin(x @ field.components + phase[row, col])
            total += down * along * (pixels[row, col] + sines @ amplitude[row, col])
    return total


@pytest.mark.parametrize("scale", [8.5, 12, 33.3])
def test_cells_give_way_to_each_other_about_their_borders(asarray, scale):
    field = random_field(asarray=asarray, shape=(4, 3))
    out = np.asarray(field.render(scale=scale, psf=SEAMLESS))
    points = centres(field.shape, out.shape[:2])
    expected = np.array([blended(field, p) for p in points.reshape(-1, 2)]).reshape(out.shape)
    np.testing.assert_allclose(out, expected, atol=TOLERANCE)


@pytest.mark.parametrize("scale", [0.4, 1, 2.5, 8])
def test_up_to_eight_times_it_is_the_gaussian(asarray, scale):
    field = random_field(asarray=asarray)
    same = (np.asarray(field.render(scale=scale, psf=psf)) for psf in (SEAMLESS, tf.Gaussian()))
    np.testing.assert_array_equal(*same)


def test_a_step_between_two_cells_becomes_a_ramp():
    flat = tf.HeatField(np.array([[[0.0], [1.0]]]), np.zeros((1, 2, 2)), None, None, np.ones((2, 1)), 0.03)
    row = flat.render(scale=(10, 100), psf=SEAMLESS)[5, :, 0]
    x = (np.arange(200) + 0.5) / 100
    np.testing.assert_allclose(row, np.clip(0.5 + (x - 1) / (2 * BLEND_REACH), 0, 1), atol=1e-6)


def test_a_region_is_the_crop_of_the_whole_and_bands_are_its_rows(asarray):
    field = random_field(asarray=asarray)
    whole = np.asarray(field.render(scale=20, psf=SEAMLESS))
    part = np.asarray(field.render(scale=20, region=(2, 1.05, 4, 3.1), psf=SEAMLESS))
    np.testing.assert_allclose(part, whole[40:80, 21:62], atol=TOLERANCE)
    bands = list(field.render_bands(scale=20, psf=SEAMLESS, memory=100_000))
    assert len(bands) > 3
    np.testing.assert_allclose(np.concatenate([np.asarray(b) for _, b in bands]), whole, atol=TOLERANCE)


def test_a_derivative_is_of_every_cell_by_itself(asarray):
    field = random_field(asarray=asarray)
    ours = np.asarray(field.render(scale=16, psf=SEAMLESS, derivative=(1, 1)))
    theirs = np.asarray(field.render(scale=16, psf=tf.Gaussian(t=1 / 64), derivative=(1, 1)))
    np.testing.assert_allclose(ours, theirs, atol=TOLERANCE * 400)  # the frequencies' product


@pytest.mark.parametrize("step", [0.02, 0.1])
def test_points_are_read_without_seams_too(asarray, step):
    field = random_field(asarray=asarray, shape=(4, 3))
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.uniform(0, (4, 3), (300, 2)), [[2.0, 1.0], [0.0, 3.0], [1.95, 2.08]]])
    turn = np.deg2rad(30)
    turned = step * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    expected = np.array([blended(field, p) for p in points])
    found = field.sample(points, SEAMLESS, jacobian=turned)
    np.testing.assert_allclose(np.asarray(found), expected, atol=TOLERANCE)
    each = field.sample(points, SEAMLESS, jacobian=np.broadcast_to(turned, (len(points), 2, 2)))
    np.testing.assert_allclose(np.asarray(each), expected, atol=TOLERANCE)


def test_a_warp_that_only_enlarges_is_the_rendering(asarray):
    field = random_field(asarray=asarray, shape=(4, 3))
    mapping = [[1 / 12, 0, 0], [0, 1 / 12, 0]]
    warped = np.asarray(field.warp(mapping, (48, 36), SEAMLESS))
    np.testing.assert_allclose(warped, np.asarray(field.render(scale=12, psf=SEAMLESS)), atol=TOLERANCE)


def test_points_of_coarser_pixels_are_the_gaussians(asarray):
    """Of two points beside each other the one with the finer pixel is blended, the other is not."""
    field = random_field(asarray=asarray, shape=(4, 3))
    points, steps = np.array([[2.02, 1.5], [2.02, 1.5]]), np.array([0.05, 0.2])[:, None, None] * np.eye(2)
    fine, coarse = np.asarray(field.sample(points, SEAMLESS, jacobian=steps))
    np.testing.assert_allclose(fine, blended(field, points[0]), atol=TOLERANCE)
    plain = np.asarray(field.sample(points[1:], tf.Gaussian(), jacobian=steps[1]))
    np.testing.assert_allclose(coarse, plain[0], atol=TOLERANCE)
    assert np.abs(fine - coarse).max() > 0.01
