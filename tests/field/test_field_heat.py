"""The field obeys the heat equation, filters are convolutions, derivatives are derivatives."""

from __future__ import annotations

import numpy as np
import pytest
from field_reference import away_from_borders, centres, direct, random_field
from hypothesis import given, settings
from hypothesis import strategies as st

import thera.field as tf
from thera.errors import InvalidInput

FILTERS = [
    tf.Gaussian(),
    tf.Gaussian(bandwidth=0.6),
    tf.Gaussian(t=0.3),
    tf.Box(),
    tf.Butterworth(order=2, cutoff=0.8),
    tf.Ideal(cutoff=3),
    tf.Point(),
    lambda nu1, nu2: np.cos(0.1 * nu1 + 0.05 * nu2),
]


@given(t=st.floats(0.02, 3), scale=st.floats(1, 6))
@settings(max_examples=25, deadline=None)
def test_the_field_obeys_the_heat_equation(asarray, t, scale):
    """∂Φ/∂t = κ∇²Φ, the left by central differences in float64."""
    field = random_field(asarray=asarray)
    laplacian = np.asarray(field.laplacian(scale=scale, psf=tf.Gaussian(t=t)))
    points = centres(field.shape, laplacian.shape[:2])
    h = 1e-4
    change = (direct(field, points, t + h) - direct(field, points, t - h)) / (2 * h)
    kept = away_from_borders(points)
    # Laplacians are of size 0.1·(6π)²: a float32 sum is known to about 1e-6 of that, times κ.
    np.testing.assert_allclose(field.kappa * laplacian[kept], change[kept], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("t", [0.05, 0.5, 2.0])
def test_rendering_at_t_is_a_gaussian_convolution_of_the_field_at_0(asarray, t):
    """Each local field by itself, by Gauss-Hermite quadrature, exact for sinusoids of this many radians."""
    field = random_field(asarray=asarray, shape=(3, 2))
    out = np.asarray(field.render(scale=3, psf=tf.Gaussian(t=t)))
    z, weight = np.polynomial.hermite_e.hermegauss(60)
    sigma = np.sqrt(2 * field.kappa * t)
    cell = np.repeat(np.arange(3), 3), np.repeat(np.arange(2), 3)
    offset = np.tile([-1 / 3, 0, 1 / 3], 3), np.tile([-1 / 3, 0, 1 / 3], 2)
    blurred = np.zeros_like(out, dtype=np.float64)
    for i in range(9):
        for j in range(6):
            p, q = cell[0][i], cell[1][j]
            alone = field.crop(slice(p, p + 1), slice(q, q + 1))  # a single cell: no neighbour to fall into
            y, x = 0.5 + offset[0][i] + sigma * z, 0.5 + offset[1][j] + sigma * z
            points = np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1)
            values = direct(alone, points)
            blurred[i, j] = np.einsum("a,b,abc->c", weight, weight, values) / weight.sum() ** 2
    np.testing.assert_allclose(out, blurred, atol=1e-5)


@pytest.mark.parametrize("psf", FILTERS)
def test_a_filter_multiplies_each_component_by_its_transfer_function(asarray, psf):
    field = random_field(asarray=asarray)
    out = np.asarray(field.render(size=(17, 16), psf=psf))
    step = np.array([7 / 17, 5 / 16])
    nu1, nu2 = field.components * step[:, None]
    radius = np.hypot(nu1, nu2)
    gain = {
        0: np.exp(-field.kappa * radius**2),
        1: np.exp(-field.kappa * 0.36 * radius**2),
        2: np.exp(-field.kappa * 0.3 * (field.components**2).sum(0)),
        3: np.sinc(nu1 / (2 * np.pi)) * np.sinc(nu2 / (2 * np.pi)),
        4: 1 / np.sqrt(1 + (radius / (0.8 * np.pi)) ** 4),
        5: (radius <= 3 * np.pi) * 1.0,
        6: np.ones_like(nu1),
        7: np.cos(0.1 * nu1 + 0.05 * nu2),
    }[FILTERS.index(psf)]
    points = centres(field.shape, (17, 16))
    np.testing.assert_allclose(out, direct(field, points, gain=gain), atol=1e-5)


