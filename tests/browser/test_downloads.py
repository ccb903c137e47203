"""Downloads: whatever else is done on the page, the file comes, and it is the program's."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from app_page import ASTRONAUT, drop, opened, png, program, settle, wait_live
from PIL import Image

from thera.cli.main import run
from thera.web.results import write_result

pytest.importorskip("fastapi", reason="the page needs: pip install 'thera[web]'")

WIDTHS = {"desktop": {"width": 1000, "height": 700}, "phone": {"width": 390, "height": 844}}
PHOTO = ("astronaut.png", ASTRONAUT.read_bytes())


@pytest.fixture(params=WIDTHS)
def page(request: pytest.FixtureRequest, browser: Any) -> Iterator[Any]:
    with program() as url:
        page = opened(browser, url, viewport=WIDTHS[request.param])
        yield page
        page.context.close()
    assert page.errors == []


class Held:
    """A download that waits at 40% until it may go on."""

    def __init__(self) -> None:
        self.go, self.count = Event(), 0

    def __call__(self, *given: Any, progress: Any, **named: Any) -> Path:
        self.count += 1
        while not self.go.wait(0.02):
            progress(0.4)
        return write_result(*given, progress=progress, **named)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    held = Held()
    monkeypatch.setattr("thera.web.app.write_result", held)
    return held


def press_download(page: Any) -> None:
    """By the button that is under the thumb on a phone."""
    button = page.locator("#download")
    (button if button.is_visible() else page.locator("#bar-download")).click()


def options(page: Any) -> None:
    """Opens the settings, which a phone hides."""
    if page.locator("#more").is_visible() and page.get_attribute("#more", "aria-expanded") == "false":
        page.click("#more")


def by_program(tmp_path: Path, name: str, data: bytes, *arguments: str) -> bytes:
    """The file that `thera upscale` makes of a picture."""
    (tmp_path / "in").mkdir(exist_ok=True)
    (tmp_path / "in" / name).write_bytes(data)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(SystemExit) as ended:
        run(["upscale", str(tmp_path / "in" / name), *arguments, "-m", "edsr-air", "-q", "--out", str(out)])
    assert ended.value.code == 0
    (made,) = out.iterdir()
    return made.read_bytes()


def test_the_file_is_the_program_s(page: Any, tmp_path: Path) -> None:
    with Image.open(ASTRONAUT) as image:
        image.convert("RGB").crop((0, 0, 40, 30)).save(tmp_path / "photo.jpg", dpi=(300, 300), quality=95)
    data = (tmp_path / "photo.jpg").read_bytes()
    drop(page, ("photo.jpg", data))
    wait_live(page)
    options(page)
    page.get_by_text("×2", exact=True).click()
    page.select_option("#format", "jpeg")
    page.locator("#quality").fill("80")
    assert "80 × 60" in page.inner_text("#outcome")
    with page.expect_download() as waiting:
        press_download(page)
    assert waiting.value.suggested_filename == "photo_x2.jpg"
    expected = by_program(tmp_path, "photo.jpg", data, "-s", "2", "--quality", "80")
    assert Path(waiting.value.path()).read_bytes() == expected


def test_nothing_that_is_done_in_the_view_stops_a_download(page: Any, held: Held) -> None:
    drop(page, PHOTO)
    wait_live(page)
    options(page)
    with page.expect_download() as waiting:
        press_download(page)
        page.wait_for_selector("#jobs [data-state=running] >> text=40%")
        page.click("#in")
        page.locator("[data-model=edsr-plus]").click()  # the view is encoded again, and tiles are made
        page.wait_for_selector("#status[data-mode=tiles]")
        page.locator("[data-model=edsr-air]").click()
        wait_live(page)
        drop(page, ("other.png", png(np.full((9, 12, 3), 50, np.uint8))))
        settle(page, "document.getElementById('title').textContent.includes('other.png')")
        page.get_by_label("Close astronaut.png").click()
        settle(page, "document.querySelectorAll('#pictures li').length === 1")
        assert page.locator("#jobs [data-state=running]").count() == 1
        held.go.set()
    with Image.open(waiting.value.path()) as image:
        assert image.size == (384, 256)
    assert held.count == 1


def test_a_download_outlives_a_reload_and_is_seen_in_a_second_tab(page: Any, held: Held) -> None:
    drop(page, PHOTO)
    wait_live(page)
    press_download(page)
    page.wait_for_selector("#jobs [data-state=running]", state="attached")
    page.reload()
    page.wait_for_selector("#jobs [data-state=running]", state="attached")
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_selector("#jobs [data-state=running]", state="attached")
    held.go.set()
    for each in (page, other):
        each.wait_for_selector("#jobs [data-state=done]", state="attached")
        options(each)
        with each.expect_download() as waiting:  # from either of them, and again
            each.get_by_label("Save astronaut_x4.png").click()
        assert Path(waiting.value.path()).read_bytes()[:4] == b"\x89PNG"
    page.get_by_label("Remove astronaut_x4.png").click()
    for each in (page, other):
        settle(each, "document.querySelectorAll('#jobs li').length === 0")
    assert held.count == 1


def test_a_download_is_cancelled_and_tried_again(page: Any, held: Held) -> None:
    drop(page, PHOTO)
    wait_live(page)
    options(page)
    press_download(page)
    page.wait_for_selector("#jobs [data-state=running] >> text=40%")
    assert "left" in page.inner_text("#jobs")
    page.get_by_label("Cancel astronaut_x4.png").click()
    page.wait_for_selector("#jobs [data-state=cancelled]")
    assert page.inner_text("#status") == "Air, drawn live"  # the view has nothing to do with it
    held.go.set()
    with page.expect_download():
        page.get_by_label("Start again astronaut_x4.png").click()
    assert page.locator("#notices li").count() == 0


def test_a_download_that_fails_says_why_and_can_be_tried_again(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any, **named: Any) -> Path:
        raise MemoryError

    drop(page, PHOTO)
    wait_live(page)
    options(page)
    with monkeypatch.context() as patch:
        patch.setattr("thera.web.app.write_result", fail)
        press_download(page)
        page.wait_for_selector("#jobs [data-state=failed]")
    assert "smaller size" in page.inner_text("#jobs")
    page.get_by_label("Remove astronaut_x4.png").click()
    settle(page, "document.querySelectorAll('#jobs li').length === 0")


def test_an_order_that_cannot_be_met_is_refused_at_once(page: Any) -> None:
    drop(page, PHOTO)
    wait_live(page)
    options(page)
    page.get_by_text("Own", exact=True).click()
    page.fill("#width", "70000")
    page.select_option("#format", "jpeg")
    press_download(page)
    page.wait_for_selector("#notices:has-text('65,535')")
    assert page.locator("#jobs li").count() == 0


def test_ten_pictures_are_downloaded_at_once(page: Any) -> None:
    pictures = [(f"{i}.png", png(np.full((8, 10 + i, 3), 20 * i, np.uint8))) for i in range(10)]
    drop(page, *pictures)
    settle(page, "document.querySelectorAll('#pictures li').length === 10")
    options(page)
    page.get_by_text("×2", exact=True).click()
    came: list[Any] = []
    page.on("download", lambda download: came.append(download))
    page.click("#download-all")
    settle(page, "document.querySelectorAll('#jobs [data-state=done]').length === 10")
    end = time.monotonic() + 30
    while len(came) < 10 and time.monotonic() < end:
        page.wait_for_timeout(50)
    assert sorted(each.suggested_filename for each in came) == [f"{i}_x2.png" for i in range(10)]
    for each in came:
        number = int(each.suggested_filename[0])
        with Image.open(each.path()) as image:
            assert image.size == (2 * (10 + number), 16)
            assert np.abs(np.asarray(image, int) - 20 * number).max() <= 2


def test_a_file_that_is_made_before_its_order_is_answered_is_saved(page: Any) -> None:
    drop(page, PHOTO)
    wait_live(page)

    def answered_late(route: Any) -> None:
        response = route.fetch()
        late.append((route, response))

    late: list[Any] = []
    page.route("**/download", answered_late)
    press_download(page)
    page.wait_for_selector("#jobs [data-state=done]", state="attached")
    with page.expect_download():
        late[0][0].fulfill(response=late[0][1])


def test_a_wrong_file_among_others_is_named_and_the_others_are_downloaded(page: Any) -> None:
    small = np.full((8, 10, 3), 90, np.uint8)
    drop(page, ("a.png", png(small)), ("notes.txt", b"no picture"), ("cut.png", png(small)[:40]), PHOTO)
    settle(page, "document.querySelectorAll('#pictures li').length === 2")
    for name in ("notes.txt", "cut.png"):
        page.wait_for_selector(f"#notices:has-text('{name}')")
    wait_live(page)
    with page.expect_download() as waiting:
        press_download(page)
    assert waiting.value.suggested_filename == "astronaut_x4.png"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JPEG of 12,000×9,000 pixels in flat areas, which takes a second to make and to read."""
    path = tmp_path_factory.mktemp("large") / "large.jpg"
    areas = Image.fromarray(np.random.default_rng(0).integers(0, 255, (9, 12), np.uint8))
    areas.resize((12_000, 9_000), Image.Resampling.NEAREST).save(path, quality=50)
    return path


