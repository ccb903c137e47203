"""The local page as a person uses it: drop, zoom, compare, and what goes wrong."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from app_page import ASTRONAUT, captured, drop, levels, opened, paste, png, program, settle, wait_live
from PIL import Image

import thera
from thera.imaging.sizing import Paper, TargetSize
from thera.tiled import TiledField
from thera.web import gallery
from thera.web.export import export_page

pytest.importorskip("fastapi", reason="the page needs: pip install 'thera[web]'")

PHOTO = ("astronaut.png", ASTRONAUT.read_bytes())


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with program() as url:
        page = opened(browser, url)
        yield page
        page.context.close()
    assert page.errors == []


def test_before_a_picture_is_open_there_is_nothing_but_ways_to_open_one(page: Any) -> None:
    assert page.get_by_text("127.0.0.1").is_visible()  # it says that it is on loopback
    shown = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, summary")]
          .filter((e) => e.checkVisibility()).map((e) => e.textContent)"""
    )
    assert shown == ["Keys", "Open pictures", "Choose pictures"]


def test_a_dropped_picture_is_seen_at_once_and_live_when_it_is_encoded(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, go = TiledField.encode, Event()
    monkeypatch.setattr(TiledField, "encode", lambda *given: (go.wait(20), real(*given))[1])
    drop(page, PHOTO)
    settle(page, "thera.painter.pixels")
    page.wait_for_selector("#status-action:text('Cancel')")
    assert "Air is working out the detail" in page.inner_text("#status")
    assert page.get_attribute("#status", "data-mode") == "pixels"
    go.set()
    wait_live(page)
    assert page.inner_text("#status") == "Air, drawn live"
    assert "96 × 64" in page.inner_text("#title")


def test_an_upload_is_seen_from_its_first_byte(page: Any) -> None:
    waiting: list[Any] = []
    page.route("**/api/pictures?name=*", lambda route: waiting.append(route))
    drop(page, PHOTO, ("second.png", PHOTO[1]))
    for name in ("astronaut.png", "second.png"):
        page.wait_for_selector(f"#uploads li:has-text('{name}') progress")
        for _ in range(500):
            if not waiting:
                page.wait_for_timeout(20)
        waiting.pop().continue_()
    settle(page, "document.querySelectorAll('#pictures li').length === 2")
    assert page.locator("#uploads").is_hidden()


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
    settle(page, "document.getElementById('percent').textContent === '100%'")
    page.click("#fit")
    assert page.evaluate("() => [thera.camera.zoom, thera.camera.angle]") == [pytest.approx(zoom), 0]
    centre = page.evaluate("() => thera.camera.centre")
    page.mouse.move(*spot)
    page.mouse.down()
    page.mouse.move(spot[0] + 40, spot[1] + 20)
    page.mouse.up()
    moved = np.subtract(centre, page.evaluate("() => thera.camera.centre"))
    np.testing.assert_allclose(moved, np.array([20, 40]) / zoom, atol=1e-3)


@pytest.fixture
def phone(playwright: Any, browser: Any) -> Iterator[Any]:
    """The page on a phone: touch, a narrow screen with three dots to a pixel, a mobile browser."""
    device = {**playwright.devices["iPhone 13"]}
    del device["default_browser_type"]
    with program() as url:
        page = opened(browser, url, **device)
        yield page
        page.context.close()
    assert page.errors == []


def fingers(page: Any, *steps: list[tuple[float, float]]) -> None:
    """Fingers that touch the screen, move from step to step, and leave it."""
    touch = page.context.new_cdp_session(page)
    for kind, points in [
        ("touchStart", steps[0]),
        *(("touchMove", each) for each in steps[1:]),
        ("touchEnd", []),
    ]:
        touches = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})


def test_two_fingers_zoom_and_turn_and_one_moves(phone: Any) -> None:
    phone.set_input_files("#files", str(ASTRONAUT))
    wait_live(phone)
    zoom = phone.evaluate("() => thera.camera.zoom")
    turns = [(np.pi / 2 * step / 4, 100 * (1 + step / 4)) for step in range(5)]
    # Apart to twice the distance, and round by a quarter.
    fingers(phone, *([(150, 200), (150 + r * np.cos(a), 200 + r * np.sin(a))] for a, r in turns))
    settle(phone, f"thera.camera.zoom > 1.9 * {zoom}")
    assert phone.evaluate("() => thera.camera.angle") == pytest.approx(90, abs=1)
    phone.evaluate("() => { thera.camera.fit(); thera.moved(); }")
    row, col = phone.evaluate("() => thera.camera.centre")
    fingers(phone, [(150, 200)], [(170, 205)], [(190, 210)])
    settle(phone, f"Math.abs({col} - thera.camera.centre[1] - 40 / thera.camera.zoom) < 0.1")
    assert row - phone.evaluate("() => thera.camera.centre[0]") == pytest.approx(10 / zoom, abs=0.1)


