"""What samples mean is decided by one set of options, whatever array they come in."""

import doctest
import importlib

import numpy as np
import pytest

import thera
from thera.errors import InvalidInput
from thera.field.grid import Axis
from thera.values.bands import Bands, Group
from thera.values.meaning import Meaning
from thera.values.planes import Plane, fill_reach, planes_of
from thera.values.ranges import Range, Stretch, holds
from thera.values.samples import ArraySamples
from thera.values.survey import Survey, find_ranges

U1, F4 = np.dtype("u1"), np.dtype("f4")


def groups_of(meaning: Meaning, count: int) -> list[tuple[int, ...]]:
    return [group.bands for group in meaning.bands(count, U1).groups]


def test_three_or_four_bands_begin_with_a_colour_and_two_or_four_end_with_an_alpha():
    for count, groups, alpha in (
        (1, [(0,)], None),
        (2, [(0,), (1,)], 1),
        (3, [(0, 1, 2)], None),
        (4, [(0, 1, 2), (3,)], 3),
        (5, [(0,), (1,), (2,), (3,), (4,)], None),
    ):
        assert groups_of(Meaning(), count) == groups
        assert Meaning().bands(count, U1).alpha == alpha
        assert Meaning(alpha="data").bands(count, U1).alpha is None
        assert Meaning(groups=[]).bands(count, U1).alpha is None
    assert Meaning(groups=[], alpha="cover").bands(6, U1).alpha == 5


def test_bands_that_no_group_names_are_seen_one_by_one():
    assert groups_of(Meaning(groups=[(2, 1, 0)]), 4) == [(2, 1, 0), (3,)]
    assert groups_of(Meaning(groups=[(5, 1, 3), 2]), 6) == [(0,), (2,), (4,), (5, 1, 3)]
    named = Meaning(groups=[("B04", "B03", "B02"), "B08"]).named(["B02", "B03", "B04", "B08"])
    assert groups_of(named, 4) == [(2, 1, 0), (3,)]


def test_names_declare_colours_and_alpha():
    declared = Meaning().named(["Blue", "NIR", "green", "RED", "alpha"])
    assert groups_of(declared, 5) == [(1,), (3, 2, 0), (4,)]
    assert declared.bands(5, U1).alpha == 4
    assert Meaning(alpha="data").named(["red", "green", "blue", "alpha"]).bands(4, U1).alpha is None
    for names in (["red", "green", "blue", "red"], [1, 2, 3], ["alpha"]):
        bands = Meaning().named(names).bands(len(names), U1)
        assert (bands.count, bands.alpha) == (len(names), None)
        assert all(len(group.bands) == 1 for group in bands.groups)


def test_nodata_is_for_all_bands_but_an_alpha():
    assert Meaning(nodata=7).bands(4, U1).nodata == (7, 7, 7, None)
    assert Meaning(nodata=[7, None, 9, None], groups=[]).bands(4, U1).nodata == (7, None, 9, None)
    assert np.isnan(Meaning(nodata=np.nan).bands(1, F4).nodata[0])
    for nodata in (256, -1, 1.5, np.nan, "7", [7], [7, "x"]):
        with pytest.raises(InvalidInput, match="expected a value of uint8"):
            Meaning(nodata=nodata).bands(2, U1)
    assert holds(F4, -3.4e38) and not holds(F4, "0") and not holds(U1, np.inf)


@pytest.mark.parametrize(
    ("value_range", "dtype", "expected"),
    [
        (None, "u2", [(0, 65535)] * 2),
        (None, "i2", [(-50, 900), (0, 10)]),
        (None, "f4", [(-50, 900), (0, 10)]),
        ("dtype", "i2", [(-32768, 32767)] * 2),
        ("0%:100%", "i2", [(-50, 900), (-32768, 32767)]),
        ((3, 4), "u1", [(3, 4), (0, 255)]),
        ([(1, 9), (0, 5), (2, 7), (3, 8)], "u1", [(0, 9), (3, 8)]),
        (Stretch("given", 3, 4), "u1", [(3, 4), (0, 255)]),
    ],
)
def test_a_range_is_of_a_group_and_an_alpha_keeps_its_own(value_range, dtype, expected):
    samples = np.zeros((5, 4, 4), dtype)
    samples[0, 0] = (-50 if dtype[0] != "u" else 0, 3, 900 if dtype != "u1" else 90, 10)
    meaning = Meaning(value_range)
    bands = meaning.bands(4, samples.dtype)
    ranges = find_ranges(bands, samples.dtype, meaning.rule(4), lambda: [(samples, None)])
    assert ranges == [Range(*map(float, pair)) for pair in expected]


