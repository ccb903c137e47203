"""The program behind the page: what it answers, what it refuses, what it stops."""

from __future__ import annotations

import asyncio
import errno
import io
import socket
import tempfile
import time
from pathlib import Path
from threading import Event
from typing import Any, Literal
from urllib.parse import urlencode

import numpy as np
import pytest
import tifffile
from PIL import Image
from unpacking import unpack

from thera.cli.main import run
from thera.errors import ImageFileError, TheraError
from thera.field import HeatField
from thera.models import Model
from thera.tiled import TiledField
from thera.web import gallery, tiles
from thera.web.guard import refusal

ASTRONAUT = Path(__file__).parents[1] / "data" / "astronaut.png"


def add(client: Any, data: bytes | None = None, name: str = "astronaut.png") -> dict[str, Any]:
    answer = client.post("/api/pictures", params={"name": name}, content=data or ASTRONAUT.read_bytes())
    assert answer.status_code == 201, answer.text
    return answer.json()


def finished(client: Any, job: dict[str, Any], seconds: float = 60) -> dict[str, Any]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        job = client.get(f"/api/jobs/{job['id']}").json()
        if job["state"] not in ("queued", "running"):
            return job
        time.sleep(0.02)
    raise TimeoutError(job)


def test_a_picture_becomes_a_packed_field(client: Any, astronaut_field: HeatField) -> None:
    picture = add(client)
    assert (picture["width"], picture["height"], picture["whole"]) == (96, 64, True)
    job = client.post(f"/api/pictures/{picture['id']}/field", json={"model": "edsr-air"}).json()
    assert finished(client, job)["state"] == "done"
    field = unpack(client.get(f"/api/jobs/{job['id']}/result").content)
    assert np.abs(field.render(scale=3) - astronaut_field.render(scale=3)).max() < 0.3 / 255


def test_a_part_of_a_picture_is_that_part_of_the_field(client: Any, astronaut_field: HeatField) -> None:
    picture = add(client)
    order = {"model": "edsr-air", "region": [10, 20, 40, 70]}
    job = client.post(f"/api/pictures/{picture['id']}/field", json=order).json()
    assert finished(client, job)["state"] == "done"
    field = unpack(client.get(f"/api/jobs/{job['id']}/result").content)
    expected = astronaut_field.crop(slice(10, 40), slice(20, 70)).render(scale=2)
    assert np.abs(field.render(scale=2) - expected).max() < 0.3 / 255


@pytest.mark.parametrize("shown", ["picture", "gradient", "laplacian"])
def test_tiles_are_renderings_of_their_region(client: Any, astronaut_field: HeatField, shown: str) -> None:
    picture = add(client)
    query = {
        "model": "edsr-air",
        "x": 16,
        "y": 8,
        "w": 32,
        "h": 24,
        "width": 128,
        "height": 96,
        "shown": shown,
    }
    answer = client.get(f"/api/pictures/{picture['id']}/tile", params=query)
    assert answer.status_code == 200, answer.text
    tile = np.asarray(Image.open(io.BytesIO(answer.content)), np.float64)
    region = {"region": (8, 16, 32, 48), "size": (96, 128)}
    expected = {
        "picture": lambda: astronaut_field.render(**region),
        "gradient": lambda: np.sqrt((astronaut_field.gradient(**region) ** 2).sum(-1)),
        "laplacian": lambda: 0.5 + 0.06 * astronaut_field.laplacian(**region),
    }[shown]()
    assert np.abs(tile - 255 * np.clip(expected, 0, 1)).max() <= 0.51  # rounded to 8 bits


