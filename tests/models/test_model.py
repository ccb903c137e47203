"""`Model`: what goes in, what comes out, and the ensemble."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from model_reference import network

from thera.errors import InvalidInput
from thera.field import Box, Gaussian, HeatField, Seamless
from thera.models import Model
from thera.models.onnx_engine import OnnxEngine
from thera.models.onnx_export import onnx_bytes
from thera.models.torch_engine import TorchEngine
from thera.models.weights import describe
from thera.networks import Spec, Thera


def loud(spec: Spec) -> Thera:
    """A network whose fields do something: a fresh one starts with amplitudes near zero."""
    torch.manual_seed(0)
    net = Thera(spec).eval()
    with torch.no_grad():
        net.head.weight.mul_(3)
        net.head.bias.add_(0.02)
    return net


@pytest.fixture(scope="module")
def ours() -> Model:
    net = loud(Spec("edsr", "air"))
    return Model(TorchEngine(net, "cpu"), describe(net))


@pytest.fixture(scope="module")
def onnx() -> Model:
    engine = OnnxEngine(onnx_bytes(loud(Spec("edsr", "air")), "f32"), threads=1)
    return Model(engine, engine.metadata)


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(1).random((9, 14, 3), np.float32)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros((4, 4), np.float32), "shape"),
        (np.zeros((4, 4, 4), np.float32), "shape"),
        (np.zeros((3, 40, 40), np.float32), "channels come last"),
        (np.zeros((1, 4, 4, 3), np.float32), "shape"),
        (np.zeros((0, 4, 3), np.float32), "at least one pixel"),
        (np.zeros((4, 4, 3), np.uint8), "divide integers by their range"),
        (np.zeros((4, 4, 3), bool), "floats"),
        (np.zeros((4, 4, 3), complex), "floats"),
        (np.full((4, 4, 3), np.nan), "NaN"),
        (np.full((4, 4, 3), np.inf), "infinite"),
        (torch.zeros(4, 4, 3, dtype=torch.uint8), "divide integers"),
        (torch.full((4, 4, 3), torch.nan), "NaN"),
        ([[[0.0, 0.0, 0.0]]], "type list"),
        ("photo.png", "type str"),
    ],
)
def test_what_is_no_image_is_refused_with_a_hint(wrong, message, ours):
    for call in (ours.encode, ours.encode_rotations, lambda image: ours.upscale(image, scale=2)):
        with pytest.raises(InvalidInput, match=message):
            call(wrong)


@pytest.mark.parametrize("wrong", [{}, {"scale": 2, "size": (4, 4)}, {"scale": 0}, {"size": (0, 3)}])
def test_what_is_no_size_is_refused_before_anything_is_computed(wrong, ours, image, monkeypatch):
    monkeypatch.setattr(ours, "_field", lambda *_: pytest.fail("computed"))
    with pytest.raises(InvalidInput):
        ours.upscale(image, **wrong)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("engine", ["ours", "onnx"])
def test_what_comes_out_is_float32_of_the_library_that_went_in(engine, dtype, image, request):
    model = request.getfixturevalue(engine)
    given = image.astype(dtype)
    numpy, tensor = model.upscale(given, scale=2), model.upscale(torch.from_numpy(given), scale=2)
    assert isinstance(numpy, np.ndarray)
    assert isinstance(tensor, torch.Tensor)
    assert numpy.dtype == np.float32
    assert tensor.dtype == torch.float32
    assert np.array_equal(numpy, tensor.numpy())


def test_output_is_not_clipped(ours):
    bright = np.ones((4, 4, 3), np.float32) * 1.5
    assert ours.upscale(bright, scale=2).max() > 1.4


def test_the_image_is_copied_so_that_changing_it_later_changes_no_field(ours, onnx, image):
    for model in (ours, onnx):
        given = image.copy()
        field = model.encode(given)
        before = np.asarray(field.render(scale=2)).copy()
        given[:] = 0
        assert np.array_equal(field.render(scale=2), before)


def test_views_of_any_order_are_images(ours, image):
    for turned in (image[::-1], image.transpose(1, 0, 2), np.asfortranarray(image), image[::2, ::3]):
        assert np.array_equal(ours.upscale(turned, scale=2), ours.upscale(turned.copy(), scale=2))


def test_engines_agree_on_a_photograph(ours, onnx, photograph):
    a, b = ours.upscale(photograph, scale=2.5), onnx.upscale(photograph, scale=2.5)
    assert np.abs(a - b).max() < 1e-4
    assert np.abs(ours.upscale(photograph, scale=1) - photograph).max() > 1e-3  # the fields are not still


def by_turning_the_image(model: Model, image: np.ndarray, size: tuple[int, int], **options) -> np.ndarray:
    """The ensemble as the paper has it: turn, upscale, turn back, take the mean."""
    outputs = []
    for k in range(4):
        turned = model.upscale(np.rot90(image, k), size=size[::-1] if k % 2 else size, **options)
        outputs.append(np.rot90(turned, -k))
    return np.mean(outputs, axis=0)


# Sizes at which no centre of an output pixel lies on a border: there either neighbour may be read.
@pytest.mark.parametrize("size", [(18, 28), (23, 40), (45, 28), (5, 8)])
@pytest.mark.parametrize("engine", ["ours", "onnx"])
def test_the_ensemble_is_the_mean_over_four_turns_of_the_image(engine, size, image, request):
    model = request.getfixturevalue(engine)
    ensemble = model.upscale(image, size=size, ensemble=True)
    assert np.abs(ensemble - by_turning_the_image(model, image, size)).max() < 2e-6
    assert np.abs(ensemble - model.upscale(image, size=size)).max() > 1e-4  # and not one of them


def test_the_ensemble_goes_through_any_filter(ours, image):
    for psf in (Box(1.5), Gaussian(bandwidth=0.7)):
        ensemble = ours.upscale(image, size=(31, 40), ensemble=True, psf=psf)
        assert np.abs(ensemble - by_turning_the_image(ours, image, (31, 40), psf=psf)).max() < 2e-6


def test_rotated_fields_lie_in_the_orientation_of_the_image(ours, image):
    fields = list(ours.encode_rotations(image))
    assert all(isinstance(field, HeatField) and field.shape == (9, 14) for field in fields)
    region = (2, 3, 7, 11)
    for field in fields:
        part = field.render(scale=2, region=region)
        assert np.abs(np.asarray(field.render(scale=2))[4:14, 6:22] - np.asarray(part)).max() < 1e-6


def test_beyond_eight_times_a_model_is_rendered_without_seams(ours, image):
    field = ours.encode(image)
    large = ours.upscale(image, scale=9)
    assert np.allclose(np.asarray(large), np.asarray(field.render(scale=9, psf=Seamless())), atol=1e-6)
    assert not np.allclose(large, field.render(scale=9), atol=1e-4)
    assert np.allclose(ours.upscale(image, scale=8), field.render(scale=8), atol=1e-6)


def test_published_models_read_both_axes_through_one_t_that_of_the_rows():
    model = Model(TorchEngine(network("edsr-air"), "cpu"), describe(network("edsr-air")))
    assert model.psf((0.5, 1 / 3)) == Gaussian(t=0.25)
    assert model.psf((0.5, 1 / 3), quarters=1) == Gaussian(t=1 / 9)


def test_info_says_what_runs_where(ours, onnx):
    assert repr(ours) == "Model(edsr-air, 1,228,801 parameters, torch on cpu, f32)"
    assert repr(onnx) == "Model(edsr-air, 1,228,801 parameters, onnx on cpu, f32)"
    info = onnx.info
    assert (info.name, info.components, info.halo, info.alignment) == ("edsr-air", 32, 34, 1)
    assert info.kappa == pytest.approx(ours.info.kappa)


def test_ctrl_c_ends_a_running_image():
    """The session below computes until it is told to end, as ONNX Runtime does between two operators."""
    code = """
import os, signal, time
from threading import Timer
import numpy as np
from thera.models import shipped
from thera.models.onnx_engine import OnnxEngine
from thera.models.onnx_templates import complete

class Endless:
    def run(self, outputs, inputs, options):
        Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        while not options.terminate and time.monotonic() < began + 60:
            time.sleep(0.01)
        print("told to end:", options.terminate)
        raise RuntimeError("terminated")

signal.signal(signal.SIGINT, signal.default_int_handler)
engine = OnnxEngine(complete(next(model.safetensors for model in shipped() if model.name == "edsr-air")))
engine._session = Endless()
try:
    engine.features(np.zeros((4, 4, 3), np.float32))
except KeyboardInterrupt:
    print("interrupted")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.splitlines() == ["told to end: True", "interrupted"], run.stderr
