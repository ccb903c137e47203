"""`thera site` in Chromium: a folder on a plain web host that enlarges pictures by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from site_page import Plain, Visit, decoded, png, served

import thera
from thera.cli.main import run

ASTRONAUT = Path(__file__).parents[1] / "data" / "astronaut.png"
CLOSE = 2.0  # levels of 255


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "site"
    with pytest.raises(SystemExit) as ended:
        run(["site", str(folder), "--picture", str(ASTRONAUT)])
    assert ended.value.code == 0
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site on a web host that sends no headers of its own, as `python -m http.server`."""
    with served(site, Plain) as url:
        yield url


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Visit]:
    made = Visit(browser, address)
    yield made
    made.close()


def photo() -> np.ndarray:
    return np.asarray(Image.open(ASTRONAUT).convert("RGB"))


def rendered(image: np.ndarray, scale: int) -> np.ndarray:
    field = thera.load("edsr-air").encode(image.astype(np.float32) / 255)
    return np.clip(255 * field.render(scale=scale, psf=thera.Seamless()).astype(np.float64), 0, 255)


def test_the_first_picture_is_live_and_its_download_is_the_rendering(visit: Visit) -> None:
    visit.live()
    name, data = visit.download()
    assert name == "astronaut_x4.png"
    assert np.abs(decoded(data) - rendered(photo(), 4)).max() <= CLOSE


def test_nothing_is_loaded_from_another_host_and_the_page_is_isolated(visit: Visit, address: str) -> None:
    visit.live()
    assert all(url.startswith((address, f"blob:{address}", "data:")) for url in visit.asked)
    assert visit.page.evaluate("crossOriginIsolated")  # so that threads can be used, on a plain host
    policy = visit.page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert "default-src 'self'" in policy and "http" not in policy


def test_it_works_without_a_network_after_the_first_visit(browser: Any, site: Path) -> None:
    with served(site, Plain) as url:
        visit = Visit(browser, url)
        visit.live()
        visit.until(
            "(async () => { const files = await (await fetch('files.json')).json();"
            "const cache = await caches.open((await caches.keys())[0]);"
            "return (await cache.keys()).length >= files.length; })()"
        )
    visit.context.set_offline(True)
    visit.page.reload()
    visit.live()
    assert visit.download()[0] == "astronaut_x4.png"
    visit.close()


def test_chromium_finds_nothing_against_installing_it_as_an_app(visit: Visit, site: Path) -> None:
    visit.live()
    browser = visit.context.new_cdp_session(visit.page)
    given = browser.send("Page.getAppManifest")
    assert given["errors"] == []
    errors = browser.send("Page.getInstallabilityErrors")["installabilityErrors"]
    # A context of Playwright's is a private window, from which nothing is installed.
    assert [error["errorId"] for error in errors if error["errorId"] != "in-incognito"] == []
    manifest = json.loads(given["data"])
    assert manifest["start_url"] == manifest["scope"] == "./" and manifest["display"] == "standalone"
    pictures = [icon for icon in manifest["icons"] if icon["type"] == "image/png"]
    for icon in pictures:
        with Image.open(site / icon["src"]) as image:
            assert f"{image.width}x{image.height}" == icon["sizes"]
    assert {(icon["sizes"], icon.get("purpose", "any")) for icon in pictures} == {
        ("192x192", "any"),
        ("512x512", "any"),
        ("512x512", "maskable"),
    }
    touch = visit.page.get_attribute("link[rel=apple-touch-icon]", "href")
    kept = json.loads((site / "files.json").read_text())
    assert touch in kept and all(icon["src"] in kept for icon in manifest["icons"])


