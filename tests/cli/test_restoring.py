"""Models that restore pictures: the same size, their strength, and the choice of a model by the picture."""

import json

import numpy as np
import pytest
from PIL import Image

from thera.models import loading

torch = pytest.importorskip("torch", reason="needs PyTorch")


@pytest.fixture(scope="module")
def restoring(tmp_path_factory):
    """A model file as training with degradations writes it: here Air with other weights and frequencies."""
    from thera.models.loading import load_network
    from thera.models.weights import save_safetensors

    network, _ = load_network("edsr-air")
    torch.manual_seed(0)
    with torch.no_grad():
        network.components.mul_(1.02)
        network.head.weight.mul_(0.8)
        network.head.bias.add_(0.02 * torch.randn_like(network.head.bias))
    path = tmp_path_factory.mktemp("models") / "photo.safetensors"
    save_safetensors(network, path, "f32", {"name": "photo", "restores": True})
    return path


@pytest.fixture
def picture(as_bytes, tmp_path):
    path = tmp_path / "picture.png"
    Image.fromarray(as_bytes).save(path)
    return path


def pixels(path):
    return np.array(Image.open(path)).astype(float)


@pytest.mark.parametrize("scale", [2, 2.7, 0.6])
@pytest.mark.parametrize("ensemble", [False, True])
def test_a_mixture_is_the_mean_of_both_renderings_though_their_banks_differ(
    restoring, photo, scale, ensemble
):
    image = photo[:20, :24]
    clean, other = loading.load("edsr-air", "torch"), loading.load(restoring)
    mixture = loading.load(restoring, strength=0.3)
    found = mixture.upscale(image, scale, ensemble=ensemble)
    one, two = (model.upscale(image, scale, ensemble=ensemble) for model in (clean, other))
    assert abs(one - two).max() > 0.01
    np.testing.assert_allclose(found, 0.7 * one + 0.3 * two, atol=2e-6)
    assert mixture.name == "photo at 30%" and mixture.info.members == 2


def test_fields_of_different_diffusivity_are_not_mixed(restoring, tmp_path):
    from thera.errors import ModelError
    from thera.models.weights import load_safetensors, save_safetensors

    network, about = load_safetensors(restoring)
    with torch.no_grad():
        network.kappa.mul_(1.1)
    save_safetensors(network, tmp_path / "other.safetensors", "f32", about)
    with pytest.raises(ModelError, match=r"different κ .*kappa_rate = 0"):
        loading.load(tmp_path / "other.safetensors", strength=0.5)


@pytest.mark.parametrize(
    "shipped", [m for m in loading.shipped() if m.metadata.get("restores")], ids=lambda m: m.name
)
def test_models_that_ship_and_restore_mix_with_their_clean_model(shipped, photo):
    image = photo[:16, :16]
    clean, half, whole = (
        loading.load(shipped.name, "onnx", strength=s).upscale(image, 2) for s in (0, 0.5, 1)
    )
    assert abs(whole - clean).max() > 0.01
    np.testing.assert_array_equal(clean, loading.load(shipped.spec.name, "onnx").upscale(image, 2))
    np.testing.assert_allclose(half, (clean + whole) / 2, atol=2e-6)


def test_scale_1_restores_only_with_a_model_that_restores(thera, restoring, picture, tmp_path):
    for model, name in ((restoring, "restored.png"), ("edsr-air", "same.png")):
        assert thera("upscale", picture, "-o", tmp_path / name, "-s", 1, "-m", model).status == 0
    np.testing.assert_array_equal(pixels(tmp_path / "same.png"), pixels(picture))
    assert pixels(tmp_path / "restored.png").shape == pixels(picture).shape
    assert abs(pixels(tmp_path / "restored.png") - pixels(picture)).mean() > 0.1