@pytest.mark.parametrize("width", WIDTHS)
def test_a_jpeg_of_12000_by_9000_is_seen_sharp_and_its_download_can_be_cancelled(
    browser: Any, large: Path, width: str
) -> None:
    with program([large]) as url:
        page = opened(browser, url, viewport=WIDTHS[width])
        settle(page, "thera.painter.pixels")
        assert "12000 × 9000" in page.inner_text("#title")
        assert "zoom in" in page.inner_text("#status")
        options(page)
        page.get_by_text("×2", exact=True).click()
        press_download(page)
        page.wait_for_selector("#jobs [data-state=running]", state="attached")
        page.evaluate("() => { thera.camera.zoomBy(40 / thera.camera.zoom); thera.moved(); }")
        wait_live(page)  # beside the download
        assert page.inner_text("#status").endswith("this part")
        page.get_by_label("Cancel large_x2.jpg").click()
        page.wait_for_selector("#jobs [data-state=cancelled]")
        assert page.errors == []
        page.context.close()


SEEN = """async () => {
  const { width, height, data } = thera.capture();
  const reader = new FileReader();
  const read = new Promise((resolve) => { reader.onload = resolve; });
  reader.readAsDataURL(new Blob([data]));
  await read;
  return [height, width, reader.result.split(",")[1]];
}"""


