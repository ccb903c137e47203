"""ONNX files: small, self-contained, and silent about where they were made."""

from __future__ import annotations

import logging
from functools import cache

import numpy as np
import onnx
import pytest

from thera.errors import InvalidInput, ModelError
from thera.models import export, load
from thera.models.onnx_engine import OnnxEngine
from thera.models.onnx_export import onnx_bytes
from thera.models.onnx_graph import store_half
from thera.networks import Spec, Thera


@cache
def plus() -> Thera:
    return Thera(Spec("edsr", "plus")).eval()


@cache
def plus_bytes() -> bytes:
    return onnx_bytes(plus(), "f32", {"name": "mine", "trained": {"steps": 3}})


def test_the_file_alone_makes_fields():
    weight, bias = plus().folded_head()
    head = OnnxEngine(plus_bytes()).head
    assert np.array_equal(head.weight, weight.numpy())
    assert np.array_equal(head.bias, bias.numpy())
    assert np.array_equal(head.components, plus().components.detach().numpy())
    assert head.kappa == plus().kappa.item()


def test_what_is_known_of_a_model_goes_along(tmp_path):
    path = tmp_path / "a file of any name"
    path.write_bytes(plus_bytes())
    info = load(path).info
    assert (info.name, info.spec, info.parameters) == ("mine", Spec("edsr", "plus"), 2_633_569)
    assert info.metadata["trained"] == {"steps": 3}


def test_half_storage_halves_the_file_and_rounds_the_networks_weights_alone():
    model = onnx.load_from_string(plus_bytes())
    store_half(model.graph)
    half = model.SerializeToString()
    assert len(plus_bytes()) < 4 * 2_633_569 + 100_000  # nothing is stored twice
    assert len(half) < 2 * (2_633_569 + 128 * 2048) + 150_000  # the last layer stays whole
    whole, halved = OnnxEngine(plus_bytes()), OnnxEngine(half)
    assert np.array_equal(whole.head.components, halved.head.components)
    assert np.array_equal(whole.head.bias, halved.head.bias)
    assert np.array_equal(whole.head.weight, halved.head.weight)
    assert whole.head.kappa == halved.head.kappa
    image = np.random.default_rng(0).random((16, 16, 3), np.float32)
    features = whole.features(image)
    # A float16 keeps 11 bits, and the sum of many products rounded so keeps about as many.
    assert 0 < np.abs(features - halved.features(image)).max() < 2**-8 * features.std()


def test_export_writes_half_storage_and_leaves_no_trace_of_the_machine(tmp_path):
    path = tmp_path / "air.onnx"
    export(Thera(Spec("edsr", "air")), path)
    data = path.read_bytes()
    assert len(data) < 2 * 1_228_801 + 50_000
    for trace in (b"site-packages", b".py", b"pkg.torch", b"stack_trace", b"/home", b"/usr", b"/tmp"):
        assert trace not in data


def test_export_leaves_the_level_of_the_exporter_s_log_as_it_was():
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        onnx_bytes(Thera(Spec("edsr", "air")))
        assert logger.level == logging.INFO
    finally:
        logger.setLevel(before)


def test_what_cannot_be_exported_is_refused():
    with pytest.raises(ModelError, match="makes no heat field"):
        onnx_bytes(Thera(Spec("edsr", "air", activation="relu")))
    with pytest.raises(ModelError, match="is seen through the ideal filter, and an ONNX file holds"):
        onnx_bytes(Thera(Spec("edsr", "air", filter="ideal")))
    with pytest.raises(InvalidInput, match="f64"):
        onnx_bytes(Thera(Spec("edsr", "air")), storage="f64")
