"""IIIF Presentation 3: a manifest for each picture, and a collection of all of them.

So that Mirador, the Universal Viewer or Clover open the folder, or one picture of it, by one address.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .requests import Canvas

CONTEXT = "http://iiif.io/api/presentation/3/context.json"
#: Longer side in pixels of the thumbnails in a collection.
THUMBNAIL = 256


def manifest(name: str, base: str, canvas: Canvas, service: str) -> dict[str, Any]:
    """The manifest of the picture at the URI `base`, on a canvas of its own pixels.

    `service` is the URI of the image that viewers take their tiles from: the same picture, enlarged, so that
    they can zoom in beyond its own pixels.

    >>> made = manifest("a.png", "http://x/a.png", Canvas(30, 20, 10**7), "http://x/a.png:8x")
    >>> made["items"][0]["width"], made["items"][0]["items"][0]["items"][0]["body"]["id"]
    (30, 'http://x/a.png:8x/full/30,20/0/default.jpg')
    """
    width, height = canvas.width, canvas.height
    sides = {"width": width, "height": height}
    # As many pixels as the file has cost the least: nothing has to be encoded.
    size = f"{width},{height}" if width * height <= canvas.max_area else "max"
    image = {"id": f"{service}/full/{size}/0/default.jpg", "type": "Image", "format": "image/jpeg"}
    body = image | sides | {"service": [_service(service)]}
    page = f"{base}/canvas/page"
    painting = {
        "id": f"{page}/image",
        "type": "Annotation",
        "motivation": "painting",
        "body": body,
        "target": f"{base}/canvas",
    }
    return {
        "@context": CONTEXT,
        "id": f"{base}/manifest.json",
        "type": "Manifest",
        "label": {"none": [name]},
        "thumbnail": [_thumbnail(base)],
        "items": [
            {
                "id": f"{base}/canvas",
                "type": "Canvas",
                "label": {"none": [name]},
                **sides,
                "items": [{"id": page, "type": "AnnotationPage", "items": [painting]}],
            }
        ],
    }


def collection(name: str, uri: str, pictures: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The collection at `uri` of pictures, each a name and the URI of its image."""
    items = [
        {
            "id": f"{base}/manifest.json",
            "type": "Manifest",
            "label": {"none": [each]},
            "thumbnail": [_thumbnail(base)],
        }
        for each, base in pictures
    ]
    return {"@context": CONTEXT, "id": uri, "type": "Collection", "label": {"none": [name]}, "items": items}


def _thumbnail(base: str) -> dict[str, Any]:
    uri = f"{base}/full/%5E!{THUMBNAIL},{THUMBNAIL}/0/default.jpg"
    return {"id": uri, "type": "Image", "format": "image/jpeg", "service": [_service(base)]}


def _service(uri: str) -> dict[str, str]:
    return {"id": uri, "type": "ImageService3", "profile": "level2"}