def seen(page: Any) -> np.ndarray:
    height, width, data = page.evaluate(SEEN)
    return np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4).astype(np.int16)


@pytest.mark.parametrize("tiles", [False, True])
def test_what_is_seen_is_saved_cropped_turned_and_tilted(browser: Any, tiles: bool) -> None:
    with program([ASTRONAUT]) as url:
        page = opened(browser, url, viewport={"width": 700, "height": 500})
        wait_live(page)
        page.evaluate(
            """() => { Object.assign(thera.camera, { zoom: 5, angle: 20, tilt: 15 }); thera.moved(); }"""
        )
        expected = seen(page)
        if tiles:  # the program makes the file
            page.goto(f"{url}?tiles")
            page.wait_for_selector("#status[data-mode=tiles]")
            page.evaluate(
                """() => { Object.assign(thera.camera, { zoom: 5, angle: 20, tilt: 15 }); thera.moved(); }"""
            )
        with page.expect_download() as waiting:
            page.click("#save-view")
        assert waiting.value.suggested_filename == "astronaut_view.png"
        with Image.open(waiting.value.path()) as image:
            found = np.asarray(image.convert("RGBA"), np.int16)
        assert found.shape == expected.shape
        inside = (expected[..., 3] == 255) & (found[..., 3] == 255)
        assert inside.mean() > 0.5
        assert np.abs(found - expected)[inside].max() <= (3 if tiles else 0)
        assert page.errors == []
        page.context.close()


