"""The page on rasters and the docstrings say what is so."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest
import rasterio

import thera.geo

PAGE = (Path(__file__).parents[2] / "docs" / "rasters.md").read_text()


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(thera.geo.__path__)])
def test_docstrings_run(name):
    failed, _ = doctest.testmod(importlib.import_module(f"thera.geo.{name}"))
    assert failed == 0


def test_the_example_runs(make, photo, monkeypatch):
    source = make(np.rint(3000 * photo[None]).astype(np.uint16), nodata=0)
    monkeypatch.chdir(source.parent)
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "import thera" in b)
    exec(block, {})
    with rasterio.open("large.tif") as large, rasterio.open("web.tif") as web:
        assert large.shape == (180, 225)
        assert (web.crs.to_epsg(), web.res) == (3857, (30, 30))
