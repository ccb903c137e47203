"""The page's shader draws what the library renders, to 2/255, at any zoom, angle, tilt, filter and t."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from app_page import ASTRONAUT, camera_mapping, captured, levels, opened, program, wait_live
from PIL import Image

import thera
from thera.field import HeatField
from thera.field.psf import filter_of
from thera.web.tiles import GRADIENT_GAIN, LAPLACIAN_GAIN

pytest.importorskip("fastapi", reason="the page needs: pip install 'thera[web]'")

CLOSE = 2.0  # levels of 255; measured 0.9 at most, of which half a level is the screen's own rounding
H, W = 64, 96


@pytest.fixture(scope="module")
def field() -> HeatField:
    with Image.open(ASTRONAUT) as image:
        return thera.load("edsr-air").encode(np.asarray(image.convert("RGB"), np.float32) / 255)


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    with program([ASTRONAUT]) as url:
        page = opened(browser, url)
        wait_live(page)
        yield page
        assert page.errors == []
        page.context.close()


def regions(scale: float) -> tuple[float, float, float, float]:
    """The whole picture, or as much of it as gives 300 pixels a side."""
    return 10, 20, 10 + min(H - 10, 300 / scale), 20 + min(W - 20, 300 / scale)


def drawn_and_rendered(
    page: Any,
    field: HeatField,
    scale: float,
    shown: str = "picture",
    shape: str = "gaussian",
    sharpness: float = 1,
) -> tuple[np.ndarray, np.ndarray]:
    region = regions(scale) if scale > 3 else (0, 0, H, W)
    top, left, bottom, right = region
    size = round((bottom - top) * scale), round((right - left) * scale)
    mapping = [[(bottom - top) / size[0], 0, top], [0, (right - left) / size[1], left], [0, 0, 1]]
    psf = thera.Seamless(1 / sharpness) if shape == "gaussian" else filter_of(shape, sharpness)
    options: Any = {"size": size, "region": region, "psf": psf}
    rendered = {
        "picture": lambda: field.render(**options),
        "gradient": lambda: GRADIENT_GAIN * np.sqrt((field.gradient(**options) ** 2).sum(-1)),
        "laplacian": lambda: 0.5 + LAPLACIAN_GAIN * field.laplacian(**options),
    }[shown]()
    return captured(page, mapping, size, shown=shown, filter=shape, sharpness=sharpness), levels(rendered)


@pytest.mark.parametrize("scale", [0.1, 0.3, 0.5, 0.7, 0.95, 1, 1.5, 2, 3.7, 8, 9.3, 21, 100])
def test_the_shader_equals_the_renderer_at_any_zoom(page: Any, field: HeatField, scale: float) -> None:
    drawn, rendered = drawn_and_rendered(page, field, scale)
    assert np.abs(drawn - rendered).max() <= CLOSE


@pytest.mark.parametrize("sharpness", [0.5, 0.8, 1.3, 2])
@pytest.mark.parametrize("scale", [0.6, 1, 3, 15])
def test_the_shader_equals_the_renderer_at_any_t(
    page: Any, field: HeatField, scale: float, sharpness: float
) -> None:
    """t = 1 / (sharpness · scale)²."""
    drawn, rendered = drawn_and_rendered(page, field, scale, sharpness=sharpness)
    assert np.abs(drawn - rendered).max() <= CLOSE


@pytest.mark.parametrize("shape", ["box", "butterworth", "ideal", "none"])
@pytest.mark.parametrize("scale", [0.4, 0.8, 3])
def test_the_shader_equals_the_renderer_through_any_filter(
    page: Any, field: HeatField, scale: float, shape: str
) -> None:
    drawn, rendered = drawn_and_rendered(page, field, scale, shape=shape)
    assert np.abs(drawn - rendered).max() <= CLOSE


@pytest.mark.parametrize("shown", ["gradient", "laplacian"])
@pytest.mark.parametrize("scale", [0.3, 0.7, 1.3, 4])
def test_the_shader_equals_the_exact_derivatives(
    page: Any, field: HeatField, scale: float, shown: str
) -> None:
    drawn, rendered = drawn_and_rendered(page, field, scale, shown)
    assert np.abs(drawn - rendered).max() <= CLOSE


@pytest.mark.parametrize(
    ("zoom", "angle", "tilt"),
    [
        (3, 30, 0),
        (1.3, -70, 0),
        (0.8, 30, 0),
        (0.3, 100, 0),
        (3, 20, 50),
        (1.2, 15, 45),
        (0.8, 15, -45),
        (0.5, 200, 60),
        (14, 25, 0),
        (12, 10, 50),
    ],
)
def test_the_shader_equals_the_warp_under_rotation_and_tilt(
    page: Any, field: HeatField, zoom: float, angle: float, tilt: float
) -> None:
    size = (160, 200)
    mapping = camera_mapping(page, zoom, angle, tilt, size, (30.2, 47.7))
    warped = levels(field.warp(mapping, size, thera.Seamless(), outside=0.0))
    assert np.abs(captured(page, mapping, size) - warped).max() <= CLOSE


def test_the_curtain_shows_pixels_as_other_programs_enlarge_them(page: Any) -> None:
    with Image.open(ASTRONAUT) as image:
        pixels = np.asarray(image.convert("RGB"))
    size, mapping = (4 * H, 4 * W), [[0.25, 0, 0], [0, 0.25, 0], [0, 0, 1]]
    nearest = captured(page, mapping, size, other="nearest", curtain=4 * W)
    np.testing.assert_array_equal(nearest, pixels.repeat(4, 0).repeat(4, 1))
    bicubic = captured(page, mapping, size, other="bicubic", curtain=4 * W)
    planes = [Image.fromarray(plane.astype(np.float32)) for plane in np.moveaxis(pixels, 2, 0)]
    enlarged = [np.asarray(plane.resize((4 * W, 4 * H), Image.Resampling.BICUBIC)) for plane in planes]
    expected = np.clip(np.stack(enlarged, 2), 0, 255)
    inner = (slice(8, -8), slice(8, -8))  # Pillow cuts its kernel at the border, others repeat the edge
    assert np.abs(bicubic[inner] - expected[inner]).max() <= 0.6  # rounded to 8 bits
    half = captured(page, mapping, size, other="nearest", curtain=2 * W)
    np.testing.assert_array_equal(half[:, : 2 * W], nearest[:, : 2 * W])
    assert np.abs(half[:, 2 * W :] - nearest[:, 2 * W :]).max() > 20
