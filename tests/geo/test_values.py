"""Values as the network sees them, and nodata."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from thera.errors import InvalidInput
from thera.values.bands import Bands, Group
from thera.values.ranges import Stretch, marked, type_range
from thera.values.survey import Percentiles, find_ranges

TYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8"]


@pytest.mark.parametrize("dtype", TYPES)
def test_percentiles_are_exact_however_the_numbers_come(dtype):
    @settings(max_examples=40, deadline=None)
    @given(
        hnp.arrays(
            dtype,
            st.integers(1, 60),
            elements={"allow_nan": False, "allow_infinity": False} if dtype[0] == "f" else None,
        ),
        st.integers(1, 20),
    )
    def check(numbers, piece):
        percents = (0.0, 2.0, 50.0, 99.5, 100.0)
        wanted = Percentiles(np.dtype(dtype), percents)
        for _ in range(wanted.passes):
            total = np.zeros((len(percents), 2**16), np.int64)
            for start in range(0, len(numbers), piece):
                total += wanted.counted(numbers[start : start + piece])
            wanted.narrow(total)
        ordered = np.sort(numbers)
        expected = [float(ordered[round(p / 100 * (len(numbers) - 1))]) for p in percents]
        assert wanted.values == expected

    check()


def test_ranges_of_many_bands_are_found_in_the_memory_of_a_few(monkeypatch):
    samples = np.random.default_rng(0).integers(0, 60_000, (5, 7, 11), np.uint16)
    bands, rule = Bands(tuple(Group((k,)) for k in range(11))), Stretch.parse("10%:90%")

    def found():
        return find_ranges(bands, samples.dtype, rule, lambda: [(samples, None)])

    at_once = found()
    monkeypatch.setattr("thera.values.survey._TOGETHER", 4)
    assert found() == at_once and len(at_once) == 11
    assert len({span.high for span in at_once}) > 1


def test_ranges_are_told_in_four_ways():
    assert Stretch.parse("dtype").kind == "dtype"
    assert Stretch.parse("percentile") == Stretch("percentile", 0.5, 99.5)
    assert Stretch.parse("2%:98%") == Stretch("percentile", 2, 98)
    assert Stretch.parse("-0.5:1e4") == Stretch("given", -0.5, 1e4)


@pytest.mark.parametrize(
    "text", ["", "all", "5", "5:5", "9:1", "2%:98", "0%:101%", "nan:1", "0:inf", "1:2:3"]
)
def test_what_is_no_range_is_refused_with_the_four_ways(text):
    with pytest.raises(InvalidInput, match="percentile"):
        Stretch.parse(text)


@pytest.mark.parametrize(
    ("dtype", "nodata"), [("u1", 0), ("u1", 255), ("i2", -32768), ("f4", -9999), ("f4", 0)]
)
def test_nodata_marks_what_is_not_valid_and_nothing_else(dtype, nodata):
    samples = np.array([nodata, 7, nodata, 9], dtype)
    valid = np.array([True, True, False, False])
    out = marked(samples, valid, nodata)
    assert ((out == nodata) == ~valid).all()
    assert abs(float(out[0]) - nodata) <= max(1, abs(nodata) * 1e-6)
    assert out[1] == 7


def test_a_type_spans_what_it_holds():
    assert (type_range(np.dtype("i2")).low, type_range(np.dtype("u2")).high) == (-32768, 65535)
    assert (type_range(np.dtype("f4")).low, type_range(np.dtype("f4")).high) == (0, 1)
