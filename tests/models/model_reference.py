"""Networks with weights made from a formula, and what the published code computes with them.

`data/published/*.npz` hold, for each of the six published models: `source`, a 20×27 image; `manifest`, the
paths and shapes of all parameters; `seed`, from which the weights follow; `encoding`, the features of every
fourth row and fifth column; and `out_HxW_ens0` and `_ens1`, outputs without and with the ensemble.
"""

from __future__ import annotations

import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from thera.models.engine import Engine
from thera.models.model import Model
from thera.models.onnx_engine import OnnxEngine
from thera.models.onnx_export import onnx_bytes
from thera.models.published import from_checkpoint
from thera.models.torch_engine import TorchEngine
from thera.models.weights import describe
from thera.networks import Thera

DATA = Path(__file__).parent.parent / "data"
PUBLISHED = ("edsr-air", "edsr-plus", "edsr-pro", "rdn-air", "rdn-plus", "rdn-pro")


@cache
def vectors(name: str) -> dict[str, Any]:
    with np.load(DATA / "published" / f"{name}.npz") as file:
        return dict(file)


def weight(path: str, shape: list[int], seed: int) -> np.ndarray:
    g = np.random.default_rng([seed, zlib.crc32(path.encode())])
    if path == "params/k":
        return np.float32(0.03).reshape(())
    if path == "params/components":
        r = 8 * np.pi * np.sqrt(g.random(shape[1]))
        angle = 2 * np.pi * g.random(shape[1])
        return np.float32([r * np.cos(angle), r * np.sin(angle)])
    if path.endswith("/kernel"):
        return np.float32(g.standard_normal(shape) / np.sqrt(np.prod(shape[:-1])))
    if path.endswith("/scale"):
        return np.float32(1 + 0.1 * g.standard_normal(shape))
    return np.float32(0.05 * g.standard_normal(shape))


def checkpoint(name: str) -> dict[str, Any]:
    """What a published checkpoint of this model holds, with the formula's weights."""
    data = vectors(name)
    tree: dict[str, Any] = {}
    for path, shape in json.loads(str(data["manifest"])).items():
        *branches, leaf = path.split("/")
        at = tree
        for branch in branches:
            at = at.setdefault(branch, {})
        at[leaf] = weight(path, shape, int(data["seed"]))
    backbone, size = name.split("-")
    return {"model": tree, "backbone": {"edsr": "edsr-baseline", "rdn": "rdn"}[backbone], "size": size}


@cache
def network(name: str) -> Thera:
    return from_checkpoint(checkpoint(name), name)


class Remembering:
    """An engine that computes the features of an image once."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._known = engine, {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def features(self, image: Any) -> Any:
        key = (tuple(image.shape), np.asarray(image).tobytes())
        if key not in self._known:
            self._known[key] = self._engine.features(image)
        return self._known[key]


def torch_model(name: str) -> Model:
    return Model(Remembering(TorchEngine(network(name), "cpu")), describe(network(name)))


def onnx_model(name: str) -> Model:
    """A published model as ONNX, exported on the spot."""
    engine = OnnxEngine(onnx_bytes(network(name), "f32"), threads=1)
    return Model(Remembering(engine), engine.metadata)