def test_tiles_are_saved_as_they_are_seen_with_what_they_are_compared_with(browser: Any) -> None:
    with Image.open(ASTRONAUT) as image:
        cut = image.convert("RGBA").crop((0, 0, 60, 48))
    cut.putpixel((0, 0), (0, 0, 0, 0))  # which makes it a picture that is drawn in tiles
    with program() as url:
        page = opened(browser, url)
        drop(page, ("cut.png", png(np.asarray(cut))))
        page.wait_for_selector("#status[data-mode=tiles]")
        ways = [("edsr-plus", "curtain", "picture"), ("nearest", "split", "picture"), ("", "", "gradient")]
        for other, way, shown in ways:
            page.select_option("#other", other)
            if way:
                page.check(f"[name=way][value={way}]", force=True)
            page.evaluate(f"() => document.querySelector('[name=shown][value={shown}]').click()")
            page.evaluate(
                """() => { Object.assign(thera.camera, { zoom: 6, angle: 20, tilt: 15 }); thera.moved(); }"""
            )
            page.wait_for_timeout(300)  # after which the view rests
            settle(page, "thera.complete")
            with page.expect_download() as waiting:
                page.click("#save-view")
            with Image.open(waiting.value.path()) as image:
                found = np.asarray(image.convert("RGBA"), np.int16)
            page.evaluate("() => thera.handle.style.visibility = 'hidden'")
            screen = page.locator("#stage").screenshot()
            with Image.open(io.BytesIO(screen)) as image:
                expected = np.asarray(image.convert("RGB"), np.int16)[: found.shape[0]]
            inside = found[..., 3] == 255
            assert inside.mean() > 0.2
            # Labels lie over the picture, and the screen's interpolation is another.
            assert np.percentile(np.abs(found[..., :3] - expected)[inside], 95) < 8, (other, way, shown)
        assert page.errors == []
        page.context.close()


def test_what_is_saved_of_tiles_lies_where_it_is_seen_and_is_never_half_drawn(browser: Any) -> None:
    ramp = np.empty((48, 60, 4), np.uint8)
    ramp[...] = (0, 0, 90, 255)
    ramp[..., 0], ramp[..., 1] = 4 * np.arange(60), 5 * np.arange(48)[:, None]
    ramp[0, 0, 3] = 0  # which makes it a picture that is drawn in tiles
    with program() as url:
        page = opened(browser, url, viewport={"width": 700, "height": 500})
        drop(page, ("ramp.png", png(ramp)))
        page.wait_for_selector("#status[data-mode=tiles]")
        page.route("**/tile*", lambda route: None)
        page.evaluate("""() => {
          Object.assign(thera.camera, { zoom: 27.3, centre: [20.37, 30.61] });
          thera.moved();
        }""")
        settle(page, "thera.tiles.waiting")
        assert page.evaluate("() => thera.capture()") is None
        with page.expect_download() as waiting:  # the program makes it
            page.click("#save-view")
        with Image.open(waiting.value.path()) as image:
            early = np.asarray(image.convert("RGBA"), np.int16)
        page.unroute("**/tile*")  # which lets the tiles come
        settle(page, "!thera.tiles.waiting")
        for found in (early, seen(page)):
            rows, cols = found.shape[:2]
            row = 20.37 + (np.arange(rows)[:, None] + 0.5 - rows / 2) / 27.3
            col = 30.61 + (np.arange(cols) + 0.5 - cols / 2) / 27.3
            assert (found[..., 3] == 255).all()
            assert np.abs(found[..., 0] - 4 * (col - 0.5)).max() <= 3
            assert np.abs(found[..., 1] - 5 * (row - 0.5)).max() <= 3
        assert page.errors == []
        page.context.close()
