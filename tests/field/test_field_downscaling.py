"""Below native resolution a rendering averages across cells: no aliasing, no shift, constants constant."""

from __future__ import annotations

import numpy as np
import pytest
from field_reference import centres
from PIL import Image

import thera.field as tf


def picture_field(picture: np.ndarray, asarray=np.asarray, kappa: float = 0.03) -> tf.HeatField:
    """A picture H×W without oscillations: one component of amplitude 0."""
    H, W = picture.shape
    return tf.HeatField.from_coefficients(
        asarray(picture[:, :, None]),
        asarray(np.zeros((H, W, 1, 1))),
        asarray(np.zeros((H, W, 1))),
        np.ones((2, 1)),
        kappa,
    )


def zone_plate(n: int, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """cos(½·π·r²/n) about the top left corner, and its local frequency π·r/n, Nyquist at r = n."""
    r = np.hypot(points[..., 0], points[..., 1])
    return 0.5 + 0.5 * np.cos(0.5 * np.pi * r**2 / n), np.pi * r / n


@pytest.mark.parametrize("scale", [0.5, 0.37, 0.25, 0.125])
@pytest.mark.parametrize("psf", [tf.Gaussian(), tf.Butterworth(), tf.Ideal()])
def test_a_zone_plate_scaled_down_shows_no_energy_folded_from_above_nyquist(asarray, scale, psf):
    n = 256
    plate, _ = zone_plate(n, centres((n, n), (n, n)))
    field = picture_field(plate, asarray)
    size = round(n * scale)
    ideal, frequency = zone_plate(n, centres((n, n), (size, size)))
    nyquist = np.pi * size / n
    # What folds is above Nyquist; the Gaussian passes 0.5^(f²) of f times Nyquist, 0.06 at twice.
    folded = (frequency > min(2 * nyquist, 0.9 * np.pi)) & (frequency < np.pi)
    kept = frequency < nyquist / 2  # where it passes 0.84
    filtered = np.asarray(field.render(scale=scale, psf=psf))[..., 0]
    pointwise = np.asarray(field.render(scale=scale, psf=tf.Point()))[..., 0]
    assert pointwise[folded].std() > 0.3
    assert filtered[folded].std() < (0.03 if scale < 0.5 else 0.06)
    assert np.abs(filtered[folded].mean() - 0.5) < 0.01
    assert np.abs(filtered - ideal)[kept].max() < 0.1


def test_the_mean_over_pixels_shows_less_than_a_quarter_of_what_point_sampling_does():
    n, size = 256, 64
    plate, _ = zone_plate(n, centres((n, n), (n, n)))
    field = picture_field(plate)
    _, frequency = zone_plate(n, centres((n, n), (size, size)))
    folded = (frequency > 2 * np.pi * size / n) & (frequency < np.pi)
    box, point = (field.render(scale=0.25, psf=psf)[folded].std() for psf in (tf.Box(), tf.Point()))
    assert box < 0.25 * point  # a box's side lobes reach 0.22


@pytest.mark.parametrize("scale", [0.9, 0.6, 0.31, 0.05, (0.3, 2.5), (4, 0.7)])
@pytest.mark.parametrize("psf", [tf.Gaussian(), tf.Gaussian(bandwidth=2), tf.Box(), tf.Ideal(), tf.Point()])
def test_a_constant_stays_constant(asarray, scale, psf):
    field = picture_field(np.full((37, 41), 0.7), asarray)
    np.testing.assert_allclose(np.asarray(field.render(scale=scale, psf=psf)), 0.7, rtol=1e-6)


def test_a_box_at_an_integer_fraction_is_the_mean_of_whole_pixels(asarray):
    picture = np.random.default_rng(0).random((24, 36))
    out = np.asarray(picture_field(picture, asarray).render(scale=(0.25, 1 / 3), psf=tf.Box()))[..., 0]
    np.testing.assert_allclose(out, picture.reshape(6, 4, 12, 3).mean((1, 3)), atol=1e-6)


@pytest.mark.parametrize("scale", [0.75, 0.5, 0.31, 0.2])
def test_a_downscaled_picture_does_not_move(scale):
    """Against Pillow's antialiased bicubic: the shift that best explains the difference, by least squares."""
    n = 128
    points = centres((n, n), (n, n))
    picture = (
        0.5
        + 0.2 * np.sin(0.11 * points[..., 0])
        + 0.2 * np.cos(0.09 * points[..., 1] + 0.05 * points[..., 0])
    )
    out = picture_field(picture).render(scale=scale)[..., 0]
    bicubic = Image.fromarray(picture.astype(np.float32)).resize(out.shape[::-1], Image.Resampling.BICUBIC)
    bicubic = np.asarray(bicubic)
    inner = slice(4, -4)
    slopes = np.stack([slope[inner, inner].ravel() for slope in np.gradient(bicubic)], axis=1)
    shift, *_ = np.linalg.lstsq(slopes, (out - bicubic)[inner, inner].ravel(), rcond=None)
    assert np.abs(shift).max() < 0.01  # output pixels


@pytest.mark.parametrize("psf", [None, tf.Gaussian(bandwidth=1.4), tf.Butterworth()])
@pytest.mark.parametrize("orders", [(1, 0), (0, 2)])
def test_across_cells_derivatives_are_those_of_the_averages(orders, psf):
    """By differences of renderings of moved regions."""
    points = centres((96, 96), (96, 96))
    field = picture_field(np.sin(0.1 * points[..., 0]) * np.cos(0.07 * points[..., 1]))
    out = field.render(size=(20, 20), region=(20, 20, 60, 60), psf=psf, derivative=orders)

    def moved(by: float) -> np.ndarray:
        top, left = (20 + by * (order > 0) for order in orders)
        region = (top, left, top + 40, left + 40)
        return field.render(size=(20, 20), region=region, psf=psf).astype(np.float64)

    h = 0.3  # large enough for differences of float32, small beside a wave of 60 pixels
    if max(orders) == 1:
        expected = (moved(h) - moved(-h)) / (2 * h)
    else:
        expected = (moved(h) - 2 * moved(0) + moved(-h)) / h**2
    # Windows end at 3e-4 of their peak, which a second difference sees.
    np.testing.assert_allclose(out, expected, atol=1e-4)


def test_an_axis_scaled_down_leaves_the_other_exact():
    """Up along the columns: each row average of a field that does not change down the rows is the field."""
    rng = np.random.default_rng(1)
    components = np.stack([np.zeros(5), rng.uniform(-9, 9, 5)])
    amplitude = np.broadcast_to(rng.standard_normal((1, 6, 5, 3)), (30, 6, 5, 3)).copy()
    phase = np.broadcast_to(rng.uniform(-3, 3, (1, 6, 5)), (30, 6, 5)).copy()
    field = tf.HeatField.from_coefficients(np.zeros((30, 6, 3)), amplitude, phase, components, 0.03)
    down = field.render(scale=(0.3, 3))
    level = field.render(scale=(1, 3))
    np.testing.assert_allclose(down, np.broadcast_to(level[:1], down.shape), atol=1e-5)
