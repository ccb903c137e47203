"""Published checkpoints: how their parameters are named, and how they become ours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from thera.errors import ModelError
from thera.models.pickles import read_pickle
from thera.models.published_liif import from_liif, is_liif
from thera.networks.spec import VARIANTS, Spec

if TYPE_CHECKING:
    from torch import Tensor

    from thera.networks import Network

BACKBONES = {"edsr-baseline": "edsr", "edsr": "edsr", "rdn": "rdn"}

# Our module → theirs. The first match counts.
_SWIN = r"refine/RSTB_\1/BasicLayer_0/SwinTransformerBlock_\2/"
MODULES = tuple(
    (re.compile(ours), theirs)
    for ours, theirs in {
        # EDSR
        r"backbone\.head": "encoder/head/layers_0",
        r"backbone\.body\.(\d+)\.conv1": r"encoder/body/layers_\1/body/layers_0",
        r"backbone\.body\.(\d+)\.conv2": r"encoder/body/layers_\1/body/layers_2",
        r"backbone\.tail": "encoder/body/layers_16",
        # RDN
        r"backbone\.head1": "encoder/Conv_0",
        r"backbone\.head2": "encoder/Conv_1",
        r"backbone\.blocks\.(\d+)\.convs\.(\d+)": r"encoder/RDB_\1/RDB_Conv_\2/Conv_0",
        r"backbone\.blocks\.(\d+)\.fuse": r"encoder/RDB_\1/Conv_0",
        r"backbone\.fuse1": "encoder/Conv_2",
        r"backbone\.fuse2": "encoder/Conv_3",
        # Plus: layers 6 and 14 widen, the others are blocks
        r"hypernetwork\.layers\.(6|14)\.norm": r"refine/layers_\1/LayerNorm_0",
        r"hypernetwork\.layers\.(6|14)\.project": r"refine/layers_\1/Conv_0",
        r"hypernetwork\.layers\.(\d+)\.depthwise": r"refine/layers_\1/residual/layers_0",
        r"hypernetwork\.layers\.(\d+)\.norm": r"refine/layers_\1/residual/layers_1",
        r"hypernetwork\.layers\.(\d+)\.expand": r"refine/layers_\1/residual/layers_2",
        r"hypernetwork\.layers\.(\d+)\.project": r"refine/layers_\1/residual/layers_4",
        # Pro
        r"hypernetwork\.conv_in": "refine/Conv_0",
        r"hypernetwork\.conv_body": "refine/Conv_1",
        r"hypernetwork\.conv_out": "refine/Conv_2",
        r"hypernetwork\.norm_in": "refine/PatchEmbed_0/LayerNorm_0",
        r"hypernetwork\.norm_out": "refine/LayerNorm_0",
        r"hypernetwork\.groups\.(\d+)\.conv": r"refine/RSTB_\1/Conv_0",
        r"hypernetwork\.groups\.(\d+)\.layers\.(\d+)\.norm1": _SWIN + "LayerNorm_0",
        r"hypernetwork\.groups\.(\d+)\.layers\.(\d+)\.norm2": _SWIN + "LayerNorm_1",
        r"hypernetwork\.groups\.(\d+)\.layers\.(\d+)\.expand": _SWIN + "Mlp_0/Dense_0",
        r"hypernetwork\.groups\.(\d+)\.layers\.(\d+)\.project": _SWIN + "Mlp_0/Dense_1",
        r"hypernetwork\.groups\.(\d+)\.layers\.(\d+)\.attention": _SWIN + "WindowAttention_0",
        r"hypernetwork\.groups\.(\d+)\.layers\.(\d+)\.attention\.(qkv|proj)": _SWIN + r"WindowAttention_0/\3",
        r"head": "out_conv",
    }.items()
)
# Our parameter of a module → theirs, by its number of dimensions; those of no module stand alone.
LEAVES = {("weight", 4): "kernel", ("weight", 2): "kernel", ("weight", 1): "scale", ("bias", 1): "bias"}
LEAVES[("bias_table", 2)] = "relative_position_bias_table"
TOP_LEVEL = {"components": "components", "kappa": "k"}


def published_path(name: str, dimensions: int) -> str:
    """The path of our parameter in a published checkpoint.

    >>> published_path("backbone.body.3.conv2.weight", 4)
    'encoder/body/layers_3/body/layers_2/kernel'
    """
    if name in TOP_LEVEL:
        return TOP_LEVEL[name]
    module, _, leaf = name.rpartition(".")
    for ours, theirs in MODULES:
        if match := ours.fullmatch(module):
            return f"{match.expand(theirs)}/{LEAVES[leaf, dimensions]}"
    raise KeyError(name)


def load_published(path: str | Path) -> Network:
    """The network in a checkpoint of Thera's or LIIF's authors."""
    checkpoint = read_pickle(path)
    return (from_liif if is_liif(checkpoint) else from_checkpoint)(checkpoint, str(path))


def from_checkpoint(checkpoint: Any, source: str) -> Network:
    """The network of `{"model": {"params": …}, "backbone": …, "size": …}`."""
    from thera.models.weights import build
    from thera.networks import Thera

    try:
        tree, backbone, size = checkpoint["model"]["params"], checkpoint["backbone"], checkpoint["size"]
    except (KeyError, TypeError, IndexError):
        raise ModelError(
            f"{source} is no published checkpoint: it lacks a model, backbone or size."
        ) from None
    if backbone not in BACKBONES:
        raise ModelError(f"{source} has the backbone {backbone!r}: it must be one of {', '.join(BACKBONES)}.")
    if size not in tuple(VARIANTS):
        raise ModelError(f"{source} has the size {size!r}: it must be one of {', '.join(VARIANTS)}.")
    spec = Spec(BACKBONES[backbone], size, published=True)
    return build(spec, state_dict(tree, Thera(spec).state_dict(), source), source)


def state_dict(tree: Any, expected: dict[str, Tensor], source: str) -> dict[str, Tensor]:
    """Our state dict, made from their tree of parameters."""
    import torch

    found = flatten(numbered(tree))
    state = {}
    for name, parameter in expected.items():
        path = published_path(name, parameter.ndim)
        if path not in found:
            raise ModelError(f"{source} lacks the parameter params/{path}: download it again.")
        kernel, shape = path.endswith("/kernel"), tuple(parameter.shape)
        wanted = (*shape[2:], shape[1], shape[0]) if kernel else shape  # height×width×in×out
        theirs = np.asarray(found.pop(path))
        ours = theirs[0, 0] if kernel and theirs.shape == (1, 1, *wanted) else theirs
        if ours.shape != wanted:
            raise ModelError(f"{source} has params/{path} of shape {theirs.shape}: it must be {wanted}.")
        ours = np.moveaxis(ours, (-1, -2), (0, 1)) if kernel else ours
        state[name] = torch.from_numpy(np.array(ours, np.float32, order="C"))
    if found:
        names = ", ".join(f"params/{path}" for path in sorted(found)[:3])
        raise ModelError(f"{source} has parameters that no published model has: {names}.")
    return state


def numbered(tree: Any) -> Any:
    """The tree with the layers of a nested Sequential named as in current versions of flax.

    flax 0.6.10 stores the convolutions of a Sequential under it. Current versions number them after the
    convolutions beside it: `Conv_0, Sequential_0/layers_0` becomes `Conv_0, Conv_1`.
    """
    if not isinstance(tree, dict):
        return tree
    tree = {name: numbered(branch) for name, branch in tree.items()}
    for name in sorted(n for n in tree if re.fullmatch(r"Sequential_\d+", str(n))):
        layers = tree.pop(name)
        count = sum(str(n).startswith("Conv_") for n in tree)
        for i, layer in enumerate(sorted(layers, key=lambda n: int(n.rpartition("_")[2]))):
            tree[f"Conv_{count + i}"] = layers[layer]
    return tree


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": x}} → {"a/b": x}."""
    flat: dict[str, Any] = {}
    for name, branch in tree.items():
        path = f"{prefix}{name}"
        flat |= flatten(branch, f"{path}/") if isinstance(branch, dict) else {path: branch}
    return flat
