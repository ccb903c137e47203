"""Encoding tile by tile is encoding, and stops when it is told to."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from thera.field import HeatField
from thera.imaging.picture import Picture
from thera.models import Model
from thera.web import encoding
from thera.web.encoding import encode
from thera.web.pixels import displayed


@pytest.mark.parametrize("region", [None, (8, 17, 50, 90)])
def test_tiles_make_the_field_of_the_whole(
    monkeypatch: pytest.MonkeyPatch,
    air: Model,
    astronaut: NDArray[np.float32],
    astronaut_field: HeatField,
    region: tuple[int, int, int, int] | None,
) -> None:
    monkeypatch.setattr(encoding, "TILE", 40)
    shares: list[float] = []
    field = encode(air, astronaut, region, shares.append)
    top, left, bottom, right = region or (0, 0, *astronaut.shape[:2])
    expected = astronaut_field.features[top:bottom, left:right]
    np.testing.assert_allclose(field.features, expected, atol=2e-5)  # float rounding of the same sums
    np.testing.assert_array_equal(field.pixels, astronaut[top:bottom, left:right])
    assert shares == sorted(shares) and shares[-1] == 1 and len(shares) > 2


def test_progress_may_stop_it(
    monkeypatch: pytest.MonkeyPatch, air: Model, astronaut: NDArray[np.float32]
) -> None:
    monkeypatch.setattr(encoding, "TILE", 40)
    calls = 0

    def stop(share: float) -> None:
        nonlocal calls
        calls += 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(air, astronaut, progress=stop)
    assert calls == 1


def test_transparent_pixels_are_shown_on_white() -> None:
    samples = np.array([[[10, 20, 30, 0], [10, 20, 30, 255]]], np.uint8)
    shown = displayed(Picture.of_channels(samples))
    np.testing.assert_allclose(255 * shown[0], [[255, 255, 255], [10, 20, 30]], atol=1e-3)


def test_inks_are_shown_as_light() -> None:
    samples = np.array([[[0, 0, 0, 0], [255, 0, 0, 0], [0, 0, 0, 255]]], np.uint8)
    shown = displayed(Picture(samples, "cmyk"))
    np.testing.assert_allclose(shown[0], [[1, 1, 1], [0, 1, 1], [0, 0, 0]], atol=1e-6)
