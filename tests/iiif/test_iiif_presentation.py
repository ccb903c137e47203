"""Manifests and the collection: one address opens a picture, or the folder, in a viewer for IIIF."""

import numpy as np
from iiif_client import as_array
from PIL import Image

CONTEXT = "http://iiif.io/api/presentation/3/context.json"


def test_a_manifest_shows_the_picture_on_a_canvas_of_its_pixels(photo_server, pixels):
    response = photo_server.get("photo.png/manifest.json")
    made = response.json()
    base = f"{photo_server.url}/iiif/3/photo.png"
    assert response.headers["content-type"] == f'application/ld+json;profile="{CONTEXT}"'
    assert response.headers["access-control-allow-origin"] == "*"
    assert (made["@context"], made["type"], made["id"]) == (CONTEXT, "Manifest", f"{base}/manifest.json")
    assert made["label"] == {"none": ["photo.png"]}
    (canvas,) = made["items"]
    assert (canvas["type"], canvas["width"], canvas["height"]) == ("Canvas", 96, 64)
    (page,) = canvas["items"]
    (painting,) = page["items"]
    assert (page["type"], painting["type"], painting["motivation"]) == (
        "AnnotationPage",
        "Annotation",
        "painting",
    )
    assert painting["target"] == canvas["id"]
    body = painting["body"]
    sent = as_array(photo_server.client.get(body["id"]))
    assert sent.shape == (body["height"], body["width"], 3)
    assert np.abs(sent.astype(float) - pixels).mean() < 3  # as a JPEG


def test_a_viewer_can_zoom_beyond_the_pixels_of_a_manifest(photo_server):
    made = photo_server.get("photo.png/manifest.json").json()
    (service,) = made["items"][0]["items"][0]["items"][0]["body"]["service"]
    info = photo_server.client.get(f"{service['id']}/info.json").json()
    assert (info["id"], info["type"], info["profile"]) == (
        service["id"],
        service["type"],
        service["profile"],
    )
    assert (info["width"], info["height"]) == (8 * 96, 8 * 64)


def test_every_id_of_a_manifest_is_its_own(photo_server):
    text = photo_server.get("photo.png/manifest.json").json()

    def ids(part):
        if isinstance(part, dict):
            yield from ([part["id"]] if "id" in part and part.get("type") != "ImageService3" else [])
            for each in part.values():
                yield from ids(each)
        elif isinstance(part, list):
            for each in part:
                yield from ids(each)

    found = list(ids(text))
    assert len(found) == len(set(found)) == 6
    assert all(each.startswith("http://") for each in found)


def test_the_collection_lists_every_picture_and_decodes_none(serve, tmp_path, pixels):
    (tmp_path / "maps").mkdir()
    Image.fromarray(pixels).save(tmp_path / "maps" / "berlin ost.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    running = serve(tmp_path)
    made = running.get("collection.json").json()
    base = f"{running.url}/iiif/3"
    assert (made["@context"], made["type"], made["id"]) == (CONTEXT, "Collection", f"{base}/collection.json")
    assert [item["label"]["none"] for item in made["items"]] == [["broken.png"], ["maps/berlin ost.png"]]
    uri = made["items"][1]["id"]
    assert uri == f"{base}/maps%2Fberlin%20ost.png/manifest.json"
    assert running.client.get(uri).json()["id"] == uri
    thumbnail = made["items"][1]["thumbnail"][0]
    assert max(as_array(running.client.get(thumbnail["id"])).shape[:2]) == 256
    assert running.client.get(made["items"][0]["id"]).status_code == 500


def test_addresses_follow_the_proxy(serve, folder):
    running = serve(folder, url="https://images.example.org/iiif/3/")
    made = running.get("photo.png/manifest.json").json()
    assert made["id"] == "https://images.example.org/iiif/3/photo.png/manifest.json"
    listed = running.get("collection.json").json()
    assert listed["items"][0]["id"] == made["id"]


def test_a_manifest_is_not_sent_twice(photo_server):
    first = photo_server.get("photo.png/manifest.json")
    again = photo_server.get("photo.png/manifest.json", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
