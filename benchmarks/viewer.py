"""What the page's viewer costs, in a headless Chromium with the GL at hand.

    python benchmarks/viewer.py [--image photo.jpg] [--chromium /usr/bin/chromium] [--gpu]

- frames a second of the shader at 1920×1080, off the screen, for views that take each of its paths:
  magnified, about 1:1, made smaller, turned, tilted;
- the time from a dropped picture to its pixels, and to the first sharp frame of its field.

Without --gpu, WebGL2 runs in software (SwiftShader) on the processor's cores. Beside the time, the
processor's own time for a frame is printed: divided by its cores, it is what an idle machine takes.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

SOFTWARE_GL = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
GPU = ["--no-sandbox", "--use-angle=gl-egl", "--ignore-gpu-blocklist"]
SIZE = (1080, 1920)
# zoom, angle, tilt
VIEWS = {
    "×16": (16, 0, 0),
    "×4, turned by 30°": (4, 30, 0),
    "×4, tilted by 45°": (4, 20, 45),
    "the whole picture": (None, 0, 0),
    "×1, tilted by 45°": (1, 20, 45),
    "×0.7": (0.7, 0, 0),
    "×0.25": (0.25, 0, 0),
}

FRAMES = """async ([zoom, angle, tilt, count]) => {
  const { painter, camera } = thera;
  camera.size = [1080, 1920];
  camera.fit();
  Object.assign(camera, { angle, tilt, zoom: zoom ?? camera.zoom });
  const { gl } = painter;
  const target = gl.createTexture();
  gl.bindTexture(gl.TEXTURE_2D, target);
  gl.texStorage2D(gl.TEXTURE_2D, 1, gl.RGBA8, 1920, 1080);
  const times = [];
  for (let i = 0; i <= count; i++) {
    camera.centre[1] += 0.3;  // no frame is the last one again
    const began = performance.now();
    painter.into(target, () => painter.paint(camera.mapping(), camera.size, camera.picture, thera.look));
    await painter.finished();
    times.push(performance.now() - began);
  }
  gl.deleteTexture(target);
  return times.slice(1);  // the first makes what the others share
}"""

DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
  return data;
}"""


@contextmanager
def serve() -> Iterator[str]:
    from thera.cli.app import listening, page_server
    from thera.web.app import create_app

    listener = listening(0)
    server = page_server(create_app())
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()  # before Python ends, which the server cannot take


def drop_to_sharp(page: Any, image: Path) -> tuple[float, float]:
    """Seconds from the drop to the pixels on the screen, and to the first frame of the field."""
    data = page.evaluate_handle(DROP, [image.name, base64.b64encode(image.read_bytes()).decode()])
    began = time.perf_counter()
    page.dispatch_event("body", "drop", {"dataTransfer": data})
    while not page.evaluate("() => Boolean(thera.painter.pixels)"):
        time.sleep(0.005)
    seen = time.perf_counter() - began
    page.wait_for_selector("#status[data-mode=live]", timeout=600_000)
    return seen, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = Path(__file__).parents[1]
    parser.add_argument("--image", type=Path, default=here / "docs" / "images" / "astronaut.png")
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    parser.add_argument("--gpu", action="store_true", help="use the machine's GPU")
    parser.add_argument("--frames", type=int, default=5, help="the median of so many")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with serve() as url, sync_playwright() as playwright:
        arguments = GPU if options.gpu else SOFTWARE_GL
        browser = playwright.chromium.launch(executable_path=options.chromium, args=arguments)
        page = browser.new_page(viewport={"width": SIZE[1], "height": SIZE[0]})
        page.goto(url)
        page.wait_for_selector("body[data-ready]", state="attached")
        report(page, options.image, options.frames)
        browser.close()


def report(page: Any, image: Path, frames: int) -> None:
    about = "() => { const g = thera.painter.gl, e = g.getExtension('WEBGL_debug_renderer_info');"
    print(page.evaluate(about + " return g.getParameter(e ? e.UNMASKED_RENDERER_WEBGL : g.RENDERER); }"))
    seen, sharp = drop_to_sharp(page, image)
    width, height = page.evaluate("() => thera.camera.picture.toReversed()")
    print(
        f"{image.name}, {width}×{height}: pixels {seen:.2f} s after the drop, first sharp frame {sharp:.2f} s"
    )
    print(f"\n| view at {SIZE[1]}×{SIZE[0]} | ms a frame | frames/s | processor ms a frame |")
    print("| --- | --- | --- | --- |")
    for name, (zoom, angle, tilt) in VIEWS.items():
        page.evaluate(FRAMES, [zoom, angle, tilt, 0])
        before = processor_seconds()
        spent = statistics.median(page.evaluate(FRAMES, [zoom, angle, tilt, frames]))
        own = 1000 * (processor_seconds() - before) / (frames + 1)
        print(f"| {name} | {spent:.0f} | {1000 / spent:.1f} | {own:.0f} |", flush=True)


def processor_seconds() -> float:
    """What the browser has used so far, in all its processes."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


if __name__ == "__main__":
    main()
