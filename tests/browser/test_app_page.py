"""The local page as a person uses it: drop, zoom, compare, download, cancel, and what goes wrong."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from app_page import ASTRONAUT, captured, drop, levels, opened, program, settle, wait_live
from PIL import Image

import thera
from thera.tiled import TiledField
from thera.web import gallery
from thera.web.export import export_page

pytest.importorskip("fastapi", reason="the page needs: pip install 'thera[web]'")

PHOTO = ("astronaut.png", ASTRONAUT.read_bytes())


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with program() as url:
        page = opened(browser, url)
        yield page
        page.context.close()
    assert page.errors == []


def test_a_dropped_picture_is_seen_at_once_and_live_when_it_is_encoded(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert page.get_by_text("127.0.0.1").is_visible()  # it says that it is on loopback
    real, go = TiledField.encode, Event()
    monkeypatch.setattr(TiledField, "encode", lambda *given: (go.wait(20), real(*given))[1])
    drop(page, PHOTO)
    settle(page, "thera.painter.pixels")
    assert page.locator("#work").is_visible() and "Encoding" in page.inner_text("#work")
    assert page.get_attribute("#status", "data-mode") == "pixels"
    go.set()
    wait_live(page)
    page.wait_for_selector("#work", state="hidden")
    assert "96 × 64" in page.inner_text("#title")


def test_wheel_keyboard_and_buttons_zoom(page: Any) -> None:
    drop(page, PHOTO)
    wait_live(page)
    box = page.locator("#stage").bounding_box()
    spot = box["x"] + 210, box["y"] + 260
    where = "() => thera.camera.at([260, 210])"
    before, zoom = page.evaluate(where), page.evaluate("() => thera.camera.zoom")
    page.mouse.move(*spot)
    page.mouse.wheel(0, -240)
    settle(page, f"thera.camera.zoom > 1.5 * {zoom}")
    np.testing.assert_allclose(page.evaluate(where), before, atol=0.01)  # what is under the pointer stays
    page.keyboard.press("+")
    settle(page, f"thera.camera.zoom > 1.9 * {zoom}")
    page.keyboard.press("]")
    page.keyboard.press(".")
    assert page.evaluate("() => [thera.camera.angle, thera.camera.tilt]") == [5, 5]
    page.click("#one")
    assert page.inner_text("#percent") == "100%"
    page.click("#fit")
    assert page.evaluate("() => [thera.camera.zoom, thera.camera.angle]") == [pytest.approx(zoom), 0]
    centre = page.evaluate("() => thera.camera.centre")
    page.mouse.move(*spot)
    page.mouse.down()
    page.mouse.move(spot[0] + 40, spot[1] + 20)
    page.mouse.up()
    moved = np.subtract(centre, page.evaluate("() => thera.camera.centre"))
    np.testing.assert_allclose(moved, np.array([20, 40]) / zoom, atol=1e-3)


def test_two_fingers_zoom_and_turn(browser: Any) -> None:
    with program([ASTRONAUT]) as url:
        page = opened(browser, url, viewport={"width": 390, "height": 844}, has_touch=True)
        wait_live(page)
        zoom = page.evaluate("() => thera.camera.zoom")
        touch = page.context.new_cdp_session(page)

        def fingers(kind: str, *points: tuple[float, float]) -> None:
            touches = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

        fingers("touchStart", (150, 300), (250, 300))
        for step in (1, 2, 3, 4):  # apart to twice the distance, and round by a quarter
            angle = np.pi / 2 * step / 4
            reach = 100 * (1 + step / 4)
            fingers("touchMove", (150, 300), (150 + reach * np.cos(angle), 300 + reach * np.sin(angle)))
        fingers("touchEnd")
        settle(page, f"thera.camera.zoom > 1.9 * {zoom}")
        assert page.evaluate("() => thera.camera.angle") == pytest.approx(90, abs=1)
        page.context.close()


def test_the_curtain_is_dragged_and_moved_by_keys(page: Any) -> None:
    drop(page, PHOTO)
    wait_live(page)
    page.get_by_text("Bicubic", exact=True).click()
    slider = page.get_by_role("slider", name="Curtain")
    assert slider.get_attribute("aria-valuenow") == "50"
    box = slider.bounding_box()
    page.mouse.move(box["x"] + 22, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] - 128, box["y"] + 100)
    page.mouse.up()
    assert int(slider.get_attribute("aria-valuenow")) < 35
    slider.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuenow") == "2"
    assert page.locator("#before").inner_text() == "Bicubic"
    page.get_by_text("Off", exact=True).click()
    assert not slider.is_visible()


def test_a_download_is_at_full_quality_with_its_metadata(page: Any, tmp_path: Path) -> None:
    source = tmp_path / "photo.png"
    with Image.open(ASTRONAUT) as image:
        image.convert("RGB").crop((0, 0, 40, 30)).save(source, dpi=(300, 300))
    drop(page, ("photo.png", source.read_bytes()))
    wait_live(page)
    page.get_by_text("×2", exact=True).click()
    assert "80 × 60" in page.inner_text("#outcome")
    with page.expect_download() as waiting:
        page.click("#download")
    assert waiting.value.suggested_filename == "photo_x2.png"
    with Image.open(waiting.value.path()) as image:
        found, dpi = np.asarray(image), image.info["dpi"]
    with Image.open(source) as image:
        np.testing.assert_array_equal(found, np.asarray(thera.upscale(image, 2, model="edsr-air")))
    assert dpi == pytest.approx((300, 300), abs=0.1)


def test_encoding_and_downloads_can_be_cancelled(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = Event()

    def slow(*given: Any) -> None:
        try:
            for _ in range(1000):
                time.sleep(0.02)
                given[-1](0.4)
        finally:
            stopped.set()

    with monkeypatch.context() as patch:
        patch.setattr(gallery.Gallery, "pack", slow)
        drop(page, PHOTO)
        settle(page, "document.getElementById('share').value === 0.4")
        page.click("#cancel")
        assert not page.locator("#work").is_visible()
        assert stopped.wait(5)
    assert page.get_attribute("#status", "data-mode") == "pixels"
    stopped.clear()
    with monkeypatch.context() as patch:
        patch.setattr("thera.web.app.write_result", slow)
        page.click("#download")
        settle(page, "document.getElementById('share').value === 0.4")
        page.click("#cancel")
        assert stopped.wait(5)
    assert not page.locator("#trouble").is_visible()


def test_a_wrong_file_is_named_and_the_others_are_shown(page: Any) -> None:
    drop(page, ("notes.txt", b"no picture"), PHOTO)
    wait_live(page)
    assert "notes.txt" in page.inner_text("#trouble") and "not an image" in page.inner_text("#trouble")


def test_several_pictures_are_shown_in_turn_and_closed(page: Any) -> None:
    other = png(np.full((20, 30, 3), 99, np.uint8))
    drop(page, PHOTO, ("grey.png", other))
    settle(page, "document.getElementById('title').textContent.includes('30 × 20')")
    page.get_by_label("Show astronaut.png").click()
    settle(page, "document.getElementById('title').textContent.includes('96 × 64')")
    wait_live(page)
    page.get_by_label("Close astronaut.png").click()
    settle(page, "document.getElementById('title').textContent.includes('30 × 20')")


def test_a_large_picture_is_encoded_where_it_is_looked_at(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "MOST_CELLS", 50 * 50)
    settle(page, "document.body.dataset.ready !== undefined")
    page.route("**/api/about", lambda route: route.fulfill(json={**route.fetch().json(), "most_cells": 2500}))
    page.reload()
    page.wait_for_selector("body[data-ready]", state="attached")
    drop(page, PHOTO)
    settle(page, "thera.painter.pixels")
    assert "zoom in" in page.inner_text("#status")
    for _ in range(8):
        page.keyboard.press("+")
    wait_live(page)
    first = page.evaluate("() => thera.painter.field.window")
    assert first[0] > 0 and first[1] > 0
    mapping = [[0.25, 0, 30], [0, 0.25, 40], [0, 0, 1]]
    with Image.open(ASTRONAUT) as image:
        pixels = np.asarray(image.convert("RGB"), np.float32) / 255
    expected = thera.load("edsr-air").encode(pixels).render(region=(30, 40, 34, 44), size=(16, 16))
    assert np.abs(captured(page, mapping, (16, 16)) - levels(expected)).max() <= 2


def test_zoomed_out_there_is_no_moire(page: Any) -> None:
    rows, cols = np.mgrid[:160, :160]
    square = (rows - 80) ** 2 + (cols - 80) ** 2
    rings = 127.5 + 127.5 * np.cos(0.0196 * square)  # up to half a cycle a pixel, at the edges
    drop(page, ("rings.png", png(np.repeat(rings.astype(np.uint8)[..., None], 3, 2))))
    wait_live(page)
    size = (40, 40)
    mapping = [[4, 0, 0], [0, 4, 0], [0, 0, 1]]
    radius = np.hypot(*(np.mgrid[:40, :40] - 19.5))
    far = (radius > 14) & (radius < 18)  # rings too fine for a quarter of the size, and not for the picture
    ours = captured(page, mapping, size)[far].std()
    nearest = captured(page, mapping, size, other="nearest", curtain=40)[far].std()
    assert nearest > 60 and ours < 4


def test_a_model_of_many_waves_is_drawn_as_tiles(page: Any) -> None:
    drop(page, ("small.png", png(np.full((12, 16, 3), 120, np.uint8))))
    wait_live(page)
    page.select_option("#model", "edsr-plus")
    page.wait_for_selector("#status[data-mode=tiles]")
    assert "edsr-plus" in page.inner_text("#status")
    page.wait_for_selector(".thera-level img[data-done]")
    assert page.evaluate("() => document.querySelector('.thera-level img[data-done]').naturalWidth") > 16


def test_without_webgl2_the_page_draws_tiles_and_says_so(playwright: Any, chromium_path: str) -> None:
    arguments = ["--no-sandbox", "--disable-3d-apis"]
    browser = playwright.chromium.launch(executable_path=chromium_path, args=arguments)
    with program([ASTRONAUT]) as url:
        page = opened(browser, url)
        page.wait_for_selector("#status[data-mode=tiles]")
        assert "no WebGL2" in page.inner_text("#status")
        page.wait_for_selector(".thera-level img[data-done]")
        page.keyboard.press("+")
        settle(page, "document.querySelectorAll('.thera-level img:not([data-done])').length === 0")
        assert page.errors == []
    browser.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_everything_has_a_name_fits_and_can_be_read(browser: Any, width: int, scheme: str) -> None:
    with program([ASTRONAUT]) as url:
        page = opened(browser, url, viewport={"width": width, "height": 800}, color_scheme=scheme)
        wait_live(page)
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        assert (
            page.evaluate(
                """() => [...document.querySelectorAll("button, input:not([hidden]), select, output")]
              .filter((e) => e.checkVisibility() && e.tagName !== "OUTPUT")
              .filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.length))
              .map((e) => e.outerHTML)"""
            )
            == []
        )
        # WCAG AA: text against what is behind it.
        assert (
            page.evaluate(
                """() => {
              const luminance = (colour) => {
                const context = new OffscreenCanvas(1, 1).getContext("2d");
                context.fillStyle = colour;
                context.fillRect(0, 0, 1, 1);
                const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map((v) =>
                  v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
              };
              const behind = (e) => {
                const colour = getComputedStyle(e).backgroundColor;
                return /, 0\\)|transparent/.test(colour) ? behind(e.parentElement) : colour;
              };
              const named = "h1, #title, legend, .small, .choices label, #download";
              const texts = [...document.querySelectorAll(named)].filter((e) => e.checkVisibility());
              return Math.min(...texts.map((e) => {
                const [a, b] = [luminance(getComputedStyle(e).color), luminance(behind(e))];
                return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
              }));
            }"""
            )
            >= 4.5
        )
        page.context.close()


def test_an_exported_page_draws_the_same_from_disk(browser: Any, tmp_path: Path) -> None:
    model = thera.load("edsr-air")
    export_page(ASTRONAUT, tmp_path / "page.html", model)
    page = opened(browser, (tmp_path / "page.html").as_uri())
    wait_live(page)
    assert page.title() == "astronaut.png · Thera"
    assert not page.locator("#download").is_visible()
    with Image.open(ASTRONAUT) as image:
        pixels = np.asarray(image.convert("RGB"), np.float32) / 255
    expected = levels(model.encode(pixels).render(scale=3))
    mapping = [[1 / 3, 0, 0], [0, 1 / 3, 0], [0, 0, 1]]
    assert np.abs(captured(page, mapping, (192, 288)) - expected).max() <= 2
    page.get_by_text("Nearest", exact=True).click()
    assert page.get_by_role("slider", name="Curtain").is_visible()
    assert page.errors == []
    page.context.close()
