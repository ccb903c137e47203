"""Model files: known by what is in them, written and read back, refused with a sentence when damaged."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from model_reference import checkpoint

from thera.errors import InvalidInput, MissingDependency, ModelError
from thera.models import convert, load, load_network, load_safetensors, save_safetensors, shipped
from thera.models.hub import download, model_in
from thera.networks import Spec, Thera


@pytest.fixture(scope="module")
def air() -> Thera:
    torch.manual_seed(0)
    return Thera(Spec("edsr", "air")).eval()


@pytest.fixture
def air_file(air, tmp_path):
    path = tmp_path / "air.safetensors"
    save_safetensors(air, path)
    return path


def test_a_saved_network_comes_back_exactly(air, tmp_path):
    path = tmp_path / "air"
    save_safetensors(air, path, metadata={"name": "mine", "steps": 7})
    network, metadata = load_safetensors(path)
    assert network.spec == air.spec
    assert (metadata["name"], metadata["steps"], metadata["parameters"]) == ("mine", 7, 1_228_801)
    state = network.state_dict()
    assert all(torch.equal(state[name], value) for name, value in air.state_dict().items())


def test_a_file_that_cannot_be_written_leaves_the_previous_one_whole(air, air_file):
    resource = pytest.importorskip("resource")
    before, limits = air_file.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(ModelError, match=r"air\.safetensors could not be written: file too large\."):
            save_safetensors(air, air_file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert air_file.read_bytes() == before
    assert list(air_file.parent.iterdir()) == [air_file]


def test_half_storage_rounds_weights_and_keeps_bank_kappa_and_biases(air, tmp_path):
    path = tmp_path / "air.safetensors"
    save_safetensors(air, path, storage="f16")
    assert path.stat().st_size < 2 * 1_228_801 + 50_000
    state = load_safetensors(path)[0].state_dict()
    for name, value in air.state_dict().items():
        rounded = name.endswith(".weight")
        assert torch.equal(state[name], value.half().float() if rounded else value), name


def test_the_header_is_the_documented_json(air_file):
    with safetensors.safe_open(air_file, "pt") as file:
        said = json.loads(file.metadata()["thera"])
    assert said["format"] == 1
    assert (said["name"], said["backbone"], said["variant"], said["published"]) == (
        "edsr-air",
        "edsr",
        "air",
        False,
    )


def test_files_are_known_by_their_content_not_by_their_name(air_file, tmp_path):
    disguised = air_file.rename(tmp_path / "air.onnx")
    assert load(disguised).info.engine == "torch"
    with open(disguised, "wb") as file:
        pickle.dump(checkpoint("edsr-air"), file)
    assert load(disguised).info.spec.published


def test_converting_a_published_checkpoint_keeps_what_it_computes(tmp_path):
    source, target = tmp_path / "published.pkl", tmp_path / "ours.safetensors"
    source.write_bytes(pickle.dumps(checkpoint("edsr-air")))
    convert(source, target)
    a, b = load(source), load(target)
    assert a.info.spec == b.info.spec == Spec("edsr", "air", published=True)
    image = np.random.default_rng(0).random((6, 5, 3))
    assert np.array_equal(a.upscale(image, scale=2), b.upscale(image, scale=2))


def test_converting_to_an_unknown_kind_is_refused(air_file, tmp_path):
    with pytest.raises(InvalidInput, match=r"\.safetensors or \.onnx"):
        convert(air_file, tmp_path / "air.pth")


def test_a_file_of_another_format_version_asks_for_an_update(air, tmp_path):
    path = tmp_path / "air"
    header = {"thera": json.dumps({**air.spec.to_dict(), "format": 2})}
    safetensors.torch.save_file({"x": torch.zeros(1)}, path, metadata=header)
    with pytest.raises(ModelError, match="update thera"):
        load(path)


def test_a_damaged_safetensors_file_is_refused(air, air_file, tmp_path):
    data = air_file.read_bytes()
    for length in (0, 5, 9, 200, len(data) - 1):
        path = tmp_path / "cut"
        path.write_bytes(data[:length])
        with pytest.raises(ModelError):
            load(path)
    state = air.state_dict()
    header = {"thera": json.dumps({**air.spec.to_dict(), "parameters": 1})}
    for change, message in (
        ({"kappa": None}, "lacks the parameter kappa"),
        ({"kappa": torch.tensor(float("nan"))}, "numbers in kappa that are not finite"),
        ({"kappa": torch.zeros(2)}, r"kappa of shape \(2,\)"),
        ({"more": torch.zeros(2)}, "does not know: more"),
    ):
        tensors = {name: value for name, value in {**state, **change}.items() if value is not None}
        safetensors.torch.save_file(tensors, tmp_path / "changed", metadata=header)
        with pytest.raises(ModelError, match=message):
            load(tmp_path / "changed")


def test_a_safetensors_file_of_something_else_is_refused(tmp_path):
    safetensors.torch.save_file({"x": torch.zeros(1)}, tmp_path / "x")
    with pytest.raises(ModelError, match="names no Thera model"):
        load(tmp_path / "x")


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    with pytest.raises(ModelError, match="no model"):
        load(path)
    path.write_bytes(b"\x08\x0a" + bytes(100))
    with pytest.raises(ModelError, match="ONNX Runtime cannot read"):
        load(path)


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(ModelError, match=r"There is no file or model 'no-such-model'.*shipped"):
        load("no-such-model")
    with pytest.raises(ModelError, match="There is no file or model"):
        load("n" * 300)


def test_what_an_engine_cannot_do_is_refused(air_file):
    with pytest.raises(InvalidInput, match="engine 'tensorflow'"):
        load(air_file, engine="tensorflow")
    with pytest.raises(InvalidInput, match="precision 'f8'"):
        load(air_file, precision="f8")
    with pytest.raises(InvalidInput, match="computes in f32"):
        load("edsr-air", engine="onnx", precision="bf16")
    for device in ("tpu", "cpu:1", "cuda:x", "gpu:"):
        with pytest.raises(
            InvalidInput, match=f"There is no device '{device}': use auto, cpu, cuda, .*vulkan"
        ):
            load(air_file, device=device)
    assert load(air_file, device="CPU").info.device == "cpu"
    with pytest.raises(InvalidInput, match="finds no device 'cuda:99'"):
        load(air_file, device="cuda:99")


def test_an_ablation_is_saved_and_decoded_point_by_point(tmp_path):
    path = tmp_path / "relu"
    save_safetensors(Thera(Spec("edsr", "air", activation="relu")), path)
    assert load_network(path)[0].spec.activation == "relu"
    assert load(path, device="cpu").upscale(np.zeros((4, 5, 3), np.float32), scale=2).shape == (8, 10, 3)


def test_the_hub_prefers_onnx_then_safetensors_then_pickles(tmp_path):
    with pytest.raises(ModelError, match="holds no model"):
        model_in(tmp_path, "owner/empty")
    for suffix in (".pkl", ".safetensors", ".onnx"):
        (tmp_path / f"model{suffix}").touch()
        assert model_in(tmp_path, "owner/some").suffix == suffix


def test_the_hub_without_a_network_says_so(monkeypatch, tmp_path):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="go online"):
        download("prs-eth/thera-rdn-pro")
    with pytest.raises(InvalidInput, match="hf:owner/repository"):
        load("hf:thera-rdn-pro")


def test_the_hub_takes_what_is_in_the_cache(monkeypatch, air_file):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: str(air_file.parent))
    assert load("hf:owner/repository").info.name == "edsr-air"


@pytest.mark.parametrize(
    ("missing", "thing", "extra"),
    [
        ("torch", "air.safetensors", "thera[torch]"),
        ("huggingface_hub", "hf:owner/repository", "thera[hub]"),
    ],
)
def test_a_missing_part_is_named_with_its_extra(missing, thing, extra, monkeypatch, air_file):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingDependency) as refusal:
        load(thing if thing.startswith("hf:") else air_file, engine="torch")
    assert extra in str(refusal.value)


def test_importing_and_listing_models_brings_no_framework():
    code = (
        "import sys, thera.models; thera.models.shipped();"
        "print([m for m in ('torch', 'onnxruntime', 'onnx', 'huggingface_hub') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_shipped_models_are_listed_by_size():
    sizes = [model.parameters for model in shipped()]
    assert sizes == sorted(sizes)
