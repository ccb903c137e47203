"""The page about clusters says what is so: its examples run, and so do those of the docstrings."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import thera.dask

PAGE = Path(__file__).parents[2] / "docs" / "clusters.md"


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(thera.dask.__path__)])
def test_docstrings_run(name):
    failed, _ = doctest.testmod(importlib.import_module(f"thera.dask.{name}"))
    assert failed == 0


def test_the_examples_of_the_page_run(cheap):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    names: dict[str, object] = {"__name__": "page"}  # not a program's main module: no cluster is started
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
