"""A browser on `thera serve`: OpenSeadragon, which most IIIF sites have, Mirador, and the front page."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from needs import module
from PIL import Image

import thera

PHOTO = Path(__file__).parents[1] / "data" / "astronaut.png"
WIDTH, HEIGHT = 512, 400  # of the page
PAGE = (
    """<!doctype html><body style="margin: 0"><div id="viewer" style="width: 100vw; height: 100vh"></div>"""
)
OPEN = """
url => new Promise((resolve, reject) => {
  window.viewer = OpenSeadragon({
    id: "viewer", tileSources: url, crossOriginPolicy: "Anonymous",
    drawer: "webgl",  // the other one stretches every tile by a pixel, to hide seams
    showNavigationControl: false, immediateRender: true, animationTime: 0, maxZoomPixelRatio: 1,
  });
  viewer.addHandler("open-failed", event => reject(new Error(event.message)));
  viewer.addHandler("tile-load-failed", event => reject(new Error(event.message)));
  viewer.addHandler("open", () => resolve());
})"""
ZOOM_TO_FULL_SIZE = """
() => new Promise(resolve => {
  const image = viewer.world.getItemAt(0), viewport = viewer.viewport;
  viewport.zoomTo(image.imageToViewportZoom(1), null, true);
  viewport.panTo(viewport.getHomeBounds().getCenter(), true);
  const done = () => resolve(image.viewportToImageZoom(viewport.getZoom(true)));
  const look = () => image.getFullyLoaded() ? requestAnimationFrame(done) : setTimeout(look, 50);
  viewer.forceRedraw();
  setTimeout(look, 200);
})"""


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[str]:
    """`thera serve` with a photograph of 96×64, as a program of its own."""
    folder = tmp_path_factory.mktemp("images")
    Image.open(PHOTO).convert("RGB").save(folder / "photo.png")
    (folder / "broken.png").write_bytes(b"no picture")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "thera", "serve", str(folder), "--port", str(port), "--no-cache", "-q"]
    program = subprocess.Popen([*command, "--quality", "100"])
    url = f"http://127.0.0.1:{port}/iiif/3"
    try:
        for _ in range(600):
            assert program.poll() is None, "thera serve ended"
            try:
                if httpx.get(f"{url}/photo.png/info.json", timeout=60).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        program.terminate()
        program.wait(30)


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.set_content(PAGE)
    page.add_script_tag(path=str(module("openseadragon/build/openseadragon/openseadragon.min.js")))
    yield page
    page.close()


def test_openseadragon_zooms_to_eight_times_the_image_s_own_size(page, served, tmp_path):
    asked: list[tuple[int, str]] = []
    page.on("response", lambda response: asked.append((response.status, response.url)))
    page.evaluate(OPEN, f"{served}/photo.png:8x/info.json")
    zoom = page.evaluate(ZOOM_TO_FULL_SIZE)
    assert abs(zoom - 1) < 1e-6  # a pixel of the screen is one of the enlarged image, an eighth of the file's
    shot = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB")).astype(float)

    pixels = np.asarray(Image.open(PHOTO).convert("RGB"))
    rendered = thera.load("edsr-air").encode(pixels.astype(np.float32) / 255).render(scale=8)
    top, left = (rendered.shape[0] - HEIGHT) // 2, (rendered.shape[1] - WIDTH) // 2
    expected = 255 * np.clip(rendered, 0, 1)[top : top + HEIGHT, left : left + WIDTH]
    bicubic = Image.fromarray(pixels).resize((768, 512), Image.Resampling.BICUBIC)
    other = np.asarray(bicubic, float)[top : top + HEIGHT, left : left + WIDTH]

    def distance(image: np.ndarray) -> float:
        return float(np.sqrt(np.mean((shot - image) ** 2)))

    assert distance(expected) < 1  # rounding, and JPEG at its best
    assert distance(other) > 5 * distance(expected)  # it is the field that is seen
    tiles = [url for _, url in asked if url.endswith(".jpg")]
    assert len(tiles) > 1 and all("photo.png:8x/" in url for url in tiles)
    assert {status for status, _ in asked} <= {200, 304}


def test_openseadragon_opens_the_image_at_its_own_size(page, served):
    page.evaluate(OPEN, f"{served}/photo.png/info.json")
    assert abs(page.evaluate(ZOOM_TO_FULL_SIZE) - 1) < 1e-6
    shot = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB")).astype(float)
    pixels = np.asarray(Image.open(PHOTO).convert("RGB"))
    top, left = (HEIGHT - 64) // 2, (WIDTH - 96) // 2
    shown = shot[top : top + 64, left : left + 96]
    assert np.sqrt(np.mean((shown - pixels) ** 2)) < 1.5


def until(page: Any, expression: str) -> None:
    """Waits for something to be true on a page whose policy forbids Playwright's own way to do so."""
    end = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never: {expression}"
        page.wait_for_timeout(50)


