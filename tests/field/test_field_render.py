"""Rendering onto regular grids equals the field's equation, at any scale and in any region."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from field_reference import away_from_borders, centres, direct, random_field
from hypothesis import given, settings
from hypothesis import strategies as st

import thera.field as tf
from thera.errors import InvalidInput

# float32 sums of 2c products of size 0.1, and phases of some radians known to 1e-7 of themselves.
TOLERANCE = 1e-5


def assert_equals_direct(field: tf.HeatField, out: np.ndarray, t: float) -> None:
    points = centres(field.shape, out.shape[:2])
    kept = away_from_borders(points)
    np.testing.assert_allclose(out[kept], direct(field, points, t)[kept], atol=TOLERANCE)


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("scale", [1, 2, 3, 4, 8, 40])
def test_render_at_integer_scale_equals_direct_evaluation(asarray, scale, head):
    field = random_field(asarray=asarray, head=head)
    out = np.asarray(field.render(scale=scale))
    assert out.shape == (7 * scale, 5 * scale, 3)
    assert_equals_direct(field, out, 1 / scale**2)


@pytest.mark.parametrize("scale", [1.01, 1.5, 2.5, 3.7, math.pi, 33.3])
def test_render_at_any_scale_equals_direct_evaluation_at_the_size_it_gives(asarray, scale):
    field = random_field(asarray=asarray)
    size = (round(7 * scale), round(5 * scale))
    out = np.asarray(field.render(scale=scale, psf=tf.Gaussian(t=0.2)))
    assert out.shape == (*size, 3)
    assert_equals_direct(field, out, 0.2)


@given(rows=st.integers(1, 90), cols=st.integers(1, 90), t=st.floats(0, 4))
@settings(max_examples=30, deadline=None)
def test_render_at_any_size_equals_direct_evaluation(asarray, rows, cols, t):
    field = random_field(asarray=asarray)
    out = np.asarray(field.render(size=(rows, cols), psf=tf.Gaussian(t=t)))
    assert_equals_direct(field, out, t)


def test_the_default_filter_is_the_heat_kernel_at_the_scale_of_each_axis(asarray):
    field = random_field(asarray=asarray)
    out = np.asarray(field.render(scale=(2, 3)))
    w1, w2 = field.components
    gain = np.exp(-field.kappa * (w1**2 / 4 + w2**2 / 9))
    np.testing.assert_allclose(out, direct(field, centres((7, 5), (14, 15)), gain=gain), atol=TOLERANCE)


@given(data=st.data(), rows=st.integers(5, 60), cols=st.integers(5, 60))
@settings(max_examples=30, deadline=None)
def test_a_region_on_output_pixels_is_the_crop_of_the_whole(asarray, data, rows, cols):
    field = random_field(asarray=asarray)
    top, bottom = sorted(data.draw(st.lists(st.integers(0, rows), min_size=2, max_size=2, unique=True)))
    left, right = sorted(data.draw(st.lists(st.integers(0, cols), min_size=2, max_size=2, unique=True)))
    region = (top * 7 / rows, left * 5 / cols, bottom * 7 / rows, right * 5 / cols)
    whole = np.asarray(field.render(size=(rows, cols)))
    part = np.asarray(field.render(size=(bottom - top, right - left), region=region))
    # The same numbers in products of other shapes, summed in another order.
    np.testing.assert_allclose(part, whole[top:bottom, left:right], atol=TOLERANCE)


def test_a_region_at_a_scale_has_the_scale_of_the_whole():
    field = random_field()
    whole = field.render(scale=2.6)  # 18×13 pixels: the scales that hold are 18/7 and 13/5
    part = field.render(scale=2.6, region=(7 * 3 / 18, 5 * 4 / 13, 7 * 9 / 18, 5))
    np.testing.assert_allclose(part, whole[3:9, 4:], atol=TOLERANCE)


def test_a_region_may_lie_between_output_pixels():
    field = random_field()
    out = field.render(size=(6, 4), region=(1.13, 0.4, 3.53, 1.9), psf=tf.Gaussian(t=0.1))
    rows, cols = 1.13 + 0.4 * (np.arange(6) + 0.5), 0.4 + 0.375 * (np.arange(4) + 0.5)
    points = np.stack(np.meshgrid(rows, cols, indexing="ij"), axis=-1)
    np.testing.assert_allclose(out, direct(field, points, 0.1), atol=TOLERANCE)


@pytest.mark.parametrize(("scale", "memory"), [(0.4, 20_000), (1.7, 40_000), (3, 100_000), (40.5, 1_000_000)])
def test_bands_within_a_small_budget_join_to_the_whole(asarray, scale, memory):
    field = random_field(asarray=asarray, shape=(23, 11))
    whole = np.asarray(field.render(scale=scale))
    bands = list(field.render_bands(scale=scale, memory=memory))
    assert len(bands) > 1
    assert [start for start, _ in bands] == list(np.cumsum([0] + [len(band) for _, band in bands[:-1]]))
    np.testing.assert_allclose(np.concatenate([np.asarray(b) for _, b in bands]), whole, atol=TOLERANCE)


@pytest.mark.parametrize("scale", [20, 21.3, 0.4])
def test_rendering_in_bands_stays_within_its_budget(scale):
    field, budget = random_field(shape=(120, 160)), 64 << 20
    tracemalloc.start()
    try:
        size = sum(band.nbytes for _, band in field.render_bands(scale=scale, memory=budget))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < budget
    assert size > budget or scale < 1


@pytest.mark.parametrize("channels", [1, 4])
def test_a_field_may_have_any_number_of_channels(asarray, channels):
    field = random_field(asarray=asarray, channels=channels)
    assert_equals_direct(field, np.asarray(field.render(scale=2.5, psf=tf.Point())), 0)


def test_renderings_are_float32_of_the_fields_own_library(asarray):
    field = random_field(asarray=asarray)
    out = field.render(scale=2)
    assert type(out) is type(field.pixels)
    assert str(out.dtype).endswith("float32")


def test_a_crop_renders_as_the_region_it_covers():
    field = random_field()
    crop = field.crop(slice(2, 6), slice(1, 4))
    np.testing.assert_allclose(crop.render(scale=3), field.render(scale=3)[6:18, 3:12], atol=TOLERANCE)


@pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf, "large", (1, 2, 3), (2, 0), 0.01])
def test_a_scale_that_means_nothing_is_refused(scale):
    with pytest.raises(InvalidInput, match="scale="):
        random_field().render(scale=scale)


@pytest.mark.parametrize("size", [(0, 4), (4,), (-2, 3), (2.5, 3), (math.nan, 2)])
def test_a_size_that_means_nothing_is_refused(size):
    with pytest.raises(InvalidInput, match="size="):
        random_field().render(size=size)


@pytest.mark.parametrize("wish", [{"scale": 1e9}, {"scale": 1e308}, {"size": (10**6, 10**6)}])
def test_a_slip_of_the_keyboard_is_refused_with_the_pixels_it_asks_for(wish):
    with pytest.raises(InvalidInput, match="pixels, more than the 100,000,000,000"):
        random_field().render(**wish)
    assert random_field().render(scale=1e9, region=(2, 2, 2 + 3e-9, 2 + 4e-9)).shape == (3, 4, 3)


def test_what_does_not_fit_in_memory_is_refused_with_the_way_to_have_it(monkeypatch):
    field = random_field()
    empty = field.namespace.empty

    def full(shape, **options):
        if len(shape) == 3:  # the result
            raise MemoryError
        return empty(shape, **options)

    monkeypatch.setattr(field.namespace, "empty", full)
    with pytest.raises(InvalidInput, match=r"500×700 pixels do not fit in memory.*render_bands"):
        field.render(scale=100, memory=100_000)


def test_scale_and_size_exclude_each_other():
    with pytest.raises(InvalidInput, match="exactly one"):
        random_field().render()
    with pytest.raises(InvalidInput, match="exactly one"):
        random_field().render(scale=2, size=(3, 3))


@pytest.mark.parametrize(
    "region", [(0, 0, 8, 5), (3, 0, 3, 5), (-1, 0, 3, 5), (0, 0, 7), (0, 0, math.nan, 5)]
)
def test_a_region_outside_the_image_or_empty_is_refused(region):
    with pytest.raises(InvalidInput, match="region="):
        random_field().render(scale=2, region=region)


def test_arrays_that_do_not_fit_together_are_refused():
    pixels, components = np.zeros((4, 4, 3)), np.ones((2, 8))
    with pytest.raises(InvalidInput, match="features"):
        tf.HeatField(pixels, np.zeros((4, 5, 6)), np.zeros((6, 32)), np.zeros(32), components, 0.03)
    with pytest.raises(InvalidInput, match="head"):
        tf.HeatField(pixels, np.zeros((4, 4, 6)), np.zeros((6, 31)), np.zeros(32), components, 0.03)
    with pytest.raises(InvalidInput, match="half of a head"):
        tf.HeatField(pixels, np.zeros((4, 4, 6)), np.zeros((6, 32)), None, components, 0.03)
    with pytest.raises(InvalidInput, match="kappa"):
        tf.HeatField(pixels, np.zeros((4, 4, 32)), None, None, components, math.nan)
    with pytest.raises(InvalidInput, match="components"):
        tf.HeatField(pixels, np.zeros((4, 4, 32)), None, None, np.ones((3, 8)), 0.03)
    with pytest.raises(InvalidInput, match="amplitude"):
        tf.HeatField.from_coefficients(pixels, np.zeros((4, 4, 3, 8)), np.zeros((4, 4, 8)), components, 0.03)


def test_arrays_of_two_libraries_are_refused():
    torch = pytest.importorskip("torch")
    pixels, amplitude, phase = np.zeros((4, 4, 3)), np.zeros((4, 4, 8, 3)), torch.zeros((4, 4, 8))
    with pytest.raises(InvalidInput, match="amplitude as ndarray, phase as Tensor; give all as"):
        tf.HeatField.from_coefficients(pixels, amplitude, phase, np.ones((2, 8)), 0.03)
    with pytest.raises(InvalidInput, match="features as Tensor"):
        tf.HeatField(pixels, torch.zeros((4, 4, 32)), None, None, np.ones((2, 8)), 0.03)
    with pytest.raises(InvalidInput, match="head_weight as Tensor"):
        tf.HeatField(
            pixels, np.zeros((4, 4, 6)), torch.zeros((6, 32)), torch.zeros(32), np.ones((2, 8)), 0.03
        )
