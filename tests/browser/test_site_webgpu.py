"""`thera site` on a GPU: the same result, and the processor where a GPU fails.

The GPU is SwiftShader, which is slow, so the pictures are small. Failures are played by a runtime that
computes on the processor.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import missing, module
from PIL import Image
from site_page import Visit, computed, decoded, png, served

import thera
from thera.site.building import RUNTIME, WEBGPU, write_site

ASTRONAUT = Path(__file__).parents[1] / "data" / "astronaut.png"
CLOSE = 2.0  # levels of 255
SOFTWARE_GPU = ("--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")


def photo() -> np.ndarray:
    with Image.open(ASTRONAUT) as image:
        return np.asarray(image.convert("RGB"))[24:32, 30:40]


def rendered(size: tuple[int, int]) -> np.ndarray:
    values = (
        thera.load("edsr-air")
        .encode(photo().astype(np.float32) / 255)
        .render(size=size, psf=thera.Seamless())
    )
    return np.clip(255 * values.astype(np.float64), 0, 255)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a site needs of the npm package onnxruntime-web."""
    folder = tmp_path_factory.mktemp("onnxruntime-web")
    with tarfile.open(module("onnxruntime-web-1.30.0.tgz")) as package:
        for name in (*RUNTIME, *WEBGPU):
            (folder / name).write_bytes(package.extractfile(f"package/dist/{name}").read())
    return folder


@pytest.fixture
def gpu_browser(playwright: Any, chromium_path: str) -> Iterator[Any]:
    browser = playwright.chromium.launch(executable_path=chromium_path, args=SOFTWARE_GPU)
    yield browser
    browser.close()


def test_on_a_gpu_a_file_equals_the_rendering(gpu_browser: Any, runtime: Path, tmp_path: Path) -> None:
    write_site(tmp_path / "site", models=["edsr-air"], runtime=runtime)
    task = {
        "width": 40,
        "height": 33,
        "type": "image/png",
        "filter": "gaussian",
        "sharpness": 1,
        "quality": 95,
    }
    with served(tmp_path / "site") as url:
        page = gpu_browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url.removeprefix(url)))
        page.goto(f"{url}site.json")
        if not page.evaluate("async () => Boolean(await navigator.gpu?.requestAdapter())"):
            missing("this Chromium has no WebGPU adapter, not even SwiftShader")
        order = {"task": "file", "model": "edsr-air", "file": 0, "order": task}
        (data,), _ = computed(page, [order], [("a.png", png(photo()))], webgpu=True)
        page.close()
    assert "runtime/ort.webgpu.min.mjs" in asked and "runtime/ort.wasm.min.mjs" not in asked
    assert np.abs(decoded(data) - rendered((33, 40))).max() <= CLOSE


#: What a GPU does to its results.
FAILURES = {
    "is not there": "throw new Error('no available backend found');",
    "computes something else": "values.forEach((_, i) => (values[i] += 0.1));",
    "is lost later": "if (inputs.image.dims[2] > 7) throw new Error('The device was lost');",
}
FAILING = """
import * as ort from "./ort.wasm.min.mjs";
export * from "./ort.wasm.min.mjs";
export const InferenceSession = {
  async create(model, options) {
    const gpu = options.executionProviders.includes("webgpu");
    const session = await ort.InferenceSession.create(model, { ...options, executionProviders: ["wasm"] });
    if (!gpu) return session;
    return {
      async run(inputs, names) {
        const found = await session.run(inputs, names);
        const values = found.features?.data ?? [];
        FAILURE
        return found;
      },
      release: () => session.release(),
    };
  },
};
"""
#: A browser that says it has a GPU.
ADAPTER = (
    """Object.defineProperty(navigator, "gpu", { value: { requestAdapter: async () => ({ info: {} }) } });"""
)


@pytest.fixture(scope="module")
def failing_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("failing")
    write_site(folder / "plain", models=["edsr-air"])
    for name in WEBGPU:
        (folder / "plain" / "runtime" / name).touch()
    (folder / "photo.png").write_bytes(png(photo()))
    write_site(folder / "site", [folder / "photo.png"], ["edsr-air"], folder / "plain" / "runtime")
    return folder / "site"