def test_a_download_goes_on_while_one_zooms_shows_another_picture_and_closes_its_own(visit: Visit) -> None:
    visit.live()
    visit.give("other.png", png(photo()[:40, :50]))
    visit.until("document.getElementById('title').textContent.startsWith('other.png')")
    visit.page.get_by_label("Show astronaut.png").click()
    visit.page.click("input[value='8']", force=True)
    with visit.page.expect_download(timeout=120_000) as event:
        visit.page.click("#download")
        visit.page.click("#in")
        visit.page.get_by_label("Show other.png").click()
        visit.page.get_by_label("Close astronaut.png").click()
    assert event.value.suggested_filename == "astronaut_x8.png"
    made = decoded(Path(event.value.path()).read_bytes())
    assert np.abs(made - rendered(photo(), 8)).max() <= CLOSE
    visit.live()


#: What the status says until the picture is live, without repetitions.
STATUS = """globalThis.said = []; setInterval(() => {
  const text = document.getElementById("status-text")?.textContent;
  if (text && text !== said.at(-1)) said.push(text);
}, 20);"""


def test_the_first_encoding_on_a_computer_tells_its_time(browser: Any, site: Path) -> None:
    with served(site) as url:
        visit = Visit(browser, url, script=STATUS)
        visit.until("globalThis.thera?.painter")
        visit.give("large.png", png(np.tile(photo(), (2, 2, 1))))  # which is encoded in one piece
        visit.live()
        visit.until("document.getElementById('title').textContent.startsWith('large.png')")
        visit.live()
        said = visit.page.evaluate("said")
        visit.close()
    assert "Air is working out the detail" in said
    assert any(each.startswith("Air is working out the detail · ") for each in said)
    assert not any("waits" in each for each in said)  # nothing else was to be done


def test_encoding_and_downloads_can_be_stopped_and_started_again(visit: Visit) -> None:
    visit.live()
    large = np.tile(photo(), (4, 3, 1))  # takes seconds
    visit.give("large.png", png(large))
    visit.until("document.getElementById('status-action').textContent === 'Cancel'")
    visit.page.click("#download")
    visit.page.click("#status-action")
    visit.until("document.getElementById('status-text').textContent.startsWith('Stopped')")
    visit.until("document.querySelector('#jobs [data-state=running]')")
    visit.page.click("#jobs button:has-text('Cancel')")
    visit.until("document.querySelector('#jobs [data-state=cancelled]')")
    visit.give("small.png", png(photo()[:20, :20]))
    visit.live()
    assert visit.page.locator("#jobs [data-state=cancelled] button", has_text="Start again").count() == 1


def test_a_file_that_is_no_picture_is_named(visit: Visit) -> None:
    visit.live()
    visit.give("notes.txt", b"hello")
    notice = visit.page.locator("#notices li")
    notice.wait_for()
    assert "notes.txt is no picture that this browser can read" in notice.inner_text()


def test_plus_is_offered_with_its_time_and_drawn_in_tiles(visit: Visit) -> None:
    visit.live()
    visit.give("small.png", png(photo()[:24, :32]))
    visit.until("document.getElementById('title').textContent.startsWith('small.png')")
    visit.live()
    plus = visit.page.locator("#models label", has_text="Plus")
    assert "about" in plus.inner_text() or "under" in plus.inner_text()
    plus.click()
    visit.until("globalThis.thera.status.mode === 'tiles'")
    visit.until(
        "document.querySelectorAll('.thera-tiles img').length > 0"
        " && !document.querySelector('.thera-tiles img:not([data-done])')"
    )
    assert visit.page.evaluate(
        "[...document.querySelectorAll('.thera-tiles img')].every((image) => image.naturalWidth > 0)"
    )


def test_on_a_phone_the_download_is_one_thumb_away(browser: Any, playwright: Any, address: str) -> None:
    device = {**playwright.devices["Pixel 7"]}
    del device["default_browser_type"]
    visit = Visit(browser, address, **device)
    visit.live()
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    with visit.page.expect_download(timeout=120_000) as event:
        visit.page.click("#bar-download")
    assert event.value.suggested_filename == "astronaut_x4.png"
    visit.close()
