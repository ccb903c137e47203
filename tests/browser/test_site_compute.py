"""The site's worker in Chromium computes what the library does."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms
from site_page import computed, decoded, png, served

import thera
import thera.models
from thera.field.psf import page_filter
from thera.site.building import write_site
from thera.web.packing import pack

CLOSE = 2.0  # levels of 255
ASTRONAUT = Path(__file__).parents[2] / "docs" / "images" / "astronaut.png"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    write_site(folder)
    return folder


@pytest.fixture(scope="module")
def page(browser: Any, site: Path) -> Iterator[Any]:
    with served(site) as url:
        page = browser.new_page()
        page.goto(f"{url}site.json")
        yield page
        page.close()


@pytest.fixture(scope="module")
def photo() -> np.ndarray:
    with Image.open(ASTRONAUT) as image:
        return np.asarray(image.convert("RGB"))[10:58, 20:84]


def order(width: int, height: int, type: str = "image/png", **options: Any) -> dict[str, Any]:
    given = {"width": width, "height": height, "type": type, "filter": "gaussian", "sharpness": 1}
    return {**given, "quality": 95, **options}


def levels(values: np.ndarray) -> np.ndarray:
    return np.clip(255 * np.asarray(values, np.float64), 0, 255)


def rendered(image: np.ndarray, size: tuple[int, int], model: str = "edsr-air", **how: Any) -> np.ndarray:
    field = thera.load(model).encode(image.astype(np.float32) / 255)
    psf = page_filter(how.get("filter", "gaussian"), how.get("sharpness", 1)) or thera.Seamless()
    return levels(field.render(size=size, psf=psf))


def file_of(page: Any, image: bytes, model: str = "edsr-air", name: str = "a.png", **asked: Any) -> bytes:
    facts = asked.pop("facts", {})
    task = {"task": "file", "model": model, "facts": facts, "file": 0, "order": order(**asked)}
    (data,), _ = computed(page, [task], [(name, image)])
    return data


@pytest.mark.parametrize("size", [(192, 256), (111, 200), (480, 640), (48, 96), (30, 41), (9, 7)])
def test_a_file_equals_the_rendering(page: Any, photo: np.ndarray, size: tuple[int, int]) -> None:
    made = decoded(file_of(page, png(photo), width=size[1], height=size[0]))
    assert made.shape == (*size, 3)
    assert np.abs(made - rendered(photo, size)).max() <= CLOSE


@pytest.mark.parametrize("size", [(100, 130), (30, 41), (500, 600)])
def test_tiles_leave_no_trace(page: Any, photo: np.ndarray, size: tuple[int, int]) -> None:
    small = {"tilePixels": 0}  # tiles of 32 cells
    made = decoded(file_of(page, png(photo), width=size[1], height=size[0], facts=small))
    assert np.abs(made - rendered(photo, size)).max() <= CLOSE


@pytest.mark.parametrize("filter", ["box", "butterworth", "ideal", "none"])
@pytest.mark.parametrize("size", [(100, 130), (20, 30)])
def test_every_filter_equals_the_library(
    page: Any, photo: np.ndarray, filter: str, size: tuple[int, int]
) -> None:
    how = {"filter": filter, "sharpness": 0.8}
    made = decoded(file_of(page, png(photo), width=size[1], height=size[0], **how))
    assert np.abs(made - rendered(photo, size, **how)).max() <= CLOSE


def test_plus_equals_the_rendering(page: Any, photo: np.ndarray) -> None:
    small = photo[:24, :20]
    made = decoded(file_of(page, png(small), "edsr-plus", width=50, height=96))
    assert np.abs(made - rendered(small, (96, 50), "edsr-plus")).max() <= CLOSE


def test_the_mean_of_four_turns_is_the_programs(page: Any, photo: np.ndarray) -> None:
    small = photo[:30, :41]
    made = decoded(file_of(page, png(small), width=90, height=70, ensemble=True))
    expected = thera.load("edsr-air").upscale(small.astype(np.float32) / 255, size=(70, 90), ensemble=True)
    assert np.abs(made - levels(expected)).max() <= CLOSE


def test_the_size_of_the_picture_gives_the_picture(page: Any, photo: np.ndarray) -> None:
    made = decoded(file_of(page, png(photo), width=64, height=48))
    np.testing.assert_array_equal(made, photo)


def test_a_packed_field_is_the_programs(page: Any, photo: np.ndarray) -> None:
    task = {"task": "field", "model": "edsr-air", "file": 0, "box": [4, 8, 40, 60]}
    small = {"tilePixels": 0}
    (data,), progress = computed(page, [{**task, "facts": small}], [("a.png", png(photo))])
    assert progress == [1 / 4, 1 / 2, 3 / 4, 1]
    field = thera.load("edsr-air").encode(photo.astype(np.float32) / 255)
    facts, waves = unpacked(data)
    expected_facts, expected = unpacked(pack(field.crop(slice(4, 40), slice(8, 60))))
    assert (facts["width"], facts["height"]) == (52, 36)
    assert facts["kappa"] == pytest.approx(expected_facts["kappa"])
    np.testing.assert_allclose(facts["components"], expected_facts["components"])
    np.testing.assert_allclose(waves[0], expected[0])  # the pixels
    np.testing.assert_allclose(waves[1:, ..., :3], expected[1:, ..., :3], atol=1e-3)
    turned = (waves[1:, ..., 3] - expected[1:, ..., 3]) / (2 * np.pi)  # -π and π are the same
    assert np.abs(turned - np.round(turned)).max() < 1e-3


def unpacked(data: bytes) -> tuple[dict[str, Any], np.ndarray]:
    (length,) = struct.unpack_from("<I", data, 8)
    facts = json.loads(data[12 : 12 + length])
    shape = (len(facts["components"][0]) + 1, facts["height"], facts["width"], 4)
    return facts, np.frombuffer(data, "<f2", offset=12 + length).reshape(shape).astype(float)


def test_a_tile_of_the_view_equals_the_rendering(page: Any, photo: np.ndarray) -> None:
    task = {"task": "tile", "model": "edsr-plus", "file": 0, "region": [10.5, 8, 16, 12], "size": [64, 48]}
    (data,), _ = computed(page, [{**task, "filter": "gaussian", "sharpness": 1}], [("a.png", png(photo))])
    field = thera.load("edsr-plus").encode(photo.astype(np.float32) / 255)
    expected = levels(field.render(size=(48, 64), region=(8, 10.5, 20, 26.5), psf=thera.Seamless()))
    assert np.abs(decoded(data)[..., :3] - expected).max() <= CLOSE


def test_a_grey_picture_stays_grey(page: Any, photo: np.ndarray) -> None:
    grey = photo[:32, :32, 1]
    made = decoded(file_of(page, png(grey), width=80, height=80))
    assert made.shape == (80, 80)
    expected = rendered(np.repeat(grey[..., None], 3, axis=2), (80, 80)).mean(axis=2)
    assert np.abs(made - expected).max() <= CLOSE


@pytest.mark.parametrize("size", [(96, 128), (20, 30)])
def test_transparency_is_scaled_as_the_program_does(
    page: Any, photo: np.ndarray, size: tuple[int, int]
) -> None:
    rows, cols = np.mgrid[:32, :48]
    alpha = np.where((rows - 16) ** 2 + (cols - 20) ** 2 < 120, 255, 0).astype(np.uint8)
    image = np.dstack([photo[:32, :48] * (alpha[..., None] > 0), alpha])
    expected = thera.upscale(image, size=size, model="edsr-air").astype(float)
    made = decoded(file_of(page, png(image), width=size[1], height=size[0])).astype(float)
    assert np.abs(made[..., 3] - expected[..., 3]).max() <= CLOSE
    visible = expected[..., 3] > 0
    assert np.abs(made - expected)[visible].max() <= CLOSE
    cover = expected[..., 3:] / 255
    on_white = decoded(file_of(page, png(image), width=size[1], height=size[0], type="image/jpeg"))
    assert np.abs(on_white - (expected[..., :3] * cover + 255 * (1 - cover))).mean() < 2


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
def test_profile_and_exif_are_kept(page: Any, photo: np.ndarray, kind: str) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes() + bytes(70_000)
    exif = Image.Exif()
    exif[0x0112], exif[0x010F], exif[0x9003] = 6, "Ardent", "2020:02:02 10:00:00"
    source = io.BytesIO()
    Image.fromarray(photo).save(source, "JPEG", quality=95, exif=exif, icc_profile=profile)
    data = file_of(page, source.getvalue(), name="a.jpg", width=60, height=80, type=f"image/{kind}")
    with Image.open(io.BytesIO(data)) as made:
        assert (made.format, made.size) == (kind.upper(), (60, 80))
        assert made.info["icc_profile"] == profile
        found = made.getexif()
        assert (found[0x0112], found[0x010F], found[0x9003]) == (1, "Ardent", "2020:02:02 10:00:00")
        upright = np.rot90(decoded(source.getvalue()), -1)
        shown = np.asarray(made.convert("RGB"), float)
        assert np.abs(shown - rendered(upright, (80, 60))).mean() < 2


def test_a_file_that_is_no_picture_is_refused_with_a_sentence(page: Any) -> None:
    with pytest.raises(Exception, match=r"notes\.txt is no picture that this browser can read"):
        computed(page, [{"task": "describe", "file": 0}], [("notes.txt", b"hello")])


#: Runs a graph from an image to an image with nothing but ONNX Runtime Web.
PLAIN = """async ({ data, shape }) => {
  const ort = await import(new URL("runtime/ort.wasm.min.mjs", location.href));
  ort.env.wasm.numThreads = 1;
  const session = await ort.InferenceSession.create("upscaler.onnx");
  const image = new ort.Tensor("float32", Float32Array.from(data), shape);
  const { upscaled } = await session.run({ image });
  return { shape: upscaled.dims, data: Array.from(upscaled.data) };
}"""


def test_an_exported_upscaler_runs_in_the_browser(page: Any, site: Path, photo: np.ndarray) -> None:
    thera.models.export("edsr-plus", site / "upscaler.onnx", scale="3/2")
    image = photo[:12, :16].astype(np.float32) / 255
    given = image.transpose(2, 0, 1)[None]
    made = page.evaluate(PLAIN, {"data": given.ravel().tolist(), "shape": given.shape})
    result = np.reshape(made["data"], made["shape"])[0].transpose(1, 2, 0)
    assert np.abs(result - thera.load("edsr-plus", "onnx").upscale(image, 1.5)).max() < 1e-4
