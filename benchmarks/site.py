"""What `thera site` costs in a headless Chromium, beside the program.

    python benchmarks/site.py [--chromium /usr/bin/chromium] [--quick] [--large]

- seconds for a million pixels of the input, enlarged ×4 to a PNG: the site's WASM with 1 and 2 threads,
  and the program with as many, with the engine that it takes by itself;
- seconds for a picture of 512×512, enlarged ×4;
- with --large, instead: the most memory that the page takes for 12 megapixels, in the first minutes of a
  download.

Beside the time that passed, the processor's own time is printed: on a busy machine, that divided by the
threads is what an idle one takes. --quick takes smaller pictures.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image

import thera
from thera.site.building import write_site

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))
from site_page import computed, served  # noqa: E402

SOFTWARE_GL = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


def photograph(width: int, height: int) -> bytes:
    with Image.open(ROOT / "docs" / "images" / "astronaut.png") as image:
        made = image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    made.save(buffer, "PNG")
    return buffer.getvalue()


def renderers() -> list[psutil.Process]:
    """The processes of pages, of all browsers that this program has started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "--type=renderer" in process.cmdline():
                found.append(process)
    return found


def processor_seconds(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a page that was closed
            total += sum(process.cpu_times()[:2])
    return total


def timed(work: Callable[[], object], cpu: Callable[[], float]) -> tuple[float, float]:
    began, before = time.perf_counter(), cpu()
    work()
    return time.perf_counter() - began, cpu() - before


def order(width: int, height: int) -> dict[str, Any]:
    how = {"filter": "gaussian", "sharpness": 1, "quality": 95, "type": "image/png"}
    return {"width": width, "height": height, **how}


def in_browser(browser: Any, url: str, model: str, picture: bytes, side: int, threads: int) -> Any:
    page = browser.new_page()
    page.goto(f"{url}site.json")
    task = {"task": "file", "model": model, "file": 0, "order": order(4 * side, 4 * side)}
    warm = {"task": "file", "model": model, "file": 1, "order": order(64, 64)}
    computed(page, [warm], [("a.png", picture), ("b.png", photograph(32, 32))], threads)
    processes = renderers()
    work = partial(computed, page, [task], [("a.png", picture)], threads)
    result = min(timed(work, lambda: processor_seconds(processes)) for _ in range(2))
    page.close()
    return result


def in_python(model: str, picture: bytes, threads: int) -> tuple[float, float]:
    loaded = thera.load(model, threads=threads)
    with Image.open(io.BytesIO(picture)) as image:
        pixels = np.asarray(image, np.float32) / 255
    loaded.upscale(pixels[:32, :32], scale=4)
    return min(timed(lambda: loaded.upscale(pixels, scale=4), time.process_time) for _ in range(2))


class PeakMemory:
    """The most bytes of their own that the page's processes have held together."""

    def __enter__(self) -> PeakMemory:
        self.bytes, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            with suppress(psutil.Error):
                self.bytes = max(self.bytes, sum(each.memory_full_info().uss for each in renderers()))

    def __exit__(self, *given: object) -> None:
        self._stop.set()
        self._thread.join()


def large(browser: Any, url: str, seconds: float) -> None:
    """A page with a picture of 4,000×3,000: its view, and a download that is stopped after some time."""
    page = browser.new_page()
    page.goto(url)
    page.wait_for_timeout(4000)
    with PeakMemory() as memory:
        picture = {"name": "large.png", "mimeType": "image/png", "buffer": photograph(4000, 3000)}
        page.set_input_files("#files", picture)
        page.wait_for_timeout(5000)
        page.click("#download")
        page.wait_for_timeout(1000 * seconds)
        shown = page.locator("#jobs li").inner_text().replace("\n", " ")
    print(f"4,000×3,000 ×4, {seconds:.0f} s of it ({shown}): {memory.bytes / 2**20:.0f} MiB at most")


def speeds(browser: Any, url: str, sides: dict[str, int]) -> None:
    print(f"{os.cpu_count()} cores; load {os.getloadavg()[0]:.1f} before; the fewest seconds of two\n")
    print("| ×4 to a PNG | threads | s/Mpx | processor s/Mpx |\n| --- | ---: | ---: | ---: |")
    for model, side in sides.items():
        picture, per = photograph(side, side), 1e6 / side**2
        for threads in (1, 2):
            passed, cpu = in_browser(browser, url, model, picture, side, threads)
            print(f"| {model}, site | {threads} | {per * passed:.1f} | {per * cpu:.1f} |", flush=True)
            passed, cpu = in_python(model, picture, threads)
            print(f"| {model}, program | {threads} | {per * passed:.1f} | {per * cpu:.1f} |", flush=True)
    passed, cpu = in_browser(browser, url, "edsr-air", photograph(512, 512), 512, 2)
    print(f"\n512×512 ×4, edsr-air, 2 threads: {passed:.1f} s ({cpu:.1f} s of processor)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chromium", default=shutil.which("chromium"), help="path of the browser")
    parser.add_argument("--quick", action="store_true", help="smaller pictures")
    parser.add_argument("--large", action="store_true", help="the memory for 12 megapixels")
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    sides = {"edsr-air": 192 if given.quick else 256, "edsr-plus": 96 if given.quick else 160}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        write_site(Path(folder) / "site")
        browser = playwright.chromium.launch(executable_path=given.chromium, args=SOFTWARE_GL)
        with served(Path(folder) / "site") as url:
            if given.large:
                large(browser, url, 100 if given.quick else 400)
            else:
                speeds(browser, url, sides)
        browser.close()


if __name__ == "__main__":
    main()