#: The heights of the screen and of the picture's place, and whether anything lies over that.
PLACE = """() => {
  const stage = document.getElementById("stage");
  const { left, top, width, height } = stage.getBoundingClientRect();
  const at = [0.1, 0.5, 0.9].flatMap((x) => [0.1, 0.5, 0.9].map((y) => [left + x * width, top + y * height]));
  const free = at.every(([x, y]) => stage.contains(document.elementFromPoint(x, y)));
  return [innerHeight, height, free];
}"""


def test_on_a_phone_the_picture_keeps_its_place_and_the_download_is_under_the_thumb(phone: Any) -> None:
    name = "a picture with a very long name, as some cameras and messengers give.png"
    files = [
        {"name": each, "mimeType": "", "buffer": data}
        for each, data in [("a.txt", b"none"), ("b.txt", b"none"), ("c.txt", b"none"), (name, PHOTO[1])]
    ]
    phone.set_input_files("#files", files)
    wait_live(phone)
    assert phone.locator("#notices li").count() == 3
    for _ in range(2):  # with the settings closed, and open
        screen, height, free = phone.evaluate(PLACE)
        assert free and height > 0.2 * screen
        box = phone.locator("#bar-download").bounding_box()
        assert box["height"] >= 44 and screen - 90 < box["y"] + box["height"] <= screen
        phone.click("#more")
    with phone.expect_download():
        phone.click("#bar-download")
    for part in ("#bar-progress", "#title-size"):  # which no name pushes off the screen
        box = phone.locator(part).bounding_box()
        assert box["width"] > 20 and box["x"] + box["width"] <= 390
    assert phone.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_the_curtain_is_dragged_and_moved_by_keys(page: Any) -> None:
    drop(page, PHOTO)
    wait_live(page)
    page.select_option("#other", label="Bicubic")
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
    assert page.inner_text("#labels").split() == ["Bicubic", "Air"]
    page.select_option("#other", label="Nothing")
    slider.wait_for(state="hidden")


SEEN = """() => {
  const seen = thera.capture();
  const [rows, cols] = [seen.height, seen.width];
  const mapping = thera.camera.mapping();
  const alone = (curtain) => thera.painter.capture(mapping, [rows, cols / 2], thera.camera.picture, {
    ...thera.look, curtain, preview: true });
  const [other, own] = [alone(cols), alone(0)];
  let [left, right] = [0, 0];
  for (let i = 0; i < rows; i++) for (let j = 0; j < 2 * cols; j++) {
    left = Math.max(left, Math.abs(seen.data[4 * i * cols + j] - other[2 * i * cols + j]));
    right = Math.max(right, Math.abs(seen.data[4 * i * cols + 2 * cols + j] - own[2 * i * cols + j]));
  }
  return [left, right];
}"""


def test_side_by_side_both_halves_show_the_same_part(page: Any) -> None:
    drop(page, PHOTO)
    wait_live(page)
    page.select_option("#other", label="As given")
    page.get_by_text("Side by side", exact=True).click()
    settle(page, "thera.split")
    page.keyboard.press("+")
    assert max(page.evaluate(SEEN)) <= 1  # single floats of two places in the view
    assert page.get_by_role("slider", name="Curtain").is_hidden()


def test_another_model_is_compared_with(page: Any) -> None:
    drop(page, ("small.png", png(np.full((12, 16, 3), 120, np.uint8))))
    wait_live(page)
    page.select_option("#other", label="Plus")
    settle(page, "thera.otherElement.querySelector('img[data-done]')?.naturalWidth > 16")
    assert "model=edsr-plus" in page.evaluate("() => thera.otherElement.querySelector('img').src")
    assert page.inner_text("#status") == "Air, drawn live"


