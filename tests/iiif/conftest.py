"""A real server, in a thread of this process, on folders made for the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from iiif_client import Running
from PIL import Image

import thera
from thera.iiif.application import create_app
from thera.iiif.server import Server, Settings
from thera.models import Model

PHOTO = Path(__file__).parents[1] / "data" / "astronaut.png"


Serve = Callable[..., Running]


@pytest.fixture(scope="session")
def model() -> Model:
    return thera.load("edsr-air")


@pytest.fixture(scope="session")
def serve_in_session(model) -> Iterator[Serve]:
    """`serve(folder, **settings)` starts a server; all of them end with the session."""
    stops = []

    def serve(folder: Path, by: Model | None = None, **settings: Any) -> Running:
        server = Server(folder, by or model, Settings(**settings))
        config = uvicorn.Config(create_app(server), port=0, log_level="warning")
        web = uvicorn.Server(config)
        thread = threading.Thread(target=web.run, daemon=True)
        thread.start()
        while not web.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        port = web.servers[0].sockets[0].getsockname()[1]
        client = httpx.Client(timeout=120)

        def stop() -> None:
            client.close()
            web.should_exit = True
            thread.join(30)

        stops.append(stop)
        return Running(server, f"http://127.0.0.1:{port}", client)

    yield serve
    for stop in stops:
        stop()


@pytest.fixture
def serve(serve_in_session) -> Serve:
    return serve_in_session


@pytest.fixture(scope="session")
def pixels() -> np.ndarray:
    """64×96×3 bytes of a photograph."""
    return np.asarray(Image.open(PHOTO).convert("RGB"))


@pytest.fixture
def folder(tmp_path, pixels) -> Path:
    """A folder with one photograph, `photo.png`."""
    images = tmp_path / "images"
    images.mkdir()
    Image.fromarray(pixels).save(images / "photo.png")
    return images


@pytest.fixture(scope="session")
def photo_server(serve_in_session, tmp_path_factory, pixels) -> Running:
    """A server of one photograph, for tests that change nothing."""
    images = tmp_path_factory.mktemp("images")
    Image.fromarray(pixels).save(images / "photo.png")
    return serve_in_session(images)
