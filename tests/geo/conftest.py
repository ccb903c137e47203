"""Small rasters, a model, and the real program."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import thera

rasterio = pytest.importorskip("rasterio")

Make = Callable[..., Path]


@pytest.fixture(scope="session")
def model() -> thera.Model:
    return thera.load("edsr-air")


@pytest.fixture(scope="session")
def photo() -> np.ndarray:
    """120×150 numbers from 0 to 1: part of a photograph."""
    from PIL import Image

    path = Path(__file__).parents[2] / "docs" / "images" / "astronaut.png"
    return np.asarray(Image.open(path).convert("L"), np.float32)[20:140, 60:210] / 255


@pytest.fixture
def make(tmp_path) -> Make:
    """`make(bands, nodata=…, …)` writes count×H×W samples as a GeoTIFF of 10 m pixels in Norway."""

    def write(bands: np.ndarray, name: str = "scene.tif", describe: Any = None, **profile: Any) -> Path:
        count, height, width = bands.shape
        options = {
            "driver": "GTiff",
            "crs": "EPSG:32633",
            "transform": rasterio.Affine(10, 0, 400_000, 0, -10, 6_600_000),
            "tiled": True,
            "blockxsize": 64,
            "blockysize": 64,
            **profile,
        }
        path = tmp_path / name
        with rasterio.open(
            path, "w", height=height, width=width, count=count, dtype=bands.dtype.name, **options
        ) as dataset:
            dataset.write(bands)
            if describe is not None:
                describe(dataset)
        return path

    return write
