"""Lanczos: the ellipse of every point, weighed as a brute-force sum over the field weighs it."""

import numpy as np
import pytest

from thera.field import HeatField, Lanczos, Point


@pytest.fixture(scope="module")
def field() -> HeatField:
    rng = np.random.default_rng(3)
    return HeatField.from_coefficients(
        pixels=rng.random((40, 44, 3)),
        amplitude=0.02 * rng.standard_normal((40, 44, 8, 3)),
        phase=rng.uniform(-np.pi, np.pi, (40, 44, 8)),
        components=rng.uniform(-4, 4, (2, 8)),
        kappa=0.03,
    )


STEPS = [[[2.0, 0.0], [0.0, 2.0]], [[3.0, 1.0], [-0.5, 1.5]], [[1.2, 0.9], [-0.9, 1.2]]]


@pytest.mark.parametrize("jacobian", STEPS, ids=["square", "skewed", "turned"])
def test_a_point_is_the_kernel_s_mean_over_the_field(field, jacobian):
    jacobian = np.array(jacobian)
    point = np.array([20.3, 21.6])
    side = (np.arange(400) + 0.5) / 400 * 24 - 12
    offsets = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    distance = np.linalg.norm(offsets @ np.linalg.inv(jacobian).T, axis=1)
    weight = Lanczos().falloff(distance)
    near = weight != 0
    values = field.sample(point + offsets[near], Point())
    expected = (weight[near, None] * values).sum(0) / weight.sum()
    found = field.sample(point[None], Lanczos(), jacobian=jacobian)[0]
    # Random pixels jump by half the range from cell to cell, which samples half a pixel apart see as steps.
    np.testing.assert_allclose(found, expected, atol=6e-3)


def test_constants_stay_constant_at_the_borders_too():
    flat = HeatField(np.full((9, 9, 3), 0.7), np.zeros((9, 9, 4)), None, None, np.ones((2, 1)), 0.03)
    points = [[0.1, 0.1], [4.5, 8.9], [4.4, 4.6]]
    np.testing.assert_allclose(flat.sample(points, Lanczos(), jacobian=3 * np.eye(2)), 0.7, rtol=1e-5)
    np.testing.assert_allclose(flat.render(scale=0.3, psf=Lanczos()), 0.7, rtol=1e-5)


def test_what_the_output_can_show_passes_and_little_beyond():
    rows = np.arange(240) + 0.5
    for cycles, least, most in ((0.1, 0.97, 1.03), (0.25, 0.9, 1.05), (0.5, 0.3, 0.7), (0.8, 0.0, 0.06)):
        # Cycles to an output pixel of three input pixels, in a field that is its pixels alone.
        wave = np.cos(2 * np.pi * cycles * rows / 3)
        pixels = np.broadcast_to(wave[:, None, None], (240, 60, 3)).astype(np.float32)
        field = HeatField(pixels, np.zeros((240, 60, 4)), None, None, np.ones((2, 1)), 0.03)
        at = rows[60:180:2] + 0.13
        points = np.stack([at, np.full(len(at), 30.0)], -1)
        values = field.sample(points, Lanczos(), jacobian=3 * np.eye(2))[:, 0]
        phase = np.exp(-2j * np.pi * cycles * at / 3)
        gain = 2 * abs((values * phase).mean()) / abs(1 + (phase**2).mean())
        assert least <= gain <= most, (cycles, gain)
