"""The bicubic that makes every low-resolution image, against values found without it."""

import numpy as np
import pytest
from PIL import Image

from thera.errors import InvalidInput
from thera.evaluation.resize import cubic, imresize, resize, taps, to_uint8


def test_kernel_is_keys_cubic_with_a_minus_one_half():
    # The four weights of an interpolation half-way between pixels, known for a = -1/2.
    np.testing.assert_allclose(cubic(np.array([1.5, 0.5, -0.5, -1.5])), [-0.0625, 0.5625, 0.5625, -0.0625])


def test_halving_uses_the_weights_of_matlab():
    # cubic((i + 0.5) / 2) / 2 worked out by hand, in 256ths: 111, 29, -9, -3 on each side.
    index, weight = taps(16, 8)
    inside = weight[4] * 256
    np.testing.assert_allclose(inside, [-3, -9, 29, 111, 111, 29, -9, -3], atol=1e-12)
    assert index[4].tolist() == list(range(5, 13))


def test_doubling_uses_the_weights_of_matlab():
    # Output pixel 3 of 8 lies at input 1.25: cubic(1.25, 0.25, 0.75, 1.75) in 128ths.
    index, weight = taps(4, 8)
    used = weight[3] != 0
    assert index[3][used].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(weight[3][used] * 128, [-9, 111, 29, -3], atol=1e-12)


def test_border_mirrors_with_the_edge_pixel_repeated():
    # Pixel 0 of the output at 0.5: weights for inputs -3…4, of which -1, -2, -3 fold onto 0, 1, 2.
    expected = np.array([111 + 29, 111 - 9, 29 - 3, -9, -3, 0, 0, 0]) / 256
    np.testing.assert_allclose(resize(np.eye(8)[:, :, None], (4, 8))[0, :, 0], expected, atol=1e-12)


def test_the_corner_of_a_file_made_by_matlab_is_matched_exactly():
    # Green of Set5's butterfly, and of its ×2 file. Clamping gives 29 58 98 28, a mirror that does not repeat
    # the edge 25 57 97 29.
    corner = [
        [30, 43, 66, 76, 89, 92, 96, 97],
        [23, 29, 38, 56, 77, 83, 86, 95],
        [62, 32, 25, 35, 45, 53, 74, 88],
        [208, 118, 23, 27, 25, 48, 69, 72],
        [90, 84, 34, 25, 26, 45, 63, 74],
        [17, 22, 29, 33, 27, 27, 28, 66],
        [29, 33, 36, 34, 32, 29, 32, 53],
        [39, 38, 38, 35, 29, 29, 37, 80],
    ]
    assert imresize(np.array(corner, np.uint8), (4, 4))[:2, :2].tolist() == [[28, 59], [101, 28]]


def test_an_impulse_through_a_threefold_reduction_has_the_published_weights():
    # Antialiased by 3: weights cubic(d/3)/3 at distance d; output 2 sits exactly on input 7.
    out = resize(np.eye(15)[:, [7]], (5, 1))[:, 0]
    np.testing.assert_allclose(out, [0.0, 0.0, 1 / 3, 0.0, 0.0], atol=1e-12)
    out = resize(np.eye(15)[:, [6]], (5, 1))[:, 0]
    third = 1.5 / 27 - 2.5 / 9 + 1  # the kernel at 1/3
    two_thirds = 12 / 27 - 10 / 9 + 1  # and at 2/3
    far = -0.5 * (4 / 3) ** 3 + 2.5 * (4 / 3) ** 2 - 4 * (4 / 3) + 2
    np.testing.assert_allclose(out[1:3], [two_thirds / 3, third / 3], atol=1e-12)
    np.testing.assert_allclose(out[3], far / 3, atol=1e-12)


@pytest.mark.parametrize("kernel", ["bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(24, 32), (31, 40), (144, 192), (100, 121)])
def test_agrees_with_pillow_away_from_the_border(kernel, size, photograph):
    image = photograph(72, 96)[..., 0].astype(np.float32)
    filters = {"bicubic": Image.Resampling.BICUBIC, "lanczos": Image.Resampling.LANCZOS}
    theirs = np.asarray(Image.fromarray(image, "F").resize(size[::-1], filters[kernel]))
    ours = resize(image, size, kernel)
    margin = [int(np.ceil(3 * max(1, out / n))) for out, n in zip(size, image.shape, strict=True)]
    inner = np.s_[margin[0] : -margin[0], margin[1] : -margin[1]]
    # Pillow keeps 32-bit floats between its two passes: 1e-3 of 255 grey levels.
    np.testing.assert_allclose(ours[inner], theirs[inner], atol=1e-3)


def test_nearest_repeats_pixels():
    image = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(resize(image, (4, 6), "nearest"), np.repeat(np.repeat(image, 2, 0), 2, 1))


def test_eight_bit_images_are_rounded_after_each_axis_rows_first():
    assert to_uint8(np.array([0.49, 0.5, 1.5, 2.5, -4.0, 256.7])).tolist() == [0, 1, 2, 3, 0, 255]
    step = np.zeros((8, 8, 3), np.uint8)
    step[:, 4:] = 255  # overshoots on both sides of the edge
    exact = resize(step, (4, 4))
    assert exact.min() < 0
    assert exact.max() > 255
    # Along one axis alone, rounding once and twice are the same.
    np.testing.assert_array_equal(imresize(step, (4, 4)), np.floor(np.clip(exact, 0, 255) + 0.5))
    noise = np.random.default_rng(0).integers(0, 256, (24, 18, 3), np.uint8)
    rows = to_uint8(resize(noise, (8, 18)))
    np.testing.assert_array_equal(imresize(noise, (8, 6)), to_uint8(resize(rows, (8, 6))))
    columns = to_uint8(resize(noise, (24, 6)))
    assert (imresize(noise, (8, 6)) != to_uint8(resize(columns, (8, 6)))).any()
    assert (imresize(noise, (8, 6)) != to_uint8(resize(noise, (8, 6)))).any()


def test_a_size_without_pixels_is_refused():
    with pytest.raises(InvalidInput, match="at least one pixel"):
        imresize(np.zeros((4, 4), np.uint8), (0, 4))
