"""`info.json`: what an image is, and which requests for it are answered."""

from __future__ import annotations

from typing import Any

from .pictures import Facts
from .requests import IMAGE_FORMATS, Canvas

CONTEXT = "http://iiif.io/api/image/3/context.json"
PROFILE = "http://iiif.io/api/image/3/level2.json"
#: Side in pixels of the tiles that viewers are to ask for.
TILE = 512
#: Features beyond level 2.
FEATURES = ("canonicalLinkHeader", "mirroring", "profileLinkHeader", "rotationArbitrary", "sizeUpscaling")


def information(base: str, canvas: Canvas, facts: Facts, larger: str | None = None) -> dict[str, Any]:
    """The image information of the image at the URI `base`; `larger` is the URI of the same image enlarged.

    >>> facts = Facts((900, 1200), grey=False, alpha=False)
    >>> info = information("http://localhost/photo", Canvas(1200, 900, 10**7), facts)
    >>> info["sizes"], info["tiles"]
    ([{'width': 300, 'height': 225}, {'width': 600, 'height': 450}, {'width': 1200, 'height': 900}], \
[{'width': 512, 'height': 512, 'scaleFactors': [1, 2, 4]}])
    """
    tiles = -(-max(canvas.width, canvas.height) // TILE)
    factors = [2**k for k in range((tiles - 1).bit_length() + 1)]  # from the full size down to one tile
    halves = [(-(-canvas.width // factor), -(-canvas.height // factor)) for factor in reversed(factors)]
    info = {
        "@context": CONTEXT,
        "id": base,
        "type": "ImageService3",
        "protocol": "http://iiif.io/api/image",
        "profile": "level2",
        "width": canvas.width,
        "height": canvas.height,
        # What `^max` comes to. More is sent to those who ask for it, up to the area.
        "maxWidth": canvas.width,
        "maxHeight": canvas.height,
        "maxArea": canvas.max_area,
        "sizes": [{"width": w, "height": h} for w, h in halves if w * h <= canvas.max_area],
        "tiles": [{"width": TILE, "height": TILE, "scaleFactors": factors}],
        # Transparency needs a format that has it.
        "preferredFormats": ["webp", "png"] if facts.alpha else ["jpg", "webp", "png"],
        "extraFormats": [name for name in IMAGE_FORMATS if name not in ("jpg", "png")],
        "extraQualities": [*(() if facts.grey else ("color",)), "gray", "bitonal"],
        "extraFeatures": list(FEATURES),
    }
    if larger is not None:
        info["service"] = [{"id": larger, "type": "ImageService3", "profile": "level2"}]
    return info
