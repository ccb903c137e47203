"""The examples in README, in the manual and in docstrings run and give what they say."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from PIL import Image

import thera.imaging

ROOT = Path(__file__).parents[2]
MODULES = [module.name for module in pkgutil.iter_modules(thera.imaging.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_run(name):
    failed, _ = doctest.testmod(importlib.import_module(f"thera.imaging.{name}"))
    assert failed == 0


@pytest.mark.parametrize("page", ["README.md", "docs/usage.md"])
def test_pages_run(page, tmp_path, monkeypatch):
    (tmp_path / "docs" / "images").mkdir(parents=True)
    astronaut = Image.open(ROOT / "docs" / "images" / "astronaut.png")
    astronaut.crop((60, 20, 192, 84)).save(tmp_path / "docs" / "images" / "astronaut.png")  # less to compute
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})


def test_pages_name_only_files_that_are_there():
    for page in (ROOT / "README.md", ROOT / "docs" / "usage.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), link
