"""Fitted fields: exact where they can be, filtered as a Gaussian filters, better with a learnt bank."""

import math

import numpy as np
import pytest

from thera.errors import InvalidInput
from thera.evaluation.fit import (
    cells_of,
    design,
    filtered,
    fit_grid,
    fit_whole,
    gaussian_filter,
    learn_bank,
    positions,
    random_bank,
)
from thera.field import HeatField
from thera.field.psf import NYQUIST_KAPPA


def error(image, cell, bank):
    output = fit_grid(image, cell, bank).render(scale=cell)
    return float(np.mean((output - image[: output.shape[0], : output.shape[1]]) ** 2))


@pytest.mark.parametrize("cell", [3, 4, 6])
def test_small_cells_are_reconstructed_to_float_rounding(picture, cell):
    # 1,024 unknowns against at most 36 pixels: what is left is float32's 1e-7, squared.
    assert error(picture / 255, cell, random_bank()) < 1e-12


def test_larger_cells_leave_more():
    # White noise, in which no pixel is foretold by its neighbours.
    image = np.random.default_rng(0).random((48, 48, 3))
    small, middle, large = (error(image, cell, random_bank(128)) for cell in (4, 12, 16))
    assert small < 1e-12 < middle < large < image.var()


def test_a_design_matrix_is_the_rendering_of_its_columns():
    """The linear form of the module's docstring against the field's own rendering."""
    bank, cell, kappa = random_bank(5), 4, 0.05
    coefficients = np.random.default_rng(0).standard_normal((10, 3))
    field = HeatField.from_coefficients(
        np.zeros((1, 1, 3)),
        coefficients[None, None],
        np.repeat([0, math.pi / 2], 5)[None, None],
        np.concatenate([bank, bank], axis=1),
        kappa,
    )
    expected = (design(cell, bank, kappa) @ coefficients).reshape(4, 4, 3)
    np.testing.assert_allclose(field.render(scale=cell), expected, atol=1e-5)


def test_cells_cover_the_image_in_order():
    image = np.arange(6 * 8 * 3, dtype=float).reshape(6, 8, 3)
    mean, rest = cells_of(image[:, :7], 3)
    assert mean.shape == (2, 2, 3)
    np.testing.assert_allclose(mean[1, 0], image[3:, :3].mean((0, 1)))
    cell = rest.reshape(3, 3, 2, 2, 3)[:, :, 1, 0] + mean[1, 0]
    np.testing.assert_allclose(cell, image[3:, :3])


def test_pixels_of_a_cell_lie_at_their_centres():
    np.testing.assert_allclose(positions(2), [[-0.25, -0.25], [-0.25, 0.25], [0.25, -0.25], [0.25, 0.25]])


def test_an_image_smaller_than_a_cell_is_refused():
    with pytest.raises(InvalidInput, match="no cell of 18×18 pixels"):
        fit_grid(np.zeros((20, 10, 3)), 18, random_bank())


@pytest.mark.parametrize("step", [1, 4, 8, 16])
def test_a_field_supervised_at_t_1_is_a_gaussian_filter_at_every_other_t(photograph, step):
    image = photograph(48, 48) / 255
    expected = gaussian_filter(image, 2 * NYQUIST_KAPPA * (step**2 - 1))
    # A sampled Gaussian of σ = 1.45 pixels aliases by 1e-9; the rest is float32.
    np.testing.assert_allclose(filtered(fit_whole(image), 48, step), expected, atol=5e-6)


def test_the_filter_halves_a_wave_at_the_nyquist_frequency_of_its_step():
    # κ is chosen so: at ×1/4 a wave of 8 pixels a period is at half of its amplitude, less the half of t = 1.
    n = 64
    wave = np.cos(2 * math.pi * (np.arange(n) + 0.5) / 8)
    image = np.broadcast_to(wave[:, None, None], (n, n, 3))
    kept = filtered(fit_whole(image), n, 4)[:, 0, 0] / wave
    np.testing.assert_allclose(kept, 0.5 ** (1 - 1 / 16), atol=1e-4)


def test_gaussian_filter_keeps_the_mean_and_mirrors_the_border():
    image = np.random.default_rng(0).random((9, 7, 3))
    np.testing.assert_allclose(gaussian_filter(image, 3.0).mean((0, 1)), image.mean((0, 1)), atol=1e-12)


def test_a_learnt_bank_reconstructs_better_than_the_one_it_started_from(photograph):
    pytest.importorskip("torch")
    image = photograph(72, 72) / 255
    start = random_bank(8)
    assert error(image, 6, learn_bank([image], 6, start, steps=25)) < 0.7 * error(image, 6, start)


def test_a_whole_field_needs_a_square_image():
    with pytest.raises(InvalidInput, match="square image"):
        fit_whole(np.zeros((8, 9, 3)))