def test_strength_0_is_the_clean_model(thera, restoring, picture, tmp_path):
    thera("upscale", picture, "-o", tmp_path / "a.png", "-s", 2, "-m", restoring, "--strength", 0)
    thera("upscale", picture, "-o", tmp_path / "b.png", "-s", 2, "-m", "edsr-air")
    assert abs(pixels(tmp_path / "a.png") - pixels(tmp_path / "b.png")).max() <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "edsr-air", "--strength", 0.5], "edsr-air restores nothing"),
        (["-m", "edsr-air", "--strength", 2], "--strength"),
    ],
)
def test_a_strength_that_means_nothing_is_refused(thera, picture, tmp_path, arguments, message):
    result = thera("upscale", picture, "-o", tmp_path / "out.png", "-s", 2, *arguments)
    assert result.status and message in result.err
    assert not (tmp_path / "out.png").exists()


@pytest.fixture
def coded(as_bytes, tmp_path):
    path = tmp_path / "coded.jpg"
    Image.fromarray(as_bytes).save(path, quality=40)
    return path


@pytest.fixture
def installed(restoring, monkeypatch):
    """The restoring model as one that is shipped, and Air as the default, which is faster."""
    from thera.models.weights import read_header

    about = read_header(restoring)
    air = next(model for model in loading.shipped() if model.name == "edsr-air")
    photo = loading.Shipped("photo", air.spec, air.parameters, about, restoring)
    monkeypatch.setattr(loading, "shipped", lambda: [air, photo])
    monkeypatch.setattr("thera.models.shipped", lambda: [air, photo], raising=False)
    monkeypatch.setattr("thera.cli.run.DEFAULT_MODEL", "edsr-air")


def test_auto_restores_what_needs_it_and_says_why(thera, installed, coded, picture, tmp_path):
    names = {}
    for path in (coded, picture):
        result = thera(
            "upscale", path, "-o", tmp_path / "out.png", "-s", 2, "-m", "auto", "--overwrite", "--json"
        )
        names[path] = json.loads(result.out)["model"], result.err
    assert names[coded][0] == "photo" and "photo, as it is a JPEG of quality 40 (" in names[coded][1]
    assert names[picture][0] == "edsr-air" and "as it is too small to tell" in names[picture][1]


def test_the_list_says_which_model_learnt_from_pairs(thera, monkeypatch):
    from dataclasses import replace

    air = loading.shipped()[0]
    restoring = {"restores": True, "training": [{"pairs": 9}]}
    models = [air, replace(air, name="zoom", metadata=restoring)]
    monkeypatch.setattr("thera.models.shipped", lambda: models, raising=False)
    first, second = thera("models").out.splitlines()
    assert first.startswith("edsr-air") and "pairs" not in first
    assert second.startswith("zoom") and "pairs of two focal lengths" in second


def test_auto_says_where_strength_changes_nothing(thera, installed, coded, picture, tmp_path):
    note = "--strength changes nothing here: edsr-air restores nothing"
    for path, expected in ((coded, False), (picture, True)):
        result = thera("upscale", path, tmp_path / "a.png", "-s", 2, "--strength", 0.5, "--dry-run", "--json")
        assert (f"note: {note}" in result.err) == expected
        assert any(note in text for text in json.loads(result.out)["notes"]) == expected


def test_auto_without_a_model_that_restores_says_so(thera, coded, tmp_path, monkeypatch):
    monkeypatch.setattr("thera.cli.run.DEFAULT_MODEL", "edsr-air")
    monkeypatch.setattr("thera.cli.run.RESTORING_MODEL", "nowhere")
    result = thera("upscale", coded, "-o", tmp_path / "out.png", "-s", 2, "-m", "auto")
    assert result.status == 0
    assert "a JPEG of quality 40, but no model named nowhere is installed" in result.err


def test_the_program_looks_at_pictures_by_default_and_restores_only_what_it_enlarges(
    thera, installed, coded, tmp_path
):
    for scale, name, why in (
        (2, "photo", "as it is a JPEG of quality 40"),
        (1, "edsr-air", "as it is not enlarged"),
    ):
        result = thera("upscale", coded, tmp_path / "out.png", "-s", scale, "--dry-run", "--json")
        assert json.loads(result.out)["model"] == name and why in result.err
