"""A field survives a file, and only a whole field comes out of one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from field_reference import random_field
from hypothesis import given, settings
from hypothesis import strategies as st

import thera.field as tf
from thera.errors import FieldFileError


@pytest.mark.parametrize("head", [True, False])
def test_a_loaded_field_renders_the_same(asarray, tmp_path, head):
    field = random_field(asarray=asarray, head=head)
    field.save(tmp_path / "a.field")
    loaded = tf.HeatField.load(tmp_path / "a.field", asarray)
    assert repr(loaded) == repr(field)
    np.testing.assert_array_equal(np.asarray(loaded.render(scale=2.5)), np.asarray(field.render(scale=2.5)))
    assert [path.name for path in tmp_path.iterdir()] == ["a.field"]


def test_saving_replaces_a_file_whole(tmp_path):
    path = tmp_path / "a.field"
    random_field(seed=1).save(path)
    random_field(seed=2).save(path)
    np.testing.assert_array_equal(tf.HeatField.load(path).pixels, random_field(seed=2).pixels)


@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(max_examples=150, deadline=None)
def test_a_flipped_bit_is_noticed_or_harmless(tmp_path_factory, position, bit):
    path = tmp_path_factory.mktemp("bit") / "a.field"
    field = random_field()
    field.save(path)
    data = bytearray(path.read_bytes())
    data[int(position * len(data))] ^= 1 << bit
    path.write_bytes(data)
    try:
        loaded = tf.HeatField.load(path)
    except FieldFileError:
        return
    for name in ("pixels", "features", "head_weight", "head_bias", "components", "kappa"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(field, name))


@pytest.mark.parametrize("kept", [0, 10, 0.3, 0.99])
def test_a_truncated_file_is_refused(tmp_path, kept):
    path = tmp_path / "a.field"
    random_field().save(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if kept < 1 else int(kept)])
    with pytest.raises(FieldFileError, match="damaged"):
        tf.HeatField.load(path)


def test_files_that_are_no_fields_are_refused(tmp_path):
    path = tmp_path / "a.field"
    with pytest.raises(FieldFileError, match="no file"):
        tf.HeatField.load(path)
    path.write_text("a text")
    with pytest.raises(FieldFileError, match="no heat field"):
        tf.HeatField.load(path)
    with open(path, "wb") as file:
        np.savez(file, picture=np.zeros(3))
    with pytest.raises(FieldFileError, match="no heat field"):
        tf.HeatField.load(path)
    with open(path, "wb") as file:
        np.save(file, np.array([{"kind": "thera heat field"}], dtype=object))
    with pytest.raises(FieldFileError, match="no heat field"):
        tf.HeatField.load(path)


def write(path, header: dict, **arrays: np.ndarray) -> None:
    with open(path, "wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)


def test_a_newer_format_and_arrays_that_do_not_fit_are_named(tmp_path):
    path = tmp_path / "a.field"
    header = {"kind": "thera heat field", "format": 1, "kappa": 0.03}
    arrays = {"pixels": np.zeros((2, 2, 3)), "features": np.zeros((2, 2, 5)), "components": np.zeros((2, 1))}
    write(path, header, **arrays)
    with pytest.raises(FieldFileError, match="features of shape"):
        tf.HeatField.load(path)
    write(path, {**header, "format": 2}, **arrays)
    with pytest.raises(FieldFileError, match="format 2"):
        tf.HeatField.load(path)


def test_a_field_that_cannot_be_written_says_why(tmp_path):
    with pytest.raises(FieldFileError, match="could not be written: no such file"):
        random_field().save(tmp_path / "missing" / "a.field")
