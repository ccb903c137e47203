"""A photograph, the shipped model that a page draws live, and the page's program without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import thera
from thera.field import HeatField
from thera.models import Model

ASTRONAUT = Path(__file__).parents[1] / "data" / "astronaut.png"


@pytest.fixture(scope="session")
def air() -> Model:
    return thera.load("edsr-air")


@pytest.fixture(scope="session")
def astronaut() -> NDArray[np.float32]:
    with Image.open(ASTRONAUT) as image:
        return np.asarray(image.convert("RGB"), np.float32) / 255


@pytest.fixture(scope="session")
def astronaut_field(air: Model, astronaut: NDArray[np.float32]) -> HeatField:
    return air.encode(astronaut)


@pytest.fixture
def client() -> Iterator[object]:
    pytest.importorskip("fastapi", reason="the page needs: pip install 'thera[web]'")
    from fastapi.testclient import TestClient

    from thera.web.app import create_app

    with TestClient(create_app(), base_url="http://127.0.0.1:8372") as client:
        yield client
