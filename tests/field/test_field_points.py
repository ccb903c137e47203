"""Points and warps read the same field: by the equation in a cell, by supersampling across cells."""

from __future__ import annotations

import numpy as np
import pytest
from field_reference import centres, direct, random_field
from hypothesis import given, settings
from hypothesis import strategies as st

import thera.field as tf
from thera.errors import InvalidInput

TOLERANCE = 1e-5  # as for renderings


def points_in(shape: tuple[int, int], count: int = 200, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 2)) * shape


def test_sample_equals_direct_evaluation(asarray):
    field = random_field(asarray=asarray)
    points = points_in(field.shape)
    out = np.asarray(field.sample(points, tf.Gaussian(t=0.4)))
    np.testing.assert_allclose(out, direct(field, points, 0.4), atol=TOLERANCE)


@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_sample_reads_each_point_through_its_own_covariance(asarray, seed):
    field = random_field(asarray=asarray)
    points = points_in(field.shape, seed=seed)
    root = np.random.default_rng(seed).uniform(-0.1, 0.1, (200, 2, 2))
    covariance = root @ np.swapaxes(root, 1, 2)  # of at most 0.04, where an input pixel's is 2κ = 0.06
    out = np.asarray(field.sample(points, covariance=covariance))
    gain = np.exp(-0.5 * np.einsum("ik,nij,jk->nk", field.components, covariance, field.components))
    np.testing.assert_allclose(out, direct(field, points, gain=gain), atol=TOLERANCE)


def test_sample_at_pixel_centres_is_the_rendering_at_scale_1(asarray):
    field = random_field(asarray=asarray)
    points = centres(field.shape, field.shape)
    np.testing.assert_allclose(
        np.asarray(field.sample(asarray(points))), np.asarray(field.render(scale=1)), atol=TOLERANCE
    )


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_a_warp_by_quarter_turns_equals_rot90(asarray, turn):
    field = random_field(asarray=asarray)
    H, W = field.shape
    matrix = {1: [[0, 1, 0], [-1, 0, W]], 2: [[-1, 0, H], [0, -1, W]], 3: [[0, -1, H], [1, 0, 0]]}[turn]
    size = (W, H) if turn % 2 else (H, W)
    out = np.asarray(field.warp(matrix, size))
    np.testing.assert_allclose(out, np.rot90(np.asarray(field.render(scale=1)), turn), atol=TOLERANCE)


@pytest.mark.parametrize("psf", [None, tf.Gaussian(bandwidth=0.7), tf.Box(), tf.Butterworth()])
def test_a_warp_by_a_diagonal_matrix_equals_rendering(asarray, psf):
    field = random_field(asarray=asarray)
    out = np.asarray(field.warp(np.diag([7 / 16, 5 / 17, 1]), (16, 17), psf))
    np.testing.assert_allclose(out, np.asarray(field.render(size=(16, 17), psf=psf)), atol=TOLERANCE)


HOMOGRAPHY = np.array([[0.35, 0.03, 0.2], [-0.02, 0.3, 0.3], [0.01, 0.02, 1.0]])


def project(points: np.ndarray) -> np.ndarray:
    found = np.concatenate([points, np.ones_like(points[..., :1])], axis=-1) @ HOMOGRAPHY.T
    return found[..., :2] / found[..., 2:]


def test_a_magnifying_homography_equals_supersampling_with_the_same_psf(asarray):
    """The Gaussian of κ in output pixels, linearised at each, over the cell's own field without an end."""
    field = random_field(asarray=asarray)
    size = (12, 11)
    out = np.asarray(field.warp(HOMOGRAPHY, size))
    z, weight = np.polynomial.hermite_e.hermegauss(30)
    grid = np.stack(np.meshgrid(z, z, indexing="ij"), axis=-1) * np.sqrt(2 * field.kappa)
    weight = weight[:, None] * weight / weight.sum() ** 2
    for i in range(size[0]):
        for j in range(size[1]):
            centre, h = np.array([i + 0.5, j + 0.5]), 1e-5
            jacobian = np.stack(
                [(project(centre + e) - project(centre - e)) / (2 * h) for e in np.eye(2) * h], -1
            )
            at = project(centre)
            p, q = np.floor(at).astype(int)
            alone = field.crop(slice(p, p + 1), slice(q, q + 1))
            values = direct(alone, at - [p, q] + grid @ jacobian.T)
            np.testing.assert_allclose(out[i, j], np.einsum("ab,abc->c", weight, values), atol=TOLERANCE)


def smooth_field(
    shape: tuple[int, int], asarray=np.asarray, waves: int = 6, top: float = 0.6 * np.pi
) -> tf.HeatField:
    """One picture over the whole plane, a sum of waves, written as a grid of local fields that agree."""
    rng = np.random.default_rng(5)
    components = rng.uniform(-top, top, (2, waves))
    centre = centres(shape, shape)
    amplitude = np.broadcast_to(rng.uniform(-0.3, 0.3, (waves, 3)), (*shape, waves, 3))
    phase = centre @ components + rng.uniform(0, 6, waves)
    return tf.HeatField.from_coefficients(
        asarray(np.full((*shape, 3), 0.5)), asarray(amplitude.copy()), asarray(phase), components, 0.03
    )