def test_what_is_invalid_or_hidden_has_no_part_in_a_range():
    image = np.full((6, 5, 4), 20, np.float32)
    image[0] = (-1e9, 1e9, 0, 0)  # hidden
    image[1:, 1, :3], image[5, 4, 3] = np.nan, 7
    image[3] = (10, 30, 20, 3)
    for rule, expected in ((None, (10, 30)), ("0%:100%", (10, 30)), ("50%:100%", (20, 30))):
        meaning = Meaning(rule, nodata=np.nan)
        bands = meaning.bands(4, F4)
        samples = ArraySamples(image, bands)
        window = samples.read((0, 0, 6, 5), range(4))
        ranges = find_ranges(bands, F4, meaning.rule(4), lambda window=window: [window])
        assert ranges[0] == Range(*map(float, expected))
    for rule in (None, "percentile"):
        with pytest.raises(InvalidInput, match="NaN"):
            thera.upscale(image, 2, model="edsr-air", value_range=rule, alpha="data")


def test_a_picture_without_valid_samples_spans_its_type():
    bands = Meaning(nodata=0, groups=[]).bands(1, np.dtype("i2"))
    samples = ArraySamples(np.zeros((4, 4, 1), np.int16), bands)
    for rule in (None, Stretch.parse("percentile")):
        window = samples.read((0, 0, 4, 4), range(1))
        (found,) = find_ranges(bands, samples.dtype, rule, lambda window=window: [window])
        assert found == Range(-32768, 32767)


def test_percentiles_are_the_same_in_either_byte_order():
    numbers = np.random.default_rng(0).normal(size=(20, 30, 1)).astype("<f4")
    bands = Bands((Group((0,)),))
    rule = Stretch.parse("2%:98%")
    little, big = (
        find_ranges(bands, a.dtype, rule, lambda a=a: [(a, None)]) for a in (numbers, numbers.astype(">f4"))
    )
    assert little == big


def test_a_survey_that_knows_all_ranges_takes_no_pass():
    survey = Survey(Meaning().bands(4, U1), U1, None)
    assert (survey.passes, survey.ranges) == (0, [Range(0.0, 255.0)] * 2)


def test_bands_of_a_group_may_lie_anywhere():
    image = np.random.default_rng(0).integers(0, 256, (9, 8, 4), np.uint8)
    bands = Meaning(groups=[(1, 0, 3)]).bands(4, U1)
    samples = ArraySamples(image, bands)
    planes = planes_of(samples, bands, [Range(0.0, 255.0)] * 2, 34)
    colour = next(plane for plane in planes if plane.group.bands == (1, 0, 3))
    np.testing.assert_allclose(colour.cells((0, 0, 9, 8)) * 255, image[..., [1, 0, 3]], atol=1e-4)
    out = np.zeros_like(image)
    for plane in planes:
        plane.store(plane.cells((0, 0, 9, 8)), out)
    np.testing.assert_array_equal(out, image)


@pytest.mark.parametrize("halo", [2, 34, 50, 104])
def test_what_stands_in_for_samples_comes_from_as_far_as_is_said(halo):
    bands = Meaning(nodata=0).bands(1, U1)
    reads = []

    class Watched(ArraySamples):
        def read(self, box, bands):
            reads.append(box)
            return super().read(box, bands)

    samples = Watched(np.zeros((2000, 2000, 1), np.uint8), bands)
    (plane,) = planes_of(samples, bands, [Range(0.0, 255.0)], halo)
    reached = 0
    for at in range(1000, 1000 + 4 * halo, 7):
        plane.cells((at, at + 3, at + 1, at + 4))
        top, left, bottom, right = reads[-1]
        reached = max(reached, at - top, at + 3 - left, bottom - at - 1, right - at - 4)
    assert fill_reach(halo) * 0.9 < reached <= fill_reach(halo)


