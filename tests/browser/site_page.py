"""A site on a local web server, and its worker driven from an empty page."""

from __future__ import annotations

import base64
import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

#: Runs tasks of the worker one after the other; gives their results, Blobs and bytes in base64.
DRIVER = """async ({ tasks, files, threads, webgpu }) => {
  const site = await (await fetch("site.json")).json();
  const worker = (globalThis.worker ??= new Worker("compute/worker.js", { type: "module" }));
  globalThis.round = (globalThis.round ?? 0) + 1;
  const blobs = files.map(({ name, data }) =>
    new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name));
  const progress = [];
  const ask = (task) => new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if ("progress" in data) return progress.push(data.progress);
      "error" in data ? reject(new Error(data.error)) : resolve(data.result);
    };
    worker.onerror = (event) => reject(new Error(event.message));
    worker.postMessage(task);
  });
  const coded = (value) => new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.split(",")[1]);
    reader.readAsDataURL(value instanceof Blob ? value : new Blob([value]));
  });
  const results = [];
  for (const task of tasks) {
    const model = site.models.find(({ name }) => name === task.model);
    const load = { id: 0, task: "load", model: { ...model, ...task.facts }, threads, webgpu };
    if (task.model) await ask(load);
    const file = { key: `${globalThis.round} ${task.file}`, blob: blobs[task.file] };
    const result = await ask({ id: 1, ...task, file });
    await ask({ id: 2, task: "forget", file });
    const binary = result instanceof Blob || result instanceof Uint8Array;
    results.push(binary ? { type: result.type, data: await coded(result) } : result);
  }
  return { results, progress };
}"""


class Isolated(SimpleHTTPRequestHandler):
    """Serves files with the headers that let a page use threads."""

    isolated = True

    def end_headers(self) -> None:
        if self.isolated:
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *given: object) -> None:
        pass


class Plain(Isolated):
    isolated = False


@contextmanager
def served(folder: Path, handler: type[SimpleHTTPRequestHandler] = Isolated) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def png(array: NDArray[np.uint8], **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG", **options)
    return buffer.getvalue()


def computed(
    page: Any,
    tasks: list[dict[str, Any]],
    files: list[tuple[str, bytes]],
    threads: int = 1,
    webgpu: bool = False,
) -> Any:
    """The results of tasks, each of which names its file by number, and the progress that was reported."""
    coded = [{"name": name, "data": base64.b64encode(data).decode()} for name, data in files]
    answer = page.evaluate(DRIVER, {"tasks": tasks, "files": coded, "threads": threads, "webgpu": webgpu})
    results = [
        base64.b64decode(each["data"]) if isinstance(each, dict) and "data" in each else each
        for each in answer["results"]
    ]
    return results, answer["progress"]


def decoded(data: bytes) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image)


class Visit:
    """A page of the site in a browser of its own, and all that went wrong on it."""

    def __init__(self, browser: Any, url: str, script: str = "", **options: Any) -> None:
        """`script` runs before those of the page; `options` are those of Playwright's contexts."""
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
        self.page = self.context.new_page()
        if script:
            self.page.add_init_script(script)
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console", lambda line: line.type in ("error", "warning") and self.errors.append(line.text)
        )
        self.context.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(url)

    def until(self, expression: str, seconds: float = 90) -> Any:
        """Waits for something to be true; the page's policy forbids Playwright's own way to do so."""
        end = time.monotonic() + seconds
        while not (found := self._now(expression)):
            assert time.monotonic() < end, f"never: {expression}; {self.errors}"
            self.page.wait_for_timeout(50)
        return found

    def _now(self, expression: str) -> Any:
        try:
            return self.page.evaluate(expression)
        except Exception as error:
            if "context was destroyed" in str(error):  # it is loaded again to use threads
                return None
            raise

    def live(self) -> None:
        self.until("globalThis.thera?.status.mode === 'live' && !globalThis.thera.status.busy")

    def give(self, name: str, data: bytes) -> None:
        self.page.set_input_files("#files", {"name": name, "mimeType": "image/png", "buffer": data})

    def download(self) -> tuple[str, bytes]:
        with self.page.expect_download(timeout=120_000) as event:
            self.page.click("#download")
        return event.value.suggested_filename, Path(event.value.path()).read_bytes()

    def close(self) -> None:
        self.context.close()
        assert self.errors == []