def test_front_page_lists_the_images_and_opens_one_in_the_viewer(browser, served):
    front = browser.new_page(viewport={"width": 390, "height": 700})
    wrong: list[str] = []
    front.on("pageerror", lambda error: wrong.append(str(error)))
    front.on("response", lambda response: response.status >= 400 and wrong.append(response.url))
    front.goto(served.removesuffix("iiif/3"))
    link = front.get_by_role("link", name="photo.png")
    until(front, "[...document.querySelectorAll('.size')].some(each => each.textContent === '96 × 64')")
    link.focus()
    front.keyboard.press("Enter")
    front.get_by_role("button", name="Zoom in").wait_for()
    until(front, "document.querySelectorAll('.thera-tiles img[data-done]').length > 0")
    front.keyboard.press("+")
    for _ in range(4):
        front.get_by_role("button", name="Zoom in").click()
    until(front, "parseInt(document.getElementById('percent').textContent) > 800")
    until(front, "document.querySelectorAll('.thera-tiles img:not([data-done])').length === 0")
    assert front.evaluate("[...document.querySelectorAll('.thera-level')].some(l => l.dataset.level >= 3)")
    front.keyboard.press("Escape")
    until(front, "document.activeElement?.dataset.identifier === 'photo.png'")
    assert front.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert [url for url in wrong if "broken.png" not in url] == []
    front.close()


def test_front_page_shows_nothing_but_the_image_of_its_title(browser, served):
    front = browser.new_page(viewport={"width": 390, "height": 700})
    errors: list[str] = []
    front.on("pageerror", lambda error: errors.append(str(error)))
    front.goto(served.removesuffix("iiif/3") + "#photo.png")
    until(front, "document.querySelectorAll('.thera-tiles img[data-done]').length > 0")
    shown = "document.querySelectorAll('.thera-tiles img').length > 0"
    for wrong, message in [("broken.png", "broken.png: "), ("%zz", "There is no image '%zz' here.")]:
        front.evaluate(f"location.hash = '{wrong}'")
        until(front, f"document.getElementById('trouble').textContent.startsWith({message!r})")
        assert not front.evaluate(shown)
        assert front.evaluate("document.getElementById('title').textContent") == wrong
        front.evaluate("location.hash = 'photo.png'")
        until(front, f"document.getElementById('trouble').hidden && {shown}")
    assert errors == []
    front.close()


MIRADOR = """(url) => { Mirador.viewer({ id: "viewer", windows: [{ manifestId: url }] }); }"""


def test_mirador_opens_the_manifest_and_lists_the_collection(browser, served):
    """The bundle that Mirador publishes, alone: its hundreds of packages are in it."""
    with tarfile.open(module("mirador-4.0.0.tgz")) as package:
        script = package.extractfile("package/dist/mirador.min.js").read().decode()
    page = browser.new_page(viewport={"width": 900, "height": 600})
    asked: list[tuple[int, str]] = []
    page.on("response", lambda response: asked.append((response.status, response.url)))
    page.set_content('<!doctype html><body><div id="viewer" style="position: fixed; inset: 0"></div>')
    page.add_script_tag(content=script)
    page.evaluate(MIRADOR, f"{served}/photo.png/manifest.json")
    page.wait_for_selector(".openseadragon-canvas canvas")
    page.get_by_role("heading", name="photo.png").first.wait_for()
    until(page, "document.querySelector('.openseadragon-container')?.getBoundingClientRect().height > 300")
    # The picture is seen, from tiles that are larger than its own 96×64 pixels: in the window's middle.
    with Image.open(PHOTO) as image:
        expected = np.asarray(image.convert("RGB").resize((12, 8), Image.Resampling.BOX), float)
    end = time.monotonic() + 30
    while not np.abs(seen_in_mirador(page) - expected).mean() < 12:
        assert time.monotonic() < end, f"the picture never came; asked: {asked}"
        page.wait_for_timeout(100)
    assert any("photo.png:8x/" in url and url.endswith(".jpg") for _, url in asked)
    assert {status for status, url in asked if url.startswith(served)} <= {200, 304}

    page.evaluate(MIRADOR, f"{served}/collection.json")
    page.get_by_role("dialog").get_by_text("broken.png").wait_for()
    page.close()


def seen_in_mirador(page: Any) -> np.ndarray:
    """What Mirador shows where it fits a picture of 3:2 into its window, as 12×8 means."""
    box = page.locator(".openseadragon-canvas").bounding_box()
    width = min(box["width"], box["height"] * 1.5)
    left, top = box["x"] + (box["width"] - width) / 2, box["y"] + (box["height"] - width / 1.5) / 2
    clip = {"x": left, "y": top, "width": width, "height": width / 1.5}
    shot = Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")
    return np.asarray(shot.resize((12, 8), Image.Resampling.BOX), float)