def test_a_colour_of_any_three_bands_is_that_colour(model):
    image = np.random.default_rng(0).integers(0, 256, (12, 10, 5), np.uint8)
    scaled = thera.upscale(image, 2, model=model, groups=[(4, 0, 2)])
    np.testing.assert_array_equal(
        scaled[..., [4, 0, 2]], thera.upscale(image[..., [4, 0, 2]], 2, model=model)
    )
    np.testing.assert_array_equal(scaled[..., 3], thera.upscale(image[..., 3], 2, model=model))


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4"])
def test_nodata_is_where_it_was_and_nowhere_else(model, dtype):
    image = np.random.default_rng(0).integers(1, 4, (30, 20)).astype(dtype)
    image[:9] = image[20, 3] = 0
    scaled = thera.upscale(image, 2.5, model=model, nodata=0)
    rows, cols = ((np.arange(n) + 0.5) / 2.5 for n in scaled.shape)
    np.testing.assert_array_equal(scaled == 0, (image == 0)[np.ix_(rows.astype(int), cols.astype(int))])
    nothing = thera.upscale(np.zeros_like(image), 2.5, model=model, nodata=0)
    assert not nothing.any()


def test_what_nodata_hides_does_not_matter(model):
    image = np.random.default_rng(0).integers(1000, 3000, (40, 30)).astype(np.int16)
    results = []
    for mark in (-9999, 0, 32767):
        marked = image.copy()
        marked[10:20, 5:9] = mark
        scaled = thera.upscale(marked, 2, model=model, nodata=mark, value_range="percentile")
        results.append(np.where(scaled == mark, -1, scaled))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_a_wholly_transparent_array_keeps_its_colours_and_stays_so(model):
    image = np.random.default_rng(0).integers(0, 256, (9, 8, 4), np.uint8)
    image[..., 3] = 0
    scaled = thera.upscale(image, 2, model=model)
    assert not scaled[..., 3].any()
    np.testing.assert_array_equal(scaled[..., :3], thera.upscale(image[..., :3], 2, model=model))


def test_options_of_arrays_are_refused_for_pillow_images(model):
    from PIL import Image

    image = Image.new("RGBA", (8, 6), (10, 20, 30, 0))
    with pytest.raises(InvalidInput, match="this is a Pillow image: leave them out, or give"):
        thera.upscale(image, 2, model=model, nodata=0)
    assert thera.upscale(image, 2, model=model, alpha="data").size == (16, 12)


@pytest.mark.parametrize("name", ["bands", "meaning", "planes", "ranges", "survey", "alpha"])
def test_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(f"thera.values.{name}")).failed == 0


def test_outliers_widen_the_range_only_so_far():
    values = np.append(np.linspace(0, 100, 10_001), [-50.0, 1e6])
    survey = [((values[None, :, None]), None)]
    (span,) = find_ranges(Bands((Group((0,)),)), values.dtype, Stretch("extent"), lambda: survey)
    assert span.low == -50 and span.high == pytest.approx(50 + 10 * 99, rel=1e-3)
    constant = [(np.full((1, 300, 1), 7.0), None)]
    (span,) = find_ranges(Bands((Group((0,)),)), values.dtype, Stretch("extent"), lambda: constant)
    assert (span.low, span.high) == (7, 8)


def test_results_stay_near_the_pixels_around_them():
    """A quarter of their range beyond at most, whatever the network makes of an outlier."""
    samples = np.zeros((6, 6, 1), np.int16)
    samples[2, 2] = 8000
    bands = Bands((Group((0,)),))
    plane = Plane(ArraySamples(samples, bands), Group((0,)), Range(0, 100, local=True), 4)
    out = np.zeros((12, 12, 1), np.int16)
    rows = Axis.whole(6, 12)
    plane.put(np.full((12, 12, 3), 300, np.float32), rows, rows, out)
    assert (out[2:8, 2:8] == 10_000).all()  # 8000, and a quarter of 0 to 8000
    out[2:8, 2:8] = 0
    assert (out == 0).all()
    at = np.array([[2.5, 2.5], [5.9, 0.1]])
    out = np.zeros((2, 1), np.int16)
    plane.put_at(np.full((2, 3), -300, np.float32), at, 0.5, out)
    assert out.ravel().tolist() == [-2000, 0]