@pytest.mark.parametrize("failure", FAILURES)
def test_where_a_gpu_fails_the_processor_does_the_work(
    browser: Any, failing_site: Path, failure: str
) -> None:
    script = FAILING.replace("FAILURE", FAILURES[failure])
    (failing_site / "runtime" / WEBGPU[0]).write_text(script, encoding="utf-8")
    with served(failing_site) as url:
        visit = Visit(browser, url, script=ADAPTER)
        visit.live()
        assert visit.page.inner_text("#status") == "Air, drawn live"
        _, data = visit.download()
        assert np.abs(decoded(data) - rendered((32, 40))).max() <= CLOSE
        assert visit.page.locator("#notices li").count() == 0
        assert [each for each in visit.asked if each.endswith("ort.webgpu.min.mjs")]
        assert visit.page.evaluate("localStorage.getItem('thera-speed') > 0")
        visit.close()


#: Starts an engine on an empty page of the site, and does WORK with a photo and a file that is no picture.
ENGINE = """async () => {
  const { Engine } = await import(new URL("compute/engine.js", location.href).href);
  const site = await (await fetch("site.json")).json();
  const engine = await Engine.start(site);
  const photo = { key: "photo", blob: await (await fetch("pictures/1.png")).blob() };
  const broken = { key: "broken", blob: new File(["none"], "broken.png") };
  const field = (source) => engine.field(source, "edsr-air", null, [16, 20]);
  const failed = (work) => work.then(() => null, (error) => error.message);
  WORK
}"""


def on_gpu(browser: Any, site: Path, failure: str, work: str) -> Any:
    """What `work` returns on a site whose GPU does this to its results."""
    (site / "runtime" / WEBGPU[0]).write_text(FAILING.replace("FAILURE", failure), encoding="utf-8")
    with served(site) as url:
        page = browser.new_page()
        page.add_init_script(ADAPTER)
        page.goto(f"{url}site.json")
        found = page.evaluate(ENGINE.replace("WORK", work))
        page.close()
    return found


def test_files_that_cannot_be_read_are_no_failure_of_the_gpu(browser: Any, failing_site: Path) -> None:
    work = """
      const { file } = engine.model("edsr-air");
      engine.model("edsr-air").file = "models/none.onnx";
      const offline = await failed(field(photo));
      engine.model("edsr-air").file = file;
      const unreadable = await failed(field(broken));
      await field(photo);
      return [offline, Boolean(unreadable), engine.how.webgpu, Object.keys(localStorage)];
    """
    offline, unreadable, webgpu, speeds = on_gpu(browser, failing_site, "", work)
    assert "none.onnx is missing" in offline and unreadable
    assert webgpu and speeds == ["thera-speed-gpu"]


def test_all_work_leaves_the_gpu_together(browser: Any, failing_site: Path) -> None:
    """One worker is computing and never ends, the other has nothing to do."""
    work = """
      localStorage.setItem("thera-speed-gpu", "1000");
      engine.measured = 1000;
      await engine.describe(photo);
      const size = { width: 40, height: 32, type: "image/png" };
      const order = { ...size, filter: "gaussian", sharpness: 1, quality: 95 };
      const file = engine.file(photo, "edsr-air", order, [16, 20]);
      while (!engine.files.models.size) await new Promise((resolve) => setTimeout(resolve, 20));
      engine.leaveGPU();
      if (engine.view.worker || engine.files.worker) return "a worker was not ended";
      engine.learn("edsr-air", 5000, true); // what the old worker had said just before
      const speed = localStorage.getItem("thera-speed");
      return [speed, (await file).size > 0, localStorage.getItem("thera-speed-gpu")];
    """
    hanging = "if (inputs.image?.dims[2] > 7) await new Promise(() => {});"
    assert on_gpu(browser, failing_site, hanging, work) == [None, True, "1000"]
