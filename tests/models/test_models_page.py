"""The page on models and the docstrings say what is so."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import thera.models
from thera.models import Model
from thera.networks import Spec

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text()


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(thera.models.__path__)])
def test_docstrings_run(name):
    failed, _ = doctest.testmod(importlib.import_module(f"thera.models.{name}"))
    assert failed == 0


def test_the_example_runs():
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(block, names)
    assert isinstance(names["model"], Model)
    assert names["large"].shape == (60, 80, 3)
    assert names["detail"].shape == (64, 64, 3)


def test_halos_are_those_of_the_networks():
    for backbone in ("edsr", "rdn"):
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| {backbone.upper()} |"))
        stated = [int(re.match(r"\d+", cell.strip()).group()) for cell in row.split("|")[2:5]]
        assert stated == [Spec(backbone, variant).halo for variant in ("air", "plus", "pro")]
