"""A server ends when it is told to, and does not wait for clients that never finish a request."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import httpx
import numpy as np
import pytest
from PIL import Image

from thera.iiif import running
from thera.iiif.cache import Disk
from thera.iiif.server import Server, Settings

CODE = """
import sys, time
import numpy as np
import thera
from thera.cli.main import run
from thera.models.model import Model

encode = Model.encode

def slow(self, image):
    if image.shape[0] > 1:
        time.sleep(60)
    return encode(self, image)

Model.encode = slow
run(sys.argv[1:])
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to send")
def test_sigterm_ends_a_server_whatever_it_computes(tmp_path):
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(tmp_path / "photo.png")
    options = ["serve", str(tmp_path), "--port", "0", "--no-cache"]
    program = subprocess.Popen([sys.executable, "-c", CODE, *options], stdout=subprocess.PIPE, text=True)
    try:
        line = program.stdout.readline()
        url = line.split(" at ")[1].split(",")[0]
        answered = threading.Thread(target=ask, args=(f"{url}iiif/3/photo.png/full/^max/0/default.jpg",))
        enlarged = threading.Thread(target=ask, args=(f"{url}iiif/3/photo.png:8x/full/max/0/default.jpg",))
        for thread in (answered, enlarged):
            thread.start()
        time.sleep(1.5)
        program.send_signal(signal.SIGTERM)
        program.wait(10)
        assert program.returncode == 143
    finally:
        program.kill()
        program.wait()


@pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C in another way")
def test_ctrl_c_ends_a_server_with_a_sentence(folder):
    command = [sys.executable, "-m", "thera", "serve", str(folder), "--port", "0", "--no-cache"]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url = program.stdout.readline().split(" at ")[1].split(",")[0]
        assert httpx.get(f"{url}iiif/3/photo.png/info.json", timeout=30).status_code == 200
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=30)
    finally:
        program.kill()
        program.wait()
    assert program.returncode == 0
    assert out.endswith("\nThe server has ended.\n")
    assert '"GET /iiif/3/photo.png/info.json HTTP/1.1" 200' in out
    assert err == ""


def ask(url):
    with suppress(httpx.HTTPError):
        httpx.get(url, timeout=30)


@pytest.fixture
def patient(folder, model, monkeypatch):
    """The address of a server that gives clients half a second for their headers."""
    monkeypatch.setattr(running, "HEADERS", 0.5)
    server = Server(folder, model, Settings())
    listener = socket.create_server(("127.0.0.1", 0))
    config = running.uvicorn.Config(running.create_app(server), http=running.Patient, log_level="warning")
    web = running.uvicorn.Server(config)
    thread = threading.Thread(target=web.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not web.started:
        time.sleep(0.01)
    yield listener.getsockname()
    web.should_exit = True
    thread.join(30)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x"])
def test_a_request_that_is_never_finished_is_dropped(patient, sent):
    with socket.create_connection(patient) as client:
        client.settimeout(20)
        client.sendall(sent)
        assert client.recv(100) == b""


def test_a_second_request_that_is_never_finished_is_dropped(patient):
    with socket.create_connection(patient) as client:
        client.settimeout(20)
        client.sendall(b"GET /images.json HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET / HT")
        while client.recv(4096):
            pass


def test_a_request_in_pieces_is_answered(patient):
    with socket.create_connection(patient) as client:
        client.settimeout(20)
        for piece in (b"HEAD / HT", b"TP/1.1\r\nHo", b"st: x\r\n\r\n"):
            client.sendall(piece)
            time.sleep(0.05)
        assert client.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("path", ["/", "/images.json", "/iiif/3/collection.json"])
def test_head_has_what_get_has(photo_server, path):
    head, get = (photo_server.client.request(way, photo_server.url + path) for way in ("HEAD", "GET"))
    assert (head.status_code, get.status_code, head.content) == (200, 200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


def test_a_cache_folder_that_was_deleted_is_made_again(tmp_path):
    disk = Disk(tmp_path / "cache", 1 << 20)
    shutil.rmtree(tmp_path / "cache")
    disk.put("key", np.arange(3))
    np.testing.assert_array_equal(disk.get("key"), np.arange(3))


def test_a_cache_that_cannot_be_written_is_reported_once(tmp_path, caplog):
    disk = Disk(tmp_path / "cache", 1 << 20)
    (tmp_path / "cache").rmdir()
    (tmp_path / "cache").write_text("a file in its place")
    for _ in range(3):
        disk.put("key", np.arange(3))
    assert [record.getMessage() for record in caplog.records] == [
        f"The cache {tmp_path / 'cache'} keeps nothing now: file exists."
    ]
    assert disk.get("key") is None


def test_no_message_tells_a_visitor_to_pass_an_option(serve, folder):
    response = serve(folder, max_source=10).get("photo.png/info.json")
    assert response.status_code == 500
    assert response.text == "photo.png: The image claims 96×64 pixels, more than the limit of 10.\n"
