"""A server that runs, and what it sends."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from PIL import Image

from thera.iiif.server import PREFIX, Server


@dataclass
class Running:
    """A server that listens, and a client that asks it."""

    server: Server
    url: str
    client: httpx.Client

    def get(self, path: str, **options: Any) -> httpx.Response:
        """GET below /iiif/3."""
        return self.client.get(f"{self.url}{PREFIX}{path}", **options)


def as_array(response: httpx.Response) -> np.ndarray:
    """The samples of an image that was sent."""
    assert response.status_code == 200, response.text
    return np.asarray(Image.open(io.BytesIO(response.content)))