@pytest.mark.parametrize(
    "jacobian",
    [
        [[2.5, 0.0], [0.0, 0.4]],
        [[1.6, 1.1], [-0.3, 0.5]],
        [[1.3, 0.2], [0.1, 1.6]],
        [[4.0, 1.0], [-2.0, 3.0]],
        [[9.0, 2.0], [0.5, 1.1]],
    ],
)
def test_a_minifying_footprint_is_a_gaussian_across_cells(asarray, jacobian):
    """Of covariance 2κ up to an input pixel and 2κ₀ beyond, on each axis of the ellipse."""
    field = smooth_field((70, 70), asarray)
    points = 32 + points_in((6, 6), 40)
    out = np.asarray(field.sample(points, jacobian=np.array(jacobian)))
    u, size, _ = np.linalg.svd(np.array(jacobian))
    kappa0 = np.log(4) / (2 * np.pi**2)
    variance = 2 * field.kappa * np.minimum(size, 1) ** 2 + 2 * kappa0 * (np.maximum(size, 1) ** 2 - 1)
    covariance = u @ np.diag(variance) @ u.T
    gain = np.exp(-0.5 * np.einsum("ik,ij,jk->k", field.components, covariance, field.components))
    # Windows end at four standard deviations: 3e-4 of amplitudes that add up to about 1.
    np.testing.assert_allclose(out, direct(field, points, gain=gain), atol=1e-3)


def test_a_covariance_larger_than_a_pixel_is_exact_across_cells(asarray):
    field = smooth_field((60, 60), asarray)
    points = 27 + points_in((6, 6), 40)
    covariance = np.array([[1.5, 0.7], [0.7, 0.9]])
    out = np.asarray(field.sample(points, covariance=covariance))
    gain = np.exp(-0.5 * np.einsum("ik,ij,jk->k", field.components, covariance, field.components))
    np.testing.assert_allclose(out, direct(field, points, gain=gain), atol=1e-3)


def test_a_minifying_homography_equals_supersampling_with_the_same_psf():
    """Point samples of the picture, far finer than both grids, weighted by the whole footprint."""
    field = smooth_field((60, 60))
    matrix = np.array([[3.0, 0.5, 10.0], [-0.4, 2.0, 15.0], [0.02, 0.03, 1.0]])
    out = field.warp(matrix, (8, 8))
    kappa0 = np.log(4) / (2 * np.pi**2)
    axis = (np.arange(60 * 5) + 0.5) / 5
    fine = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    picture = direct(field, fine)
    for i in range(8):
        for j in range(8):
            x = np.array([i + 0.5, j + 0.5, 1.0])
            depth = matrix[2] @ x
            at = matrix[:2] @ x / depth
            u, size, _ = np.linalg.svd((matrix[:2, :2] - np.outer(at, matrix[2, :2])) / depth)
            variance = 2 * field.kappa * np.minimum(size, 1) ** 2 + 2 * kappa0 * (
                np.maximum(size, 1) ** 2 - 1
            )
            d = fine - at
            weight = np.exp(-0.5 * np.einsum("abi,ij,abj->ab", d, u @ np.diag(1 / variance) @ u.T, d))
            expected = np.einsum("ab,abc->c", weight, picture) / weight.sum()
            np.testing.assert_allclose(out[i, j], expected, atol=2e-3)


def test_a_minifying_box_is_the_mean_over_its_parallelogram(asarray):
    field = smooth_field((40, 40), asarray)
    points = 18 + points_in((4, 4), 30)
    jacobian = np.array([[2.5, 0.8], [-0.5, 3.1]])
    out = np.asarray(field.sample(points, tf.Box(), jacobian=jacobian))
    gain = np.prod(np.sinc(jacobian.T @ field.components / (2 * np.pi)), axis=0)
    np.testing.assert_allclose(out, direct(field, points, gain=gain), atol=TOLERANCE)