def test_a_picture_too_large_for_one_piece_is_tiled_from_what_is_near(
    client: Any, astronaut_field: HeatField, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gallery, "MOST_CELLS", 64 * 64)
    picture = add(client)
    assert not picture["whole"]
    query = {"model": "edsr-air", "x": 16, "y": 8, "w": 32, "h": 24, "width": 128, "height": 96}
    answer = client.get(f"/api/pictures/{picture['id']}/tile", params=query)
    tile = np.asarray(Image.open(io.BytesIO(answer.content)), np.float64)
    expected = astronaut_field.render(region=(8, 16, 32, 48), size=(96, 128))
    assert np.abs(tile - 255 * np.clip(expected, 0, 1)).max() <= 0.51
    job = client.post(f"/api/pictures/{picture['id']}/field", json={"model": "edsr-air"}).json()
    ended = finished(client, job)
    assert ended["state"] == "failed" and "zoom in" in ended["message"]


@pytest.mark.parametrize("shown", ["picture", "gradient", "laplacian"])
def test_a_tile_of_too_much_to_encode_is_drawn_from_means_of_the_pixels(
    client: Any, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    file, (rows, cols, phase) = io.BytesIO(), np.mgrid[:64, :96, :3]
    waves = 127.5 + 120 * np.sin(0.3 * rows + phase) * np.cos(0.2 * cols)
    Image.fromarray(np.rint(waves).astype(np.uint8)).save(file, "PNG")

    def tile(x: int, w: int) -> np.ndarray:
        query = {"model": "edsr-air", "x": x, "y": 0, "w": w, "h": 64, "width": w // 2, "height": 32}
        answer = client.get(f"/api/pictures/{picture['id']}/tile", params={**query, "shown": shown})
        assert answer.status_code == 200, answer.text
        return np.asarray(Image.open(io.BytesIO(answer.content)), np.float64)

    monkeypatch.setattr(tiles, "LAPLACIAN_GAIN", 2)  # so that 8 bits can tell
    picture = add(client, file.getvalue())
    exact = tile(0, 96)
    for module in (gallery, tiles):
        monkeypatch.setattr(module, "MOST_CELLS", 100)
    means = tile(0, 96)
    # Of a wave of 2π/0.3 pixels, differences over 4 of them keep sin(0.6)/0.6, or 94%.
    assert np.abs(means - exact)[1:-1, 1:-1].max() < 0.1 * np.ptp(exact)
    parts = np.concatenate([tile(0, 48), tile(48, 46), tile(94, 2)], axis=1)
    assert np.abs(means - parts).max() <= 1  # without seams, but for rounding


def test_a_download_is_the_file_that_the_program_writes(client: Any, tmp_path: Path) -> None:
    source = tmp_path / "photo.jpg"
    exif = Image.Exif()
    exif[0x013B] = "Somebody"
    with Image.open(ASTRONAUT) as image:
        image.convert("RGB").crop((0, 0, 40, 30)).save(source, exif=exif, dpi=(300, 300), quality=95)
    picture = add(client, source.read_bytes(), "photo.jpg")
    order = {"model": "edsr-air", "scale": 2.5, "filter": "box", "sharpness": 1.2}
    job = client.post(f"/api/pictures/{picture['id']}/download", json=order).json()
    assert finished(client, job)["state"] == "done"
    answer = client.get(f"/api/jobs/{job['id']}/result")
    assert 'filename="photo_x2.5.jpg"' in answer.headers["content-disposition"]
    with pytest.raises(SystemExit) as ended:
        run(
            [
                "upscale",
                str(source),
                "-s",
                "2.5",
                "-m",
                "edsr-air",
                "--filter",
                "box",
                "--sharpness",
                "1.2",
                "-q",
            ]
        )
    assert ended.value.code == 0
    assert answer.content == (tmp_path / "photo_x2.5.jpg").read_bytes()
    with Image.open(io.BytesIO(answer.content)) as image:
        assert image.size == (100, 75) and image.getexif()[0x013B] == "Somebody"


def test_an_exact_size_and_another_format(client: Any) -> None:
    picture = add(client)
    order = {"model": "edsr-air", "width": 50, "height": 70, "format": "webp"}
    job = client.post(f"/api/pictures/{picture['id']}/download", json=order).json()
    assert finished(client, job)["state"] == "done"
    answer = client.get(f"/api/jobs/{job['id']}/result")
    with Image.open(io.BytesIO(answer.content)) as image:
        assert image.size == (50, 70) and image.format == "WEBP"


def test_a_transparent_picture_is_seen_as_a_file_without_transparency_has_it(client: Any) -> None:
    """Both are scaled first and put on white then, so that no white bleeds into the colours."""
    with Image.open(ASTRONAUT) as image:
        pixels = np.array(image.convert("RGBA").crop((0, 0, 40, 30)))
    rows, cols = np.mgrid[:30, :40]
    pixels[..., 3] = np.where((rows - 15) ** 2 + (cols - 20) ** 2 < 120, 255, 0)
    pixels[pixels[..., 3] == 0, :3] = 0  # black where nobody sees it
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    picture = add(client, file.getvalue())
    assert picture["transparent"] and "on white" in picture["notes"][0]
    query = {"model": "edsr-air", "x": 0, "y": 0, "w": 40, "h": 30, "width": 80, "height": 60}
    answer = client.get(f"/api/pictures/{picture['id']}/tile", params=query)
    seen = np.asarray(Image.open(io.BytesIO(answer.content)), np.int16)
    order = {"model": "edsr-air", "scale": 2, "format": "bmp"}
    job = client.post(f"/api/pictures/{picture['id']}/download", json=order).json()
    assert finished(client, job)["state"] == "done"
    answer = client.get(f"/api/jobs/{job['id']}/result")
    saved = np.asarray(Image.open(io.BytesIO(answer.content)), np.int16)
    assert np.abs(seen - saved).max() <= 1  # rounded once or twice
    job = client.post(f"/api/pictures/{picture['id']}/field", json={"model": "edsr-air"}).json()
    assert finished(client, job)["state"] == "done"  # in tiles: a page cannot put a field on white
    assert client.get(f"/api/jobs/{job['id']}/result").status_code == 409


def test_a_thumbnail_is_small(client: Any) -> None:
    file = io.BytesIO()
    Image.new("RGB", (900, 600), "red").save(file, "PNG")
    picture = add(client, file.getvalue())
    with Image.open(io.BytesIO(client.get(f"/api/pictures/{picture['id']}/thumbnail").content)) as image:
        assert image.size == (235, 157)


def test_a_closed_picture_s_file_is_still_made(client: Any) -> None:
    picture = add(client)
    order = {"model": "edsr-air", "scale": 1.5}
    job = client.post(f"/api/pictures/{picture['id']}/download", json=order).json()
    assert client.delete(f"/api/pictures/{picture['id']}").status_code == 204
    assert finished(client, job)["state"] == "done"
    for _ in range(2):  # and may be fetched twice
        assert client.get(f"/api/jobs/{job['id']}/result").content[:4] == b"\x89PNG"
    (listed,) = client.get("/api/jobs").json()
    assert listed["name"] == "astronaut_x1.5.png" and listed["bytes"] > 1000


def test_a_job_that_fails_leaves_no_folder(
    client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise ImageFileError("No room.")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    picture = add(client)
    monkeypatch.setattr("thera.web.app.write_result", fail)
    order = {"model": "edsr-air", "scale": 2}
    job = finished(client, client.post(f"/api/pictures/{picture['id']}/download", json=order).json())
    assert job["state"] == "failed" and job["message"] == "No room."
    (own,) = tmp_path.glob("*/*")
    assert (own / "astronaut.png").is_file()
    client.delete(f"/api/jobs/{job['id']}")
    client.delete(f"/api/pictures/{picture['id']}")
    assert list(tmp_path.glob("*/*")) == []


@pytest.mark.parametrize("order", ["field", "download"])
def test_the_first_job_of_a_model_tells_its_time_before_its_first_tile_is_encoded(
    client: Any, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    real, go, began = Model.encode, Event(), Event()
    monkeypatch.setattr(Model, "encode", lambda *given: (began.set(), go.wait(20), real(*given))[2])
    monkeypatch.setattr(gallery.Gallery, "measure", lambda self, *given: self.speeds.update({given[0]: 1e5}))
    picture = add(client)
    wanted = {"model": "edsr-air", **({"scale": 2} if order == "download" else {})}
    job = client.post(f"/api/pictures/{picture['id']}/{order}", json=wanted).json()
    assert began.wait(20)
    told = client.get(f"/api/jobs/{job['id']}").json()
    go.set()
    assert 550 < told["left"] <= 614.4  # 6,144 cells, a tenth of a second each
    assert finished(client, job)["state"] == "done"


def test_a_cancelled_job_stops_at_its_next_step(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    going, stop, encoded, encode = Event(), Event(), [], TiledField.encode

    def slow(field: TiledField, tile: Any) -> list[HeatField]:
        encoded.append(tile)
        going.set()
        stop.wait(5)
        return encode(field, tile)

    monkeypatch.setattr(gallery, "LARGEST_TILE", 16)
    monkeypatch.setattr(TiledField, "encode", slow)
    picture = add(client)
    job = client.post(f"/api/pictures/{picture['id']}/field", json={"model": "edsr-air"}).json()
    assert going.wait(10)
    assert client.post(f"/api/jobs/{job['id']}/cancel").json()["state"] == "cancelled"
    stop.set()
    monkeypatch.undo()
    after = client.post(f"/api/pictures/{picture['id']}/field", json={"model": "edsr-air"}).json()
    assert finished(client, after)["state"] == "done"  # what comes next is not held up
    assert len(encoded) == 1
    answer = client.get(f"/api/jobs/{job['id']}/result")
    assert answer.status_code == 409
    assert answer.json()["detail"].endswith(
        "it is not done, has failed, was cancelled, or is drawn in tiles."
    )


@pytest.mark.parametrize("data", [b"no image at all", b"", ASTRONAUT.read_bytes()[:300]])
def test_a_wrong_file_is_refused_by_its_own_name(client: Any, data: bytes) -> None:
    answer = client.post("/api/pictures", params={"name": "notes.txt"}, content=data)
    assert answer.status_code == 422
    assert "notes.txt" in answer.json()["detail"] and "thera-app" not in answer.text
    assert client.get("/api/pictures").json() == []


def test_a_file_that_is_too_large_is_refused(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thera.web.app.MOST_BYTES", 1000)
    answer = client.post("/api/pictures", content=ASTRONAUT.read_bytes())
    assert answer.status_code == 413 and "larger" in answer.json()["detail"]


def test_an_upload_that_breaks_off_leaves_nothing(
    client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/pictures",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-length", b"5000")],
    }
    coming = iter([{"type": "http.request", "body": b"abc", "more_body": True}, {"type": "http.disconnect"}])
    answers = []

    async def receive() -> Any:
        return next(coming)

    async def send(message: Any) -> None:
        answers.append(message)

    asyncio.run(client.app(scope, receive, send))  # without an error, which would be a traceback in the log
    assert answers[0]["status"] == 499
    assert list(tmp_path.glob("*/*")) == []


def test_an_upload_that_the_disk_has_no_room_for_is_refused_in_a_sentence(
    client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def full(request: Any, path: Path) -> None:
        path.write_bytes(b"abc")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("thera.web.app._receive", full)
    answer = client.post("/api/pictures", params={"name": "a.png"}, content=b"abcdef")
    assert answer.status_code == 507
    assert answer.json()["detail"] == "a.png could not be kept: the disk is full."
    assert list(tmp_path.glob("*/*")) == []


def test_a_picture_of_too_many_pixels_is_refused() -> None:
    from fastapi.testclient import TestClient

    from thera.errors import ImageFileError
    from thera.web.app import create_app

    with pytest.raises(ImageFileError, match="--max-pixels"):
        create_app([ASTRONAUT], gallery=gallery.Gallery(max_pixels=1000))
    app = create_app(gallery=gallery.Gallery(max_pixels=1000))
    with TestClient(app, base_url="http://127.0.0.1:8372") as client:
        answer = client.post("/api/pictures", params={"name": "a.png"}, content=ASTRONAUT.read_bytes())
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("a.png: The image claims ")
    assert answer.json()["detail"].endswith(", more than the limit of 1,000.")  # a page has no options


def test_a_model_that_is_none_is_refused_at_the_start() -> None:
    from thera.errors import ModelError
    from thera.web.app import create_app

    with pytest.raises(ModelError, match="no file or model 'nope'"):
        create_app([ASTRONAUT], model="nope")


def test_names_cannot_leave_their_folder(client: Any) -> None:
    picture = add(client, name="../../..\\evil/..")
    assert picture["name"] == "picture"
    assert add(client, name="a/../b\x00\n.png")["name"] == "b.png"


def test_a_long_name_is_cut_to_what_a_file_system_takes(client: Any) -> None:
    picture = add(client, name="日" * 119 + ".png")
    assert picture["name"] == "日" * 65 + ".png"
    order = {"model": "edsr-air", "scale": 1.2345678}
    job = client.post(f"/api/pictures/{picture['id']}/download", json=order).json()
    assert finished(client, job)["state"] == "done"


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ({"scale": 0}, "above 0"),
        ({"scale": 2, "width": 5}, "not scale and width"),
        ({"scale": 1e6}, "more than"),
        ({}, "none of them"),
        ({"scale": 2, "model": "edsr-none"}, "no model"),
        ({"scale": 2, "format": "jpg", "quality": 1000}, "from 1 to 100"),
        ({"scale": 2, "format": "jpg", "quality": 0}, "from 1 to 100"),
        ({"scale": 2, "format": "docx"}, "'docx' is not a format"),
        ({"fit": [0, 5]}, "two whole numbers"),
        ({"width": 70000, "format": "jpeg"}, "65,535"),
    ],
)
def test_an_order_that_cannot_be_met_is_refused_at_once(
    client: Any, order: dict[str, Any], words: str
) -> None:
    picture = add(client)
    answer = client.post(f"/api/pictures/{picture['id']}/download", json={"model": "edsr-air", **order})
    assert answer.status_code == 422 and words in answer.json()["detail"]


def half(size: list[int], left: float = 0) -> dict[str, Any]:
    """An order of a view of `size` at twice the picture's scale, from its column `left` on."""
    return {"model": "edsr-air", "mapping": [[0.5, 0, 0], [0, 0.5, left], [0, 0, 1]], "size": size}


def test_a_view_that_does_not_fit_in_the_app_s_memory_is_made_in_the_program_s() -> None:
    from fastapi.testclient import TestClient

    from thera.web.app import create_app

    app = create_app(gallery=gallery.Gallery(memory=1))
    with TestClient(app, base_url="http://127.0.0.1:8372") as client:
        picture = add(client)
        job = client.post(f"/api/pictures/{picture['id']}/view", json=half([40, 60])).json()
        assert finished(client, job)["state"] == "done"


def test_a_view_that_cannot_be_made_is_refused_at_once_without_options_of_the_program(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = add(client)

    def refused(order: dict[str, Any]) -> str:
        answer = client.post(f"/api/pictures/{picture['id']}/view", json=order)
        assert answer.status_code == 422, answer.text
        return answer.json()["detail"]

    assert refused(half([40, 60], left=500)) == "Nothing of the input lies in the output."
    monkeypatch.setattr("thera.tiled.options.default_memory", lambda: 1 << 20)
    message = refused(half([40, 60]))
    assert "of memory, and 1 MiB are allowed." in message and "--" not in message


@pytest.mark.parametrize(
    "query",
    [
        {"w": -1},
        {"x": 500},
        {"width": 5000, "height": 5000},
        {"w": 0.001, "h": 0.001},
        {"sharpness": 0},
        {"filter": "magic"},
    ],
)
def test_tiles_that_cannot_be_made_are_refused(client: Any, query: dict[str, Any]) -> None:
    picture = add(client)
    wanted = {"model": "edsr-air", "x": 0, "y": 0, "w": 8, "h": 8, "width": 16, "height": 16, **query}
    assert client.get(f"/api/pictures/{picture['id']}/tile", params=wanted).status_code == 422


def test_a_closed_picture_is_gone(client: Any) -> None:
    picture = add(client)
    assert client.delete(f"/api/pictures/{picture['id']}").status_code == 204
    assert client.get(f"/api/pictures/{picture['id']}/image").status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "example.org"},
        {"host": "127.0.0.1.example.org"},
        {"origin": "https://example.org"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_other_sites_are_refused(client: Any, headers: dict[str, str]) -> None:
    answer = client.post("/api/pictures", content=ASTRONAUT.read_bytes(), headers=headers)
    assert answer.status_code == 403
    assert client.get("/api/pictures").json() == []


def test_the_page_itself_is_not_refused() -> None:
    own = {"host": "localhost:8372", "origin": "http://localhost:8372", "sec-fetch-site": "same-origin"}
    assert refusal(own) is None
    assert refusal({"host": "[::1]:8372"}) is None


def test_the_page_may_load_nothing_from_elsewhere(client: Any) -> None:
    answer = client.get("/")
    assert answer.status_code == 200 and "default-src 'self'" in answer.headers["content-security-policy"]
    assert "http://" not in answer.text and "https://" not in answer.text


def test_the_socket_is_on_loopback_and_takes_connections_before_its_address_is_told() -> None:
    from thera.cli.app import listening

    with listening(0) as first:
        host, port = first.getsockname()
        assert host == "127.0.0.1" and port > 0
        socket.create_connection((host, port), timeout=10).close()
        with pytest.raises(TheraError, match=f"The port {port} of 127.0.0.1 cannot be used"):
            listening(port)


def test_a_raster_is_downloaded_as_the_program_scales_it(client: Any, tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    values = np.arange(30 * 40, dtype=np.int16).reshape(1, 30, 40)
    values[0, :5, :5] = -1
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 4e5, 0, -10, 6.6e6), "nodata": -1}
    shape = {"height": 30, "width": 40, "count": 1, "dtype": "int16", "driver": "GTiff"}
    with rasterio.open(tmp_path / "dem.tif", "w", **shape, **place) as dataset:
        dataset.write(values)
    picture = add(client, (tmp_path / "dem.tif").read_bytes(), "dem.tif")
    order = {"model": "edsr-air", "scale": 2}
    job = client.post(f"/api/pictures/{picture['id']}/download", json=order).json()
    assert finished(client, job)["state"] == "done"
    (tmp_path / "app.tif").write_bytes(client.get(f"/api/jobs/{job['id']}/result").content)
    with pytest.raises(SystemExit) as ended:
        run(["upscale", str(tmp_path / "dem.tif"), "-s", "2", "-m", "edsr-air", "-q"])
    assert ended.value.code == 0
    with rasterio.open(tmp_path / "app.tif") as app, rasterio.open(tmp_path / "dem_x2.tif") as program:
        assert app.crs == program.crs and app.nodata == -1 and app.transform == program.transform
        np.testing.assert_array_equal(app.read(), program.read())


@pytest.mark.parametrize("nodata", [-9999.0, float("nan")])
def test_nodata_is_shown_on_white_and_does_not_flatten_the_rest(client: Any, nodata: float) -> None:
    values = np.linspace(100, 900, 24 * 32, dtype=np.float32).reshape(24, 32)
    values[:6, :8] = nodata
    file = io.BytesIO()
    tifffile.imwrite(file, values, extratags=[(42113, 2, 0, str(nodata), True)])
    picture = add(client, file.getvalue(), "dem.tif")
    assert "Nodata is shown on white." in picture["notes"] and picture["transparent"]
    base = f"/api/pictures/{picture['id']}"
    tile = {"model": "edsr-air", "x": 0, "y": 0, "w": 32, "h": 24, "width": 64, "height": 48}
    for path, scale in ((f"{base}/image", 1), (f"{base}/tile?{urlencode(tile)}", 2)):
        seen = np.asarray(Image.open(io.BytesIO(client.get(path).content)))
        assert (seen[: 5 * scale, : 7 * scale] == 255).all()
        assert seen[-1, -1, 0] > 250 and seen[7 * scale, 0, 0] < 90  # values span black to white
    whole = {"model": "edsr-air", "mapping": [[0.5, 0, 0], [0, 0.5, 0], [0, 0, 1]], "size": [48, 64]}
    job = client.post(f"{base}/view", json=whole).json()
    assert finished(client, job)["state"] == "done"
    with Image.open(io.BytesIO(client.get(f"/api/jobs/{job['id']}/result").content)) as image:
        colours, alpha = np.split(np.asarray(image.convert("RGBA"), float), [3], axis=2)
    assert (alpha[:10, :14] == 0).all() and (alpha[14:] == 255).all()
    on_white = 255 + alpha / 255 * (colours - 255)
    assert np.abs(on_white - seen).max() <= 3  # as the tile, which the loop has seen last


def test_a_pixel_that_lacks_one_of_its_colours_is_shown(client: Any) -> None:
    values = np.full((8, 8, 3), 0.5, np.float32)
    values[2, 3, 1] = np.nan
    file = io.BytesIO()
    tifffile.imwrite(file, values, photometric="rgb", extratags=[(42113, 2, 0, "nan", True)])
    picture = add(client, file.getvalue(), "a.tif")
    seen = np.asarray(Image.open(io.BytesIO(client.get(f"/api/pictures/{picture['id']}/image").content)))
    assert seen[2, 3, 1] == 0 and seen[2, 3, 0] > 0 and seen[5, 5, 1] > 0


@pytest.mark.parametrize("shown", ["gradient", "laplacian"])
def test_a_derivative_encodes_no_cell_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shown: Literal["gradient", "laplacian"]
) -> None:
    """Also where the fields of a tile are too many to be kept: a band is kept until all is made of it."""
    Image.fromarray(np.zeros((300, 100, 3), np.uint8)).save(tmp_path / "a.png")
    room = 64 * 100 * 67 * 4 * 3  # three rows of tiles
    monkeypatch.setattr(gallery, "LEAST_KEPT", room)
    monkeypatch.setattr(gallery, "SMALLEST_TILE", 64)
    monkeypatch.setattr(gallery, "SOON_TILE", 64)
    monkeypatch.setattr(tiles, "BAND_CELLS", 64 * 100)
    pictures = gallery.Gallery(memory=0)
    entry, encoded = pictures.add(tmp_path / "a.png"), []
    real = TiledField.encode
    monkeypatch.setattr(TiledField, "encode", lambda self, tile: encoded.append(tile) or real(self, tile))
    request = tiles.TileRequest((0.0, 0.0, 300.0, 100.0), (150, 50), None, shown)
    request.png(pictures, entry, "edsr-air")
    assert len(encoded) == len(set(encoded)) > 3


def test_the_program_refuses_a_limit_that_no_picture_keeps(capfd: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["app", str(ASTRONAUT), "--no-browser", "--port", "0", "--max-pixels", "0"])
    assert ended.value.code == 2
    assert "0 is not in the range x>=1" in capfd.readouterr().err
