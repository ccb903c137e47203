"""Thera in ComfyUI: this folder, or a link to it, goes into ComfyUI's `custom_nodes`."""

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("thera") is None:  # where this folder is a link into a clone, that brings it
    sys.path.append(str(Path(__file__).resolve().parents[2] / "src"))

from .nodes import TheraEncode, TheraRender, TheraUpscale

NODE_CLASS_MAPPINGS = {
    "TheraUpscale": TheraUpscale,
    "TheraEncode": TheraEncode,
    "TheraRender": TheraRender,
}
NODE_DISPLAY_NAME_MAPPINGS = {
    "TheraUpscale": "Thera Upscale (any scale)",
    "TheraEncode": "Thera Encode",
    "TheraRender": "Thera Render",
}