@pytest.mark.parametrize("scale", [0.7, 0.4, 0.15])
def test_a_minifying_warp_agrees_with_rendering(asarray, scale):
    field = smooth_field((60, 60), asarray)
    rendered = np.asarray(field.render(scale=scale))
    n = len(rendered)
    warped = np.asarray(field.warp(np.diag([60 / n, 60 / n, 1]), (n, n)))
    inner = slice(n // 4, -(n // 4))
    np.testing.assert_allclose(warped[inner, inner], rendered[inner, inner], atol=2e-3)


def test_constant_pictures_stay_constant_through_every_footprint(asarray):
    field = tf.HeatField.from_coefficients(
        asarray(np.full((9, 8, 3), 0.7)),
        asarray(np.zeros((9, 8, 4, 3))),
        asarray(np.zeros((9, 8, 4))),
        np.ones((2, 4)),
        0.03,
    )
    for jacobian in np.array(
        [[[3, 0], [0, 0.2]], [[2, 0], [0, 2]], [[40, 3], [1, 60]], [[100, 0], [0, 0.01]]]
    ):
        for psf in (tf.Gaussian(), tf.Box(), tf.Ideal()):
            out = np.asarray(field.sample(points_in((9, 8)), psf, jacobian=jacobian))
            np.testing.assert_allclose(out, 0.7, rtol=1e-6)


def test_callables_and_matrices_give_the_same_warp(asarray):
    field = random_field(asarray=asarray)

    def mapping(points):
        depth = HOMOGRAPHY[2, 0] * points[:, :1] + HOMOGRAPHY[2, 1] * points[:, 1:] + 1
        row = HOMOGRAPHY[0, 0] * points[:, :1] + HOMOGRAPHY[0, 1] * points[:, 1:] + HOMOGRAPHY[0, 2]
        col = HOMOGRAPHY[1, 0] * points[:, :1] + HOMOGRAPHY[1, 1] * points[:, 1:] + HOMOGRAPHY[1, 2]
        return field.namespace.concat([row / depth, col / depth], axis=1)

    by_matrix = np.asarray(field.warp(HOMOGRAPHY, (12, 11)))
    np.testing.assert_allclose(np.asarray(field.warp(mapping, (12, 11))), by_matrix, atol=TOLERANCE)


def test_a_torch_mapping_is_differentiated_also_without_gradients():
    torch = pytest.importorskip("torch")
    field = random_field(asarray=torch.asarray)
    seen = []

    def mapping(points):
        seen.append(points.requires_grad)
        return points * 0.4

    with torch.no_grad():
        out = field.warp(mapping, (15, 11))
    assert seen == [True]  # one call: no differences were needed
    np.testing.assert_allclose(out, field.warp(np.diag([0.4, 0.4, 1]), (15, 11)), atol=TOLERANCE)


def test_points_outside_are_moved_to_the_edge_or_filled():
    field = random_field()
    points = np.array([[-3.0, 2.2], [8.5, -1.0], [3.3, 2.2]])
    moved = np.array([[0.0, 2.2], [7.0, 0.0], [3.3, 2.2]])
    np.testing.assert_allclose(field.sample(points), field.sample(moved))
    filled = field.sample(points, outside=(1.0, 0.0, 0.5))
    np.testing.assert_array_equal(filled[:2], [[1.0, 0.0, 0.5]] * 2)
    np.testing.assert_allclose(filled[2], field.sample(moved)[2])


def test_beyond_a_horizon_there_is_only_the_value_given():
    field = random_field()
    horizon = np.array([[1.0, 0, 0], [0, 1.0, 0], [-0.2, 0, 1.0]])  # at output row 5
    with pytest.raises(InvalidInput, match="horizon"):
        field.warp(horizon, (8, 5))
    out = field.warp(horizon, (8, 5), outside=-1.0)
    assert np.all(out[5:] == -1)
    assert np.all(np.isfinite(out))
    assert np.all(out[0] > -1)


@pytest.mark.parametrize("mapping", [np.eye(2), "rotate", [[1, 0, 0], [2, 0, 0]], np.full((3, 3), np.nan)])
def test_a_mapping_that_is_none_is_refused(mapping):
    with pytest.raises(InvalidInput, match="mapping"):
        random_field().warp(mapping, (4, 4))


def test_a_callable_that_loses_points_is_refused():
    with pytest.raises(InvalidInput, match="same shape"):
        random_field().warp(lambda points: points[:3], (4, 4))


def test_no_points_give_no_values():
    assert random_field().sample(np.empty((0, 2))).shape == (0, 3)


def test_arguments_of_sample_that_do_not_fit_are_refused():
    field = random_field()
    with pytest.raises(InvalidInput, match="outside='wrap'"):
        field.sample([[1.0, 2.0]], outside="wrap")
    with pytest.raises(InvalidInput, match="3 channels"):
        field.sample([[1.0, 2.0]], outside=(0.5, 0.5))
    with pytest.raises(InvalidInput, match="not numbers"):
        field.sample([[1.0, np.nan]])
    with pytest.raises(InvalidInput, match="points"):
        field.sample(np.zeros((4, 3)))
    with pytest.raises(InvalidInput, match="without psf"):
        field.sample(np.zeros((4, 2)), tf.Box(), covariance=np.eye(2))
    with pytest.raises(InvalidInput, match="positive"):
        field.sample(np.zeros((4, 2)), covariance=-np.eye(2))
    with pytest.raises(InvalidInput, match="symmetric"):
        field.sample(np.zeros((4, 2)), covariance=[[1, 0.5], [0, 1]])
    with pytest.raises(InvalidInput, match=r"covariance of shape \(3,\)"):
        field.sample(np.zeros((4, 2)), covariance=[1, 2, 3])
    with pytest.raises(InvalidInput, match="Footprints"):
        field.sample(np.zeros((4, 2)), jacobian=np.zeros((3, 2, 2)))
