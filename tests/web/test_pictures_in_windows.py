"""What is drawn and encoded of a picture's windows is what the whole picture gives."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms
from unpacking import unpack

from thera.field import Box, Gaussian, HeatField
from thera.imaging.metadata import Metadata
from thera.imaging.picture import Picture
from thera.tiled import TiledField
from thera.web import gallery, pixels, tiles
from thera.web.gallery import Entry, Gallery
from thera.web.pixels import DisplayedPicture
from thera.web.tiles import TileRequest

ASTRONAUT = Path(__file__).parents[1] / "data" / "astronaut.png"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> tuple[Gallery, Entry]:
    """A picture that is encoded in tiles of 24 cells."""
    for name in ("SMALLEST_TILE", "SOON_TILE", "LIVE_TILE", "LARGEST_TILE"):
        monkeypatch.setattr(gallery, name, 24)
    pictures = Gallery()
    return pictures, pictures.add(ASTRONAUT)


@pytest.mark.parametrize("region", [None, (8, 17, 50, 90)])
def test_tiles_make_the_packed_field_of_the_whole(
    opened: tuple[Gallery, Entry], astronaut_field: HeatField, region: tuple[int, int, int, int] | None
) -> None:
    shares: list[float] = []
    data = opened[0].pack(opened[1], "edsr-air", region, shares.append)
    assert data is not None
    top, left, bottom, right = region or (0, 0, *astronaut_field.shape)
    part = astronaut_field.crop(slice(top, bottom), slice(left, right))
    found = unpack(bytes(data))
    np.testing.assert_array_equal(found.pixels, part.pixels.astype(np.float16))
    assert np.abs(found.render(scale=2) - part.render(scale=2)).max() < 0.3 / 255
    assert shares == sorted(shares) and shares[-1] == 1 and len(shares) > 2


def test_tiles_are_encoded_once_and_kept_without_their_halo(
    opened: tuple[Gallery, Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded, encode = [], TiledField.encode
    monkeypatch.setattr(
        TiledField, "encode", lambda field, tile: (encoded.append(tile), encode(field, tile))[1]
    )
    pictures, entry = opened
    first = pictures.pack(entry, "edsr-air", (0, 0, 40, 60), lambda share: None)
    assert len(encoded) == 6
    second = pictures.pack(entry, "edsr-air", (10, 10, 48, 72), lambda share: None)
    assert first is not None and second is not None and len(encoded) == 6
    assert pictures._kept.nbytes == 48 * 72 * 4 * (64 + 3)


def test_progress_may_stop_it(opened: tuple[Gallery, Entry]) -> None:
    calls = 0

    def stop(share: float) -> None:
        nonlocal calls
        calls += 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened[0].pack(opened[1], "edsr-air", None, stop)
    assert calls == 1


@pytest.mark.parametrize("psf", [Box(6.0), Gaussian(4.0), None], ids=str)
@pytest.mark.parametrize("shown", ["picture", "gradient"])
@pytest.mark.parametrize("step", [1.0, 0.5])
def test_a_wide_filter_near_the_edge_of_a_tile_is_that_part_of_the_whole_rendering(
    opened: tuple[Gallery, Entry], astronaut_field: HeatField, psf: Any, shown: Any, step: float
) -> None:
    region, size = (24, 48, 40, 64), (round(16 / step), round(16 / step))
    with Image.open(io.BytesIO(TileRequest(region, size, psf, shown).png(*opened, "edsr-air"))) as image:
        tile = np.asarray(image, np.float64)
    whole: dict[str, Any] = {"size": [round(n / step) for n in astronaut_field.shape], "psf": psf}
    if shown == "picture" and step == 1 and psf is None:
        expected = np.asarray(astronaut_field.pixels)  # at its own size a picture is shown as it is
    elif shown == "picture":
        expected = astronaut_field.render(**whole)
    else:
        expected = np.sqrt(np.square(astronaut_field.gradient(**whole)).sum(-1))
    rows, cols = (slice(round(low / step), round(high / step)) for low, high in ((24, 40), (48, 64)))
    assert np.abs(tile - 255 * np.clip(expected[rows, cols], 0, 1)).max() <= 0.51  # rounded to 8 bits


def test_tiles_in_bands_are_tiles(opened: tuple[Gallery, Entry], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = TileRequest((3.0, 5.0, 60.0, 90.0), (57, 85), Gaussian(2.0))
    whole = wanted.png(*opened, "edsr-air")
    monkeypatch.setattr(tiles, "BAND_CELLS", 500)
    assert wanted.png(*opened, "edsr-air") == whole


def test_transparent_pixels_are_shown_on_white() -> None:
    samples = np.array([[[10, 20, 30, 0], [10, 20, 30, 255]]], np.uint8)
    shown = DisplayedPicture(Picture.of_channels(samples)).cells((0, 0, 1, 2))
    np.testing.assert_allclose(255 * shown[0], [[255, 255, 255], [10, 20, 30]], atol=1e-3)


def test_inks_are_shown_as_light() -> None:
    samples = np.array([[[0, 0, 0, 0], [255, 0, 0, 0], [0, 0, 0, 255]]], np.uint8)
    shown = DisplayedPicture(Picture(samples, "cmyk")).cells((0, 0, 1, 3))
    np.testing.assert_allclose(shown[0], [[1, 1, 1], [0, 1, 1], [0, 0, 0]], atol=1e-6)


def exchanged_profile() -> bytes:
    """A profile whose red is sRGB's blue."""
    own = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return own.replace(b"rXYZ", b"????").replace(b"bXYZ", b"rXYZ").replace(b"????", b"bXYZ")


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("icc", [None, exchanged_profile()], ids=["sRGB", "profile"])
def test_a_window_shows_what_the_whole_does(channels: int, dtype: type, icc: bytes | None) -> None:
    rng = np.random.default_rng(0)
    samples = rng.uniform(0, 200, (20, 30, channels)).astype(dtype)
    if channels in (2, 4):
        samples[:5, :5, -1] = 0
    shown = DisplayedPicture(Picture.of_channels(samples, Metadata(icc=icc)))
    box = (3, 4, 12, 19)
    np.testing.assert_array_equal(shown.cells(box), shown.cells((0, 0, 20, 30))[3:12, 4:19])
    np.testing.assert_array_equal(shown.bytes(box), pixels.eight_bits(shown.cells(box)))


@pytest.mark.parametrize("region", [(0, 0, 40, 30), (3.4, 2.2, 37.1, 29.0)])
def test_means_in_bands_are_means(monkeypatch: pytest.MonkeyPatch, region: Any) -> None:
    samples: NDArray[np.uint8] = np.random.default_rng(0).integers(0, 255, (40, 30, 3), np.uint8)
    shown = DisplayedPicture(Picture.of_channels(samples))
    top, left, bottom, right = region
    image = Image.fromarray(samples).resize((9, 11), Image.Resampling.BOX, box=(left, top, right, bottom))
    monkeypatch.setattr(pixels, "BAND_PIXELS", 200)
    assert np.abs(shown.means(region, (11, 9)).astype(int) - np.asarray(image)).max() <= 1