def test_a_box_is_the_mean_over_the_output_pixel(asarray):
    field = random_field(asarray=asarray)
    out = np.asarray(field.render(scale=2, psf=tf.Box()))
    fine = direct(field, centres((7, 5), (14 * 64, 10 * 64)))
    mean = fine.reshape(14, 64, 10, 64, 3).mean((1, 3))
    # The midpoint rule with 64² points is good to (w/128)²/24 of amplitudes of 0.1.
    np.testing.assert_allclose(out, mean, atol=2e-4)


@pytest.mark.parametrize("psf", [None, tf.Box(), tf.Gaussian(t=0.2)])
@pytest.mark.parametrize("orders", [(1, 0), (0, 1), (1, 1), (2, 0), (0, 3)])
def test_derivatives_equal_finite_differences(asarray, orders, psf):
    field = random_field(asarray=asarray, radius=2 * np.pi)
    out = np.asarray(field.render(scale=2.5, psf=psf, derivative=orders))
    size = out.shape[:2]
    nu1, nu2 = field.components * np.array([[7 / size[0]], [5 / size[1]]])
    gain = {
        type(None): np.exp(-field.kappa * (nu1**2 + nu2**2)),
        tf.Box: np.sinc(nu1 / (2 * np.pi)) * np.sinc(nu2 / (2 * np.pi)),
        tf.Gaussian: np.exp(-field.kappa * 0.2 * (field.components**2).sum(0)),
    }[type(psf)]
    points, h = centres(field.shape, size), 1e-3
    kept = np.all(np.abs(points - np.round(points)) > 3 * h, axis=-1)
    stencil = {
        0: [(0, 1.0)],
        1: [(-1, -0.5), (1, 0.5)],
        2: [(-1, 1.0), (0, -2.0), (1, 1.0)],
        3: [(-2, -0.5), (-1, 1.0), (1, -1.0), (2, 0.5)],
    }
    expected = sum(
        a * b * direct(field, points + h * np.array([i, j]), gain=gain) / h ** sum(orders)
        for i, a in stencil[orders[0]]
        for j, b in stencil[orders[1]]
    )
    # Differences of step h err by about (wh)²/4 of derivatives of up to 0.1·w³ = 25.
    np.testing.assert_allclose(out[kept], expected[kept], atol=1e-3, rtol=1e-3)


def test_gradient_and_laplacian_are_the_partial_derivatives(asarray):
    field = random_field(asarray=asarray)
    gradient = np.asarray(field.gradient(scale=2))
    assert gradient.shape == (14, 10, 3, 2)
    np.testing.assert_array_equal(gradient[..., 1], np.asarray(field.render(scale=2, derivative=(0, 1))))
    laplacian = np.asarray(field.laplacian(scale=2))
    parts = [np.asarray(field.render(scale=2, derivative=d)) for d in ((2, 0), (0, 2))]
    np.testing.assert_array_equal(laplacian, parts[0] + parts[1])


@pytest.mark.parametrize("derivative", [(-1, 0), (0.5, 0), (1,), 1])
def test_a_derivative_that_is_none_is_refused(derivative):
    with pytest.raises(InvalidInput, match="derivative="):
        random_field().render(scale=2, derivative=derivative)


@pytest.mark.parametrize("scale", [2, 0.5, (2, 0.3)])
def test_an_order_that_overflows_is_refused(scale):
    field = random_field(radius=4 * np.pi)
    with pytest.raises(InvalidInput, match=r"derivative=\(40, 40\).*lower order"):
        field.render(scale=scale, derivative=(40, 40))
    assert np.all(np.isfinite(field.render(scale=scale, derivative=(10, 10))))


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.Gaussian(bandwidth=0),
        lambda: tf.Gaussian(t=-1),
        lambda: tf.Box(width=np.nan),
        lambda: tf.Butterworth(order=-1),
        lambda: tf.Ideal(cutoff=np.inf),
        lambda: random_field().render(scale=2, psf="gaussian"),
        lambda: random_field().render(scale=2, psf=tf.Gaussian),
        lambda: random_field().render(scale=2, psf=lambda nu1, nu2: 1.0),
        lambda: random_field().render(scale=2, psf=lambda nu1, nu2: np.exp(1j * nu1)),
    ],
)
def test_a_filter_that_is_none_is_refused(make):
    with pytest.raises(InvalidInput):
        make()
