"""LIIF's published checkpoints: how their parameters are named, and how they become ours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from thera.errors import ModelError
from thera.networks.spec import Spec

if TYPE_CHECKING:
    from thera.networks import Network

BACKBONES = {"edsr-baseline": "edsr", "rdn": "rdn"}
# Their module → ours.
MODULES = {
    r"encoder\.head\.0": "backbone.head",
    r"encoder\.body\.(\d+)\.body\.0": r"backbone.body.\1.conv1",
    r"encoder\.body\.(\d+)\.body\.2": r"backbone.body.\1.conv2",
    r"encoder\.body\.16": "backbone.tail",
    r"encoder\.SFENet([12])": r"backbone.head\1",
    r"encoder\.RDBs\.(\d+)\.convs\.(\d+)\.conv\.0": r"backbone.blocks.\1.convs.\2",
    r"encoder\.RDBs\.(\d+)\.LFF": r"backbone.blocks.\1.fuse",
    r"encoder\.GFF\.0": "backbone.fuse1",
    r"encoder\.GFF\.1": "backbone.fuse2",
    r"imnet\.layers\.0": "decoder.perceptron.first",
}
MODULES |= {rf"imnet\.layers\.{2 * i + 2}": f"decoder.perceptron.mlp.{2 * i}" for i in range(4)}
UNUSED = re.compile(r"encoder\.(sub|add)_mean\..*")  # constants of EDSR that LIIF does not apply


def is_liif(checkpoint: Any) -> bool:
    """True for `{"model": {"name": "liif", "args": …, "sd": …}}`."""
    model = checkpoint.get("model") if isinstance(checkpoint, dict) else None
    return isinstance(model, dict) and model.get("name") == "liif" and isinstance(model.get("sd"), dict)


def from_liif(checkpoint: Any, source: str) -> Network:
    """The network of a checkpoint of LIIF's authors, with all three of LIIF's options on."""
    import torch

    from thera.models.weights import build

    model = checkpoint["model"]
    arguments = model.get("args") or {}
    encoder = (arguments.get("encoder_spec") or {}).get("name")
    if encoder not in BACKBONES:
        raise ModelError(f"{source} has the encoder {encoder!r}: it must be one of {', '.join(BACKBONES)}.")
    for option in ("local_ensemble", "feat_unfold", "cell_decode"):
        if not arguments.get(option, True):
            raise ModelError(f"{source} is a LIIF without {option}, an ablation that Thera does not have.")
    state = {}
    for name, array in model["sd"].items():
        if not UNUSED.fullmatch(name):
            state[our_name(name)] = torch.from_numpy(np.array(array, np.float32))
    return build(Spec(BACKBONES[encoder], "liif", published=True), state, source)


def our_name(name: str) -> str:
    """Our name of a parameter; an unknown one keeps its name.

    >>> our_name("encoder.body.3.body.2.weight")
    'backbone.body.3.conv2.weight'
    """
    module, _, leaf = name.rpartition(".")
    for theirs, ours in MODULES.items():
        if match := re.fullmatch(theirs, module):
            return f"{match.expand(ours)}.{leaf}"
    return name
