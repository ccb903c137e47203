"""The folder that `thera site` writes has all that a page needs, and refuses what it cannot use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from thera.errors import InvalidInput
from thera.models import shipped
from thera.site.building import HERE, RUNTIME, WEBGPU, write_site


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "my photo.png"
    Image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(path)
    return path


def test_a_site_has_the_page_the_networks_the_runtime_and_its_licence(tmp_path: Path, picture: Path) -> None:
    size = write_site(tmp_path / "new" / "site", [picture])
    folder = tmp_path / "new" / "site"
    facts = json.loads((folder / "site.json").read_text())
    assert [model["name"] for model in facts["models"]] == ["edsr-air", "edsr-plus"]
    assert facts["pictures"] == [{"name": "my photo.png", "file": "pictures/1.png"}]
    for name in ("index.html", "compute/worker.js", "viewer/painter.js", "runtime/LICENSE"):
        assert (folder / name).is_file()
    for name in (*(model["file"] for model in facts["models"]), *(f"runtime/{name}" for name in RUNTIME)):
        assert (folder / name).stat().st_size > 10_000
    assert (folder / "runtime" / RUNTIME[2]).read_bytes()[:4] == b"\0asm"
    assert size == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_model_is_described_as_it_is(tmp_path: Path) -> None:
    write_site(tmp_path / "site", models=["edsr-air"])
    (described,) = json.loads((tmp_path / "site" / "site.json").read_text())["models"]
    model = shipped()[0]
    assert (described["halo"], described["components"]) == (model.spec.halo, model.spec.components)
    assert described["bytes"] == (tmp_path / "site" / described["file"]).stat().st_size


def test_an_earlier_site_is_replaced_and_other_folders_are_left_alone(tmp_path: Path) -> None:
    write_site(tmp_path / "site", models=["edsr-air"])
    write_site(tmp_path / "site", models=["edsr-plus"])
    assert not (tmp_path / "site" / "models" / "edsr-air.onnx").exists()
    (tmp_path / "site" / "CNAME").write_text("")
    with pytest.raises(InvalidInput, match="site holds other files, such as CNAME"):
        write_site(tmp_path / "site")
    assert (tmp_path / "site" / "CNAME").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    with pytest.raises(InvalidInput, match=r"mine holds other files, such as thesis\.txt: give a new folder"):
        write_site(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()
    with pytest.raises(InvalidInput, match="is a file: give the name of a folder"):
        write_site(tmp_path / "mine" / "thesis.txt")


def test_what_cannot_be_used_is_named(tmp_path: Path, picture: Path) -> None:
    with pytest.raises(InvalidInput, match=r"There is no picture .*gone\.png"):
        write_site(tmp_path / "site", [tmp_path / "gone.png"])
    shutil.copy(picture, tmp_path / "scan.tiff")
    with pytest.raises(InvalidInput, match=r"Not every browser can show .*scan\.tiff: save it as PNG"):
        write_site(tmp_path / "site", [tmp_path / "scan.tiff"])
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "cut.png").write_bytes(picture.read_bytes()[:40])
    for name, reason in (("empty.png", "it is empty"), ("cut.png", "")):
        with pytest.raises(InvalidInput, match=rf"No browser could show .*{name} \({reason}"):
            write_site(tmp_path / "site", [picture, tmp_path / name])
    with pytest.raises(InvalidInput, match="cannot run the model 'edsr-pro': choose one of edsr-air, "):
        write_site(tmp_path / "site", models=["edsr-pro"])
    with pytest.raises(InvalidInput, match="is no folder of onnxruntime-web"):
        write_site(tmp_path / "site", runtime=tmp_path)
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("problem", [RuntimeError("Failed to decode frame 0"), IndexError(), EOFError()])
def test_whatever_a_decoder_raises_a_damaged_picture_is_named(
    tmp_path: Path, picture: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    def load(image: Image.Image) -> None:
        raise problem

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    with pytest.raises(
        InvalidInput, match=rf"could show .* \({str(problem) or 'it is damaged'}\): give another"
    ):
        write_site(tmp_path / "site", [picture])


def test_the_runtime_of_an_npm_folder_brings_webgpu(tmp_path: Path) -> None:
    dist = tmp_path / "node_modules" / "onnxruntime-web" / "dist"
    dist.mkdir(parents=True)
    for name in RUNTIME:
        (dist / name).write_text(name)
    with pytest.raises(InvalidInput, match=r"has no ort\.webgpu\.min\.mjs: install onnxruntime-web"):
        write_site(tmp_path / "site", runtime=tmp_path / "node_modules")
    for name in WEBGPU:
        (dist / name).write_text(name)
    write_site(tmp_path / "site", models=["edsr-air"], runtime=tmp_path / "node_modules")
    assert json.loads((tmp_path / "site" / "site.json").read_text())["webgpu"] is True
    assert all((tmp_path / "site" / "runtime" / name).read_text() == name for name in (*RUNTIME, *WEBGPU))


@pytest.mark.parametrize("name", ["packing.onnx", "rendering.onnx"])
def test_the_stored_graphs_are_those_of_their_generator(name: str) -> None:
    pytest.importorskip("onnx", reason="the graphs are made with: pip install 'thera[export]'")
    import onnx

    from thera.site.graphs import GRAPHS

    stored, made = onnx.load(HERE / "compute" / name), onnx.load_from_string(GRAPHS[name]())
    assert stored == made
    onnxruntime.InferenceSession(stored.SerializeToString(), providers=["CPUExecutionProvider"])
