"""What a rendering needs beside the image is made once, kept within bounds, and never mixed up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from field_reference import random_field

import thera.field as tf
from thera.field import HeatField, render
from thera.field.head import TABLE_BYTES
from thera.lru import LRU

REQUESTS = [
    {"scale": 4},
    {"scale": 4, "derivative": (1, 0)},
    {"scale": 4, "derivative": (0, 1)},
    {"scale": 4, "psf": tf.Point()},
    {"scale": 4, "psf": tf.Gaussian(bandwidth=0.5)},
    {"scale": 4, "psf": tf.Gaussian(t=0.5)},
    {"scale": 4, "psf": tf.Box()},
    {"scale": 4, "memory": 50_000},
    {"scale": 4, "region": (1, 1, 4, 4)},
    {"scale": 4, "region": (1, 1, 4, 3)},
    {"size": (28, 21)},
    {"scale": 3.7},
    {"scale": 0.4},
    {"scale": 0.4, "psf": tf.Box(2)},
]


def fresh(field: HeatField) -> HeatField:
    """The same field with nothing remembered."""
    arrays = field.pixels, field.features, field.head_weight, field.head_bias
    return HeatField(*arrays, field.components, field.kappa)


def sibling(field: HeatField, asarray=np.asarray) -> HeatField:
    """The field of another image under the same head."""
    other = random_field(seed=1, asarray=asarray)
    return HeatField.of(field.head, other.pixels, other.features)


def test_a_rendering_that_comes_back_makes_no_table_and_gives_the_same_numbers(asarray, monkeypatch):
    field = random_field(asarray=asarray)
    first = [np.asarray(field.render(**request)).copy() for request in REQUESTS]
    monkeypatch.setattr(render.BandPlan, "of", lambda *_: pytest.fail("made again"))
    for request, before in zip(REQUESTS, first, strict=True):
        assert np.array_equal(field.render(**request), before)


def test_fields_of_one_head_share_tables_and_nothing_else(asarray, monkeypatch):
    field = random_field(asarray=asarray)
    other = sibling(field, asarray)
    expected = [np.asarray(fresh(other).render(**request)) for request in REQUESTS]
    for request in REQUESTS:
        field.render(**request)
    monkeypatch.setattr(render.BandPlan, "of", lambda *_: pytest.fail("made again"))
    for request, wanted in zip(REQUESTS, expected, strict=True):
        assert np.array_equal(other.render(**request), wanted)


def test_tables_of_one_shape_are_not_used_for_another():
    field = random_field(shape=(7, 5))
    crop = field.crop(slice(1, 6), slice(0, 4))
    for request in ({"size": (20, 16)}, {"size": (2, 2)}, {"scale": 3.7}):
        field.render(**request)
        assert np.array_equal(crop.render(**request), fresh(crop).render(**request))


def test_a_result_is_not_overwritten_by_the_next():
    field = random_field()
    first = field.render(scale=4)
    kept = first.copy()
    sibling(field).render(scale=4)
    assert np.array_equal(first, kept)


def test_a_function_of_the_frequencies_is_asked_at_every_rendering():
    field, width = random_field(), [1.0]

    def psf(nu1: np.ndarray, nu2: np.ndarray) -> np.ndarray:
        return np.exp(-width[0] * (nu1**2 + nu2**2))

    first = field.render(scale=2, psf=psf)
    width[0] = 0.1
    assert np.abs(field.render(scale=2, psf=psf) - first).max() > 1e-3
    assert len(field.head.tables) == 0


def test_a_filter_whose_number_is_an_array_renders_all_the_same():
    field = random_field()
    array = field.render(scale=2, psf=tf.Gaussian(bandwidth=np.array(0.5)))  # type: ignore[arg-type]
    assert np.array_equal(array, field.render(scale=2, psf=tf.Gaussian(bandwidth=0.5)))


def test_tables_stay_within_their_bound_however_many_grids_are_read():
    field = random_field(shape=(40, 3), c=256)
    largest = 0
    for rows in range(400, 440):
        field.render(size=(rows, 96))
        largest = max(largest, field.head.tables.nbytes)
    assert TABLE_BYTES / 2 < largest <= TABLE_BYTES  # nothing was lost too early, and nothing kept too long
    assert 0 < len(field.head.tables) < 40


class Lump:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def test_what_was_not_asked_for_longest_is_dropped_and_what_is_too_large_never_kept():
    recent = LRU(10)
    made = [recent.get_or_make(key, lambda: Lump(4)) for key in "ab"]
    assert recent.get_or_make("a", lambda: Lump(4)) is made[0]
    recent.get_or_make("c", lambda: Lump(4))  # "b" was asked for before "a"
    assert recent.get_or_make("a", lambda: Lump(4)) is made[0]
    assert recent.get_or_make("b", lambda: Lump(4)) is not made[1]
    recent.get_or_make("large", lambda: Lump(11))
    assert (len(recent), recent.nbytes) == (2, 8)
    assert recent.get_or_make(None, lambda: Lump(1)) is not recent.get_or_make(None, lambda: Lump(1))


def test_fields_of_one_head_may_be_read_by_several_threads_at_once():
    field = random_field()
    requests = REQUESTS * 4
    expected = [fresh(field).render(**request) for request in REQUESTS] * 4
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda request: field.render(**request), requests))
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, atol=1e-6)  # products may be cut to threads differently
