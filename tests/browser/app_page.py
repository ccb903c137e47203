"""What the tests of the local page share: its program in a thread, files to drop, views to read."""

from __future__ import annotations

import base64
import io
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

ASTRONAUT = Path(__file__).parents[1] / "data" / "astronaut.png"

DROP = """(files) => {
  const data = new DataTransfer();
  for (const [name, text] of files) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    data.items.add(new File([bytes], name));
  }
  return data;
}"""

CAPTURE = """([mapping, size, look]) => {
  const { painter, camera } = thera;
  const bytes = painter.capture(mapping, size, camera.picture, look);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}"""

MAPPING = """([zoom, angle, tilt, size, centre]) => {
  const { camera } = thera;
  const kept = { ...camera };
  Object.assign(camera, { zoom, angle, tilt, size, centre });
  const mapping = camera.mapping();
  Object.assign(camera, kept);
  return mapping;
}"""


@contextmanager
def program(images: Sequence[Path] = (), measure: bool = False) -> Iterator[str]:
    """The page's program, and its address. `measure`: it finds out how long each model takes."""
    from thera.cli.app import listening, page_server
    from thera.web.app import create_app

    with listening(0) as listener:
        app = create_app(images)
        if not measure:
            app.state.queue.start("measure", lambda job: None)  # so that no other is started
        server = page_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


def opened(browser: Any, url: str, **options: Any) -> Any:
    """A page that is ready, and that fails the test that it has an error in."""
    page = browser.new_context(**{"viewport": {"width": 1000, "height": 700}, **options}).new_page()
    page.set_default_timeout(30_000)
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("console", lambda line: complains(line) and page.errors.append(line.text))
    page.goto(url)
    page.wait_for_selector("body[data-ready]", state="attached")
    return page


def complains(line: Any) -> bool:
    """True for errors and warnings in the console, but for files that were refused, as some tests want."""
    return line.type in ("error", "warning") and "Failed to load resource" not in line.text


def drop(page: Any, *files: tuple[str, bytes]) -> None:
    """Drops files on the page, as a person would."""
    data = _given(page, files)
    page.dispatch_event("body", "dragover", {"dataTransfer": data})
    page.dispatch_event("body", "drop", {"dataTransfer": data})


def paste(page: Any, *files: tuple[str, bytes]) -> None:
    """Pastes files, as a person would."""
    clipboard = "(data) => dispatchEvent(new ClipboardEvent('paste', { clipboardData: data }))"
    page.evaluate(clipboard, _given(page, files))


def _given(page: Any, files: Sequence[tuple[str, bytes]]) -> Any:
    coded = [[name, base64.b64encode(content).decode()] for name, content in files]
    return page.evaluate_handle(DROP, coded)


def wait_live(page: Any) -> None:
    page.wait_for_selector("#status[data-mode=live]")
    page.wait_for_selector("#status-action", state="hidden")


def captured(page: Any, mapping: Any, size: tuple[int, int], **look: Any) -> NDArray[np.float64]:
    """What the shader draws under a mapping, H'×W'×3 levels."""
    text = page.evaluate(CAPTURE, [np.asarray(mapping, float).tolist(), list(size), look])
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(*size, 4)[..., :3].astype(np.float64)


def camera_mapping(
    page: Any, zoom: float, angle: float, tilt: float, size: tuple[int, int], centre: tuple[float, float]
) -> Any:
    """Screen to picture under the page's own camera."""
    return page.evaluate(MAPPING, [zoom, angle, tilt, list(size), list(centre)])


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def levels(values: NDArray) -> NDArray[np.float64]:
    return 255 * np.clip(np.asarray(values, np.float64), 0, 1)


def settle(page: Any, condition: str, seconds: float = 20) -> None:
    """Waits until an expression of the page is true; its own rules forbid evaluating text there."""
    end = time.monotonic() + seconds
    while not page.evaluate(f"() => Boolean({condition})"):
        if time.monotonic() > end:
            raise TimeoutError(condition)
        time.sleep(0.03)
