"""The guide to training says what is so: its commands and links exist, and the docstrings' examples run."""

import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest

import thera.training

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / name for name in ("training.md", "notebook.md")]


@pytest.mark.parametrize("name", [m.name for m in pkgutil.iter_modules(thera.training.__path__)])
def test_docstrings_run(name):
    failed, _ = doctest.testmod(importlib.import_module(f"thera.training.{name}"))
    assert failed == 0


def test_commands_of_the_guide_have_only_options_that_exist():
    lines = re.findall(r"^    thera (.+)$", PAGES[0].read_text("utf-8"), re.MULTILINE)
    assert len(lines) >= 6
    for name, *arguments in map(shlex.split, lines):
        command = importlib.import_module(f"thera.cli.{name}").command
        command.make_context(name, arguments)  # click raises an error otherwise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_keys_that_the_pages_name_exist(page):
    text = page.read_text("utf-8")
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert (page.parent / link).exists(), link
    for name in re.findall(r"configs/[\w/.-]*", text):
        assert (ROOT / name).exists(), name
    keys = importlib.import_module("thera.training.config").Config().flat()
    removed = {"data.detail", "objective.seam"}
    for key in set(re.findall(r"`((?:data|objective|teacher|optimiser)\.\w+)`", text)) - removed:
        assert key in keys