def test_encoding_can_be_stopped_and_started_again(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    began, stopped = Event(), Event()

    def slow(*given: Any) -> None:
        try:
            began.set()
            for _ in range(1000):
                time.sleep(0.02)
                given[-1](0.4)
        finally:
            stopped.set()

    with monkeypatch.context() as patch:
        patch.setattr(gallery.Gallery, "pack", slow)
        drop(page, PHOTO)
        assert began.wait(20)
        # It may be drawn further by the clock before the first report, and never goes back.
        settle(page, "document.getElementById('status-share').value >= 0.4")
        page.click("#status-action")
        page.wait_for_selector("#status-action:text('Start again')")
        assert stopped.wait(5)
    assert "bicubic" in page.inner_text("#status")
    page.click("#status-action")
    wait_live(page)


def test_encoding_that_fails_says_why_and_can_be_tried_again(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(gallery.Gallery, "pack", fail)
        drop(page, PHOTO)
        page.wait_for_selector("#status-action:text('Start again')")
        assert "more memory" in page.inner_text("#status")
    page.click("#status-action")
    wait_live(page)


def test_a_page_that_is_closed_stops_what_it_waited_for(
    browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, began = Event(), Event()

    def slow(*given: Any) -> None:
        try:
            for _ in range(1000):
                began.set()
                time.sleep(0.02)
                given[-1](0.4)
        finally:
            stopped.set()

    monkeypatch.setattr(gallery.Gallery, "pack", slow)
    with program([ASTRONAUT]) as url:
        page = opened(browser, url)
        assert began.wait(10)
        page.close()
        assert stopped.wait(5)
        page.context.close()


def test_a_wrong_file_is_named_and_the_others_are_shown(page: Any) -> None:
    drop(page, ("notes.txt", b"no picture"), PHOTO)
    wait_live(page)
    assert "notes.txt" in page.inner_text("#notices") and "not an image" in page.inner_text("#notices")
    page.get_by_label("Dismiss").click()
    settle(page, "document.getElementById('notices').children.length === 0")


def test_what_is_no_file_is_refused(page: Any) -> None:
    drop(page)
    page.wait_for_selector("#notices:has-text('is no file')")


def test_several_pictures_are_pasted(page: Any) -> None:
    paste(page, PHOTO, ("grey.png", png(np.full((20, 30, 3), 99, np.uint8))))
    settle(page, "document.querySelectorAll('#pictures li').length === 2")
    wait_live(page)
    assert page.inner_text("#title-name") == "grey.png"  # the last one is shown


def test_several_pictures_are_shown_in_turn_and_closed(page: Any) -> None:
    drop(page, PHOTO, ("grey.png", png(np.full((20, 30, 3), 99, np.uint8))))
    settle(page, "document.getElementById('title').textContent.includes('30 × 20')")
    page.get_by_label("Show astronaut.png").click()
    settle(page, "document.getElementById('title').textContent.includes('96 × 64')")
    wait_live(page)
    page.get_by_label("Close astronaut.png").click()
    settle(page, "document.getElementById('title').textContent.includes('30 × 20')")


def test_what_a_photographer_should_know_of_a_picture_is_visible(page: Any) -> None:
    clear = np.full((12, 16, 4), 120, np.uint8)
    clear[:6, :, 3] = 0
    drop(page, ("clear.png", png(clear)))
    page.wait_for_selector("#status[data-mode=tiles]")
    assert "Transparency is shown on white" in page.inner_text("#notes")


def test_models_tell_their_time_for_this_picture(browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        gallery.Gallery, "measure", lambda self, model, *how: self.speeds.update({model: 2e4 * len(model)})
    )
    with program([ASTRONAUT], measure=True) as url:
        page = opened(browser, url)
        page.wait_for_selector("[data-model=edsr-pro] .time:text('about')")
        assert page.inner_text("[data-model=edsr-plus] .time") == "about 18 min"  # 0.0061 megapixels
        page.context.close()


def test_a_large_picture_is_encoded_where_it_is_looked_at(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "MOST_CELLS", 50 * 50)
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


def test_a_jpeg_of_twelve_megapixels_is_seen_and_sharp_where_it_is_looked_at(page: Any) -> None:
    file = io.BytesIO()
    small = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)
    Image.fromarray(small).resize((4000, 3000)).save(file, "JPEG")
    drop(page, ("large.jpg", file.getvalue()))
    settle(page, "thera.painter.pixels")
    assert "4000 × 3000" in page.inner_text("#title")
    page.evaluate("() => { thera.camera.zoomBy(12 / thera.camera.zoom); thera.moved(); }")
    wait_live(page)
    assert page.inner_text("#status").endswith("this part")


def test_zoomed_out_there_is_no_moire(page: Any) -> None:
    rows, cols = np.mgrid[:160, :160]
    square = (rows - 80) ** 2 + (cols - 80) ** 2
    rings = 127.5 + 127.5 * np.cos(0.0196 * square)  # up to half a cycle a pixel, at the edges
    drop(page, ("rings.png", png(np.repeat(rings.astype(np.uint8)[..., None], 3, 2))))
    wait_live(page)
    size = (40, 40)
    mapping = [[4, 0, 0], [0, 4, 0], [0, 0, 1]]
    r, c = np.mgrid[:40, :40]
    far = np.hypot(r - 19.5, c - 19.5) > 14  # where the rings are finer than these pixels
    ours = captured(page, mapping, size)[far].std()
    nearest = captured(page, mapping, size, other="nearest", curtain=40)[far].std()
    assert nearest > 60 and ours < 4


def test_a_model_of_many_waves_is_drawn_as_tiles(page: Any) -> None:
    drop(page, ("small.png", png(np.full((12, 16, 3), 120, np.uint8))))
    wait_live(page)
    page.locator("[data-model=edsr-plus]").click()
    page.wait_for_selector("#status[data-mode=tiles]")
    assert "Plus" in page.inner_text("#status")
    page.wait_for_selector(".thera-level img[data-done]")
    assert page.evaluate("() => document.querySelector('.thera-level img[data-done]').naturalWidth") > 16
    page.locator("[data-model=edsr-air]").click()
    wait_live(page)


def test_without_webgl2_the_page_draws_tiles_and_says_so(playwright: Any, chromium_path: str) -> None:
    arguments = ["--no-sandbox", "--disable-3d-apis"]
    browser = playwright.chromium.launch(executable_path=chromium_path, args=arguments)
    with program([ASTRONAUT]) as url:
        page = opened(browser, url)
        page.wait_for_selector("#status[data-mode=tiles]")
        settle(page, "document.getElementById('status').textContent.includes('no WebGL2')")
        page.wait_for_selector(".thera-level img[data-done]")
        page.keyboard.press("+")
        settle(page, "document.querySelectorAll('.thera-level img:not([data-done])').length === 0")
        assert page.errors == []
        page.context.close()
    browser.close()


def test_sizes_are_those_that_the_program_computes(page: Any) -> None:
    """Halves are rounded to the even neighbour, and sums in the same order."""
    rng = np.random.default_rng(0)
    sources = rng.integers(1, 700, (60, 2)).tolist()
    cases: list[tuple[dict[str, Any], TargetSize]] = []
    for scale in (0.5, 1.5, 2.5, 3.14, 0.7):
        cases.append(({"scale": scale}, TargetSize(scale)))
    for side in (5, 333, 1001):
        cases.append(({"width": side}, TargetSize(width=side)))
        cases.append(({"height": side}, TargetSize(height=side)))
    cases.append(({"fit": [2160, 3840]}, TargetSize(fit=(2160, 3840))))
    for text in ("29.7x21cm", "30x20cm"):
        cases.append(({"paper": text, "dpi": 240}, TargetSize(paper=Paper.parse(text), dpi=240)))
    orders = [order for order, _ in cases]
    found = page.evaluate(
        """async ([orders, sources]) => {
          const { pixelsOf } = await import("./sizes.js");
          return orders.map((order) => sources.map(([height, width]) => pixelsOf(order, { width, height })));
        }""",
        [orders, sources],
    )
    for (order, target), sizes in zip(cases, found, strict=True):
        for source, (width, height) in zip(sources, sizes, strict=True):
            if min(width, height) >= 1:
                assert target.for_image(tuple(source)) == (height, width), (order, source)


def test_a_size_field_holds_six_digits_and_the_proportions(page: Any) -> None:
    drop(page, PHOTO)
    wait_live(page)
    page.get_by_text("Own", exact=True).click()
    page.fill("#width", "123456")
    settle(page, "document.getElementById('height').value === '82304'")
    assert page.evaluate(
        "() => { const e = document.getElementById('width'); return e.scrollWidth <= e.clientWidth }"
    )
    page.click("#lock")
    page.fill("#height", "100")
    settle(page, "document.getElementById('outcome').textContent.startsWith('123,456 × 100')")
    page.fill("#scale", "2.5")
    settle(page, "document.getElementById('outcome').textContent.startsWith('240 × 160')")
    page.get_by_text("Print", exact=True).click()
    settle(page, "document.getElementById('outcome').textContent.startsWith('3,543 × 2,362')")
    page.get_by_text("4K", exact=True).click()
    settle(page, "document.getElementById('outcome').textContent.startsWith('3,240 × 2,160')")


def test_an_exported_page_draws_the_same_from_disk(browser: Any, tmp_path: Path) -> None:
    model = thera.load("edsr-air")
    export_page(ASTRONAUT, tmp_path / "page.html", model)
    page = opened(browser, (tmp_path / "page.html").as_uri())
    wait_live(page)
    assert page.title() == "astronaut.png · Thera"
    assert not page.locator("#download").is_visible() and not page.locator("#open").is_visible()
    with Image.open(ASTRONAUT) as image:
        pixels = np.asarray(image.convert("RGB"), np.float32) / 255
    expected = levels(model.encode(pixels).render(scale=3))
    mapping = [[1 / 3, 0, 0], [0, 1 / 3, 0], [0, 0, 1]]
    assert np.abs(captured(page, mapping, (192, 288)) - expected).max() <= 2
    page.select_option("#other", label="As given")
    page.get_by_role("slider", name="Curtain").wait_for()
    assert page.locator("#other option").count() == 3
    assert page.errors == []
    page.context.close()


def test_a_program_that_has_ended_is_told_of(browser: Any) -> None:
    with program([ASTRONAUT]) as url:
        page = opened(browser, url)
        wait_live(page)
    page.wait_for_selector("#notices:has-text('does not answer')")
    assert page.errors == []
    page.context.close()
