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
