"""Metrics against independent implementations; each test fails when a constant of the metric is changed."""

import numpy as np
import pytest

from thera.errors import InvalidInput
from thera.evaluation.metrics import gmsd, psnr_rgb, psnr_y, psnr_y8, ssim


def test_psnr_rgb_is_ten_log_of_the_inverse_mean_square():
    target = np.zeros((2, 2, 3))
    image = target.copy()
    image[0, 0, 1] = 0.6  # 0.36 over 12 numbers
    assert psnr_rgb(image, target) == pytest.approx(10 * np.log10(12 / 0.36))


@pytest.mark.parametrize(("channel", "weight"), [(0, 65.738), (1, 129.057), (2, 25.064)])
def test_psnr_y_weighs_each_channel_as_published(channel, weight):
    target = np.zeros((5, 5, 3))
    image = target.copy()
    image[..., channel] = 0.5
    assert psnr_y(image, target) == pytest.approx(-20 * np.log10(0.5 * weight / 256), abs=1e-9)


def test_psnr_y8_rounds_luminance_to_whole_levels():
    target = np.zeros((4, 4, 3))
    # A quarter of a level of luminance vanishes, three quarters become one level.
    assert psnr_y8(np.full_like(target, 0.25 / 255 / 0.858824), target) == np.inf
    assert psnr_y8(np.full_like(target, 0.75 / 255 / 0.858824), target) == pytest.approx(48.1308, abs=1e-4)


def test_equal_images_have_infinite_psnr(distorted):
    assert psnr_rgb(distorted[1], distorted[1]) == np.inf


def test_ssim_equals_torchmetrics(distorted):
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("torchmetrics.functional.image")
    a, b = (torch.tensor(x).permute(2, 0, 1)[None] for x in distorted)
    theirs = functional.structural_similarity_index_measure(a, b, data_range=1.0)
    assert ssim(*distorted) == pytest.approx(float(theirs), abs=1e-5)


def test_ssim_equals_its_definition_at_every_pixel(distorted):
    a, b = (np.pad(x[:14, :13], ((5, 5), (5, 5), (0, 0)), mode="reflect") for x in distorted)
    window = np.exp(-(np.arange(-5, 6) ** 2) / (2 * 1.5**2))
    window = np.outer(window, window)[..., None] / window.sum() ** 2
    values = []
    for row in range(14):
        for column in range(13):
            x, y = (z[row : row + 11, column : column + 11] for z in (a, b))
            mx, my = (window * x).sum((0, 1)), (window * y).sum((0, 1))
            vx, vy = (window * (x - mx) ** 2).sum((0, 1)), (window * (y - my) ** 2).sum((0, 1))
            covariance = (window * (x - mx) * (y - my)).sum((0, 1))
            luminance = (2 * mx * my + 1e-4) / (mx**2 + my**2 + 1e-4)
            values.append(luminance * (2 * covariance + 9e-4) / (vx + vy + 9e-4))
    assert ssim(distorted[0][:14, :13], distorted[1][:14, :13]) == pytest.approx(np.mean(values), abs=1e-5)


def gmsd_by_definition(image, target):
    """Xue et al., section II: on 0…255 values, average-and-halve, Prewitt, T = 170, standard deviation."""
    magnitudes = []
    for picture in (image, target):
        luma = 255 * (picture[..., 0] * 0.299 + picture[..., 1] * 0.587 + picture[..., 2] * 0.114)
        rows, columns = luma.shape
        half = np.zeros(((rows + 1) // 2, (columns + 1) // 2))
        for i in range(half.shape[0]):
            for j in range(half.shape[1]):
                half[i, j] = luma[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].sum() / 4
        padded = np.pad(half, 1)
        prewitt = np.array([[1, 0, -1], [1, 0, -1], [1, 0, -1]]) / 3
        magnitude = np.zeros_like(half)
        for i in range(half.shape[0]):
            for j in range(half.shape[1]):
                patch = padded[i : i + 3, j : j + 3]
                magnitude[i, j] = np.hypot((patch * prewitt).sum(), (patch * prewitt.T).sum())
        magnitudes.append(magnitude)
    r, d = magnitudes
    similarity = (2 * r * d + 170) / (r**2 + d**2 + 170)
    return np.sqrt(np.mean((similarity - similarity.mean()) ** 2))


@pytest.mark.parametrize("crop", [(72, 96), (71, 96), (71, 95)])
def test_gmsd_equals_its_definition(distorted, crop):
    image, target = (x[: crop[0], : crop[1]] for x in distorted)
    assert gmsd(image, target) == pytest.approx(gmsd_by_definition(image, target), abs=1e-9)


@pytest.mark.parametrize("metric", [psnr_rgb, psnr_y, psnr_y8, ssim, gmsd])
def test_images_of_two_sizes_are_refused(metric):
    with pytest.raises(InvalidInput, match="of one size"):
        metric(np.zeros((16, 16, 3)), np.zeros((16, 15, 3)))


@pytest.mark.parametrize("metric", [psnr_rgb, psnr_y, psnr_y8, ssim, gmsd])
def test_tensors_score_as_arrays_do(metric, distorted):
    torch = pytest.importorskip("torch")
    arrays = [x.astype(np.float32)[:71] for x in distorted]
    assert metric(*map(torch.tensor, arrays)) == pytest.approx(metric(*arrays), rel=1e-5)


def test_ssim_refuses_images_smaller_than_its_window():
    with pytest.raises(InvalidInput, match="more than 5 pixels"):
        ssim(np.zeros((5, 40, 3)), np.zeros((5, 40, 3)))
