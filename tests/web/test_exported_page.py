"""`thera app IMAGE --export page.html`: one file, with everything in it."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from unpacking import unpack

from thera.cli.main import run
from thera.field import HeatField
from thera.web import export

ASTRONAUT = Path(__file__).parents[1] / "data" / "astronaut.png"


def export_by_program(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        run(["app", *map(str, arguments)])
    return int(ended.value.code or 0), capsys.readouterr().err


def test_an_exported_page_holds_the_field_and_needs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], astronaut_field: HeatField
) -> None:
    page = tmp_path / "page.html"
    assert export_by_program(capsys, ASTRONAUT, "--export", page)[0] == 0
    text = page.read_text(encoding="utf-8")
    found = re.search(r'id="field">([^<]+)<', text)
    assert found is not None
    field = unpack(base64.b64decode(found[1]))
    assert np.abs(field.render(scale=2) - astronaut_field.render(scale=2)).max() < 0.3 / 255
    for address in re.findall(r'(?:src|href)="([^"]+)"', text):
        assert address.startswith("data:")
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text


def test_an_exported_page_says_that_transparency_is_on_white(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGBA", (8, 8), (200, 0, 0, 128)).save(tmp_path / "glass.png")
    assert export_by_program(capsys, tmp_path / "glass.png", "--export", tmp_path / "page.html")[0] == 0
    facts = re.search(r'id="facts">([^<]+)<', (tmp_path / "page.html").read_text(encoding="utf-8"))
    assert facts is not None and "transparent is shown on white" in facts[1]


def test_names_are_text_and_never_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = tmp_path / "<script>alert(1)<!--.png"
    image.write_bytes(ASTRONAUT.read_bytes())
    assert export_by_program(capsys, image, "--export", tmp_path / "page.html")[0] == 0
    assert "<script>alert" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_what_cannot_be_exported_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    status, said = export_by_program(capsys, ASTRONAUT, "--export", page, "-m", "edsr-plus")
    assert status == 1 and "export with an Air model" in said
    status, said = export_by_program(capsys, "--export", page)
    assert status == 2 and "takes one image" in said
    monkeypatch.setattr(export, "MOST_CELLS", 100)
    status, said = export_by_program(capsys, ASTRONAUT, "--export", page)
    assert status == 1 and "make it smaller first" in said
    page.touch()
    status, said = export_by_program(capsys, ASTRONAUT, "--export", page)
    assert status == 1 and "--overwrite" in said and page.stat().st_size == 0


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("page", "end it in .html"),
        ("page.png", "end it in .html"),
        ("photo.html", "the input itself"),
        ("folder.html", "is a folder"),
    ],
)
def test_nothing_but_a_page_is_replaced_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], page: str, words: str
) -> None:
    image = tmp_path / "photo.html"  # known by its content, whatever it is called
    image.write_bytes(ASTRONAUT.read_bytes())
    (tmp_path / "folder.html").mkdir()
    before = sorted(tmp_path.iterdir())
    status, said = export_by_program(capsys, image, "--export", tmp_path / page, "--overwrite")
    assert status == 1 and words in said
    assert sorted(tmp_path.iterdir()) == before and image.read_bytes() == ASTRONAUT.read_bytes()


def test_a_picture_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = export_by_program(capsys, tmp_path / "none.png", "--export", tmp_path / "page.html")
    assert status == 1 and "does not exist" in said
    Image.new("RGB", (3, 2)).save(tmp_path / "small.png")
    assert export_by_program(capsys, tmp_path / "small.png", "--export", tmp_path / "page.html")[0] == 0
