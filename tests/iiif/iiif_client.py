"""A server that runs, and what it sends."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from PIL import Image

from thera.field import HeatField
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


class Counted:
    """A model that takes its time over each block, as a network does, counts them, and finds nothing."""

    def __init__(self, model, seconds=0.0):
        self._model, self.seconds, self.count = model, seconds, 0
        self._head = model.encode(np.zeros((1, 1, 3), np.float32)).head

    def __getattr__(self, name):
        return getattr(self._model, name)

    def encode(self, image):
        if image.shape[0] > 1:
            self.count += 1
            time.sleep(self.seconds)
        return HeatField.of(self._head, image, np.zeros((*image.shape[:2], 64), np.float32))
