"""What the server says of its images, and how it takes load, faults and bad input."""

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from iiif_client import Counted, as_array
from PIL import Image

from thera.iiif.server import PREFIX


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@pytest.fixture
def large(tmp_path) -> str:
    """A picture of many blocks."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "large"
    folder.mkdir()
    Image.fromarray(rng.integers(0, 255, (700, 900, 3), np.uint8)).save(folder / "large.png")
    return folder


def test_information_says_what_is_served(photo_server):
    response = photo_server.get("photo.png/info.json")
    info = response.json()
    assert info["id"] == f"{photo_server.url}/iiif/3/photo.png"
    assert next(iter(info)) == "@context"
    assert (info["type"], info["profile"], info["width"], info["height"]) == (
        "ImageService3",
        "level2",
        96,
        64,
    )
    assert "sizeUpscaling" in info["extraFeatures"]
    assert info["maxArea"] == photo_server.server.settings.max_pixels  # a MUST for those who enlarge
    (larger,) = info["service"]
    assert larger["id"] == f"{photo_server.url}/iiif/3/photo.png:8x"
    assert photo_server.client.get(larger["id"] + "/info.json").json()["width"] == 96 * 8


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "application/ld+json"),
        ("application/ld+json", "application/ld+json"),
        ("application/json", "application/json"),
        ("application/json;q=0.5, application/ld+json", "application/ld+json"),
        ("application/ld+json;q=0.2, application/json", "application/json"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "application/json"),
        ("*/*", "application/ld+json"),
        ("nonsense;;q=x", "application/ld+json"),
    ],
)
def test_information_comes_as_the_type_that_is_asked_for(photo_server, accept, kind):
    headers = {} if accept is None else {"Accept": accept}
    response = photo_server.get("photo.png/info.json", headers=headers)
    assert response.headers["content-type"].split(";")[0] == kind
    assert response.headers["vary"] == "Accept"


def test_base_uri_redirects_to_the_information(photo_server):
    for path in ("photo.png", "photo.png/"):
        response = photo_server.get(path)
        assert response.status_code == 303
        assert response.headers["location"] == f"{photo_server.url}/iiif/3/photo.png/info.json"


def test_identifiers_of_subfolders_have_their_slashes_encoded(serve, folder):
    (folder / "sub folder").mkdir()
    (folder / "photo.png").rename(folder / "sub folder" / "é.png")
    running = serve(folder)
    info = running.get("sub%20folder%2F%C3%A9.png/info.json").json()
    assert info["id"].endswith("/iiif/3/sub%20folder%2F%C3%A9.png")
    assert running.client.get(info["id"] + "/full/max/0/default.jpg").status_code == 200
    assert running.get("sub%20folder/%C3%A9.png/info.json").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "..%2F..%2Fetc%2Fpasswd/info.json",
        "%2Fetc%2Fpasswd/full/max/0/default.jpg",
        "../photo.png/info.json",
        "photo.png%00/info.json",
        "a/b/c/d/e/f/g",
        "photo.png/full/max/0",
        "",
    ],
)
def test_other_paths_are_not_found(photo_server, path):
    port = int(photo_server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as raw:  # no client that tidies the path first
        raw.sendall(f"GET {PREFIX}{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.split()[1] in (b"404", b"400")
    assert b"root:" not in answer


def test_uris_are_those_that_clients_use(serve, folder):
    running = serve(folder, url="https://images.example.org/iiif/3/")
    info = running.get("photo.png/info.json").json()
    assert info["id"] == "https://images.example.org/iiif/3/photo.png"
    link = running.get("photo.png/full/^pct:200/0/default.jpg").headers["link"]
    assert (
        '<https://images.example.org/iiif/3/photo.png/full/%5E192,128/0/default.jpg>;rel="canonical"' in link
    )


def test_responses_are_cached_by_their_tags(photo_server):
    for path in ("photo.png/full/80,/0/default.jpg", "photo.png/info.json"):
        first = photo_server.get(path)
        tag = first.headers["etag"]
        assert first.headers["cache-control"] == "public, max-age=3600"
        for known in (tag, f'"other", W/{tag}', "*"):
            again = photo_server.get(path, headers={"If-None-Match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == tag
        assert photo_server.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    same = photo_server.get("photo.png/0,0,96,64/80,53/0.0/color.jpg")
    assert same.headers["etag"] == photo_server.get("photo.png/full/80,/0/default.jpg").headers["etag"]
    other = photo_server.get("photo.png/full/80,/0/default.png")
    assert other.headers["etag"] != same.headers["etag"]


def test_head_answers_as_get_does_without_the_work(serve, folder, model):
    counting = Counted(model)
    running = serve(folder, by=counting)
    url = f"{running.url}{PREFIX}photo.png/full/^pct:300/0/default.webp"
    head = running.client.head(url)
    assert counting.count == 0
    get = running.client.get(url)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("etag", "content-type", "link", "cache-control", "access-control-allow-origin"):
        assert head.headers[name] == get.headers[name]
    assert running.client.head(f"{running.url}{PREFIX}missing/info.json").status_code == 404


def test_pages_of_every_origin_may_read_every_response(photo_server):
    url = f"{photo_server.url}{PREFIX}photo.png/"
    for response in (
        photo_server.client.get(url + "info.json"),
        photo_server.client.get(url + "full/max/0/default.jpg"),
        photo_server.client.get(url + "full/9999,/0/default.jpg"),
        photo_server.client.get(f"{photo_server.url}{PREFIX}missing/info.json"),
        photo_server.client.options(url + "info.json", headers={"Access-Control-Request-Method": "GET"}),
    ):
        assert response.headers["access-control-allow-origin"] == "*"
        assert "GET" in response.headers["access-control-allow-methods"]
    assert photo_server.client.post(url + "info.json").status_code == 405


def test_refusals_say_why(serve, folder):
    running = serve(folder, max_pixels=40_000)
    for path, status, reason in (
        ("photo.png/full/^300,/0/default.jpg", 400, "40,000 pixels"),
        ("photo.png/full/^240,/45/default.jpg", 400, "40,000 pixels"),
        ("photo.png/full/200,/0/default.jpg", 400, "^200,"),
        ("photo.png/full/max/0/default.tif", 400, "jpg, png, webp"),
        ("other.png/full/max/0/default.jpg", 404, "other.png"),
    ):
        response = running.get(path)
        assert response.status_code == status
        assert reason in response.text
        assert response.headers["content-type"].startswith("text/plain")
        assert response.headers["cache-control"] == "no-store"


def test_damaged_file_is_an_error_of_its_own(serve, folder):
    content = (folder / "photo.png").read_bytes()
    (folder / "cut.png").write_bytes(content[: len(content) // 2])
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.tif").write_bytes(b"not an image")
    not_numbers = np.full((8, 8), np.nan, np.float32)
    Image.fromarray(not_numbers).save(folder / "nan.tif")
    huge = (
        b"\x89PNG\r\n\x1a\n"
        + b"\0\0\0\rIHDR"
        + (10**6).to_bytes(4, "big") * 2
        + b"\x08\x02\0\0\0"
        + b"\0" * 4
    )
    (folder / "bomb.png").write_bytes(huge)
    running = serve(folder)
    for name in ("cut.png", "empty.jpg", "text.tif", "nan.tif", "bomb.png"):
        for path in ("info.json", "full/max/0/default.jpg"):
            response = running.get(f"{name}/{path}")
            assert response.status_code == 500, (name, response.text)
            assert name in response.text and str(folder) not in response.text
    assert running.get("photo.png/full/^pct:200/0/default.jpg").status_code == 200


def test_changed_file_is_read_and_encoded_again(serve, folder, pixels):
    running = serve(folder)
    path = "photo.png/full/^pct:200/0/default.png"
    before = running.get(path)
    Image.fromarray(255 - pixels).save(folder / "photo.png")
    after = running.get(path)
    assert before.headers["etag"] != after.headers["etag"]
    negative = 255 - as_array(before).astype(float)
    assert np.sqrt(np.mean((as_array(after) - negative) ** 2)) < 10  # the network is not quite odd
    os.remove(folder / "photo.png")
    assert running.get(path).status_code == 404


def test_fields_outlive_the_server_and_damage_to_them(serve, folder, tmp_path):
    path = "photo.png/full/^pct:400/0/default.png"
    first = serve(folder, cache=tmp_path / "cache")
    sent = as_array(first.get(path))
    assert first.server.blocks.encoded == 1
    second = serve(folder, cache=tmp_path / "cache")
    np.testing.assert_array_equal(as_array(second.get(path)), sent)
    assert second.server.blocks.encoded == 0
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    third = serve(folder, cache=tmp_path / "cache")
    np.testing.assert_array_equal(as_array(third.get(path)), sent)
    assert third.server.blocks.encoded == 1


def test_only_the_blocks_that_are_looked_at_are_encoded_once(serve, large, model):
    counting = Counted(model)
    running = serve(large, by=counting)
    side = running.server.blocks.side
    inside = f"large.png:8x/{8 * side + 64},64,512,512/512,512/0/default.jpg"
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: running.get(inside).status_code, range(8)))
    assert set(answers) == {200} and counting.count == 1
    running.get("large.png/full/300,/0/default.jpg")
    assert counting.count == 1


def test_memory_stays_within_its_bound(serve, large, model):
    running = serve(large, by=Counted(model), memory=12 << 20)
    for left in range(0, 6400, 1600):
        for top in (0, 2048, 4096):
            assert running.get(f"large.png:8x/{left},{top},256,256/max/0/default.jpg").status_code == 200
            assert running.server.memory.nbytes <= 12 << 20
    assert running.server.blocks.encoded >= 8


def test_more_requests_than_the_queue_holds_are_turned_away(serve, large, model):
    running = serve(large, by=Counted(model, 0.5), queue=3)
    running.get("large.png/info.json")

    def ask(i: int):
        return running.get(f"large.png/{i},{i},50,50/^100,/0/default.jpg")

    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, range(8)))
    busy = [answer for answer in answers if answer.status_code == 503]
    assert busy and {answer.status_code for answer in answers} == {200, 503}
    assert int(busy[0].headers["retry-after"]) > 0 and "ask again" in busy[0].text
    wait_until(lambda: running.server.admission.here == 0)
    assert ask(0).status_code == 200


def test_small_images_pass_a_large_one_that_is_encoded(serve, large, model):
    running = serve(large, by=Counted(model, 0.15))
    running.get("large.png/info.json")
    whole = threading.Thread(target=running.get, args=("large.png/full/^pct:110/0/default.jpg",))
    whole.start()
    wait_until(lambda: running.server.admission.here == 1)
    assert running.get("large.png/full/300,/0/default.jpg").status_code == 200
    assert running.get("large.png/850,650,40,40/^80,/0/default.jpg").status_code == 200
    assert whole.is_alive()
    whole.join(60)


def test_client_that_goes_away_stops_its_work(serve, large, model):
    slow = Counted(model, 0.3)
    running = serve(large, by=slow)
    running.get("large.png/info.json")
    port = int(running.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as raw:
        request = f"GET {PREFIX}large.png/full/%5Epct:120/0/default.jpg HTTP/1.1\r\nHost: x\r\n\r\n"
        raw.sendall(request.encode())
        wait_until(lambda: slow.count == 2)
    wait_until(lambda: running.server.admission.here == 0)
    done = slow.count
    time.sleep(1.0)
    assert slow.count == done < 8  # of twenty blocks; the one under way is finished, and kept
    assert running.get("large.png/0,0,10,10/max/0/default.png").status_code == 200
