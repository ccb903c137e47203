"""A field packed for a page is the field, to the rounding of half floats."""

from __future__ import annotations

import numpy as np
import pytest
from unpacking import unpack

from thera.errors import InvalidInput
from thera.field import HeatField
from thera.web.packing import MOST_COMPONENTS, pack


def random_field(shape: tuple[int, int] = (7, 5), c: int = 32, channels: int = 3) -> HeatField:
    rng = np.random.default_rng(0)
    return HeatField.from_coefficients(
        rng.random((*shape, channels)),
        0.1 * rng.standard_normal((*shape, c, channels)),
        rng.uniform(-25, 25, (*shape, c)),
        rng.uniform(-12, 12, (2, c)),
        0.03,
    )


@pytest.mark.parametrize("scale", [0.5, 1, 3.7, 16])
def test_a_packed_field_renders_as_the_field_does(scale: float) -> None:
    field = random_field()
    difference = np.abs(unpack(pack(field)).render(scale=scale) - field.render(scale=scale)).max()
    # Waves of amplitude 0.1 whose phases are off by up to 2⁻¹⁰ rad, 32 of them at random, and pixels by 2⁻¹².
    assert difference < 1 / 255


def test_a_shipped_model_loses_a_third_of_a_level_at_most(astronaut_field: HeatField) -> None:
    seen = unpack(pack(astronaut_field))
    for scale in (1, 2.5, 8):
        difference = np.abs(seen.render(scale=scale) - astronaut_field.render(scale=scale)).max()
        assert difference < 0.3 / 255


def test_the_size_is_known_beforehand() -> None:
    field = random_field()
    assert 0 <= len(pack(field)) - 8 * 33 * field.shape[0] * field.shape[1] < 2500  # the header


def test_phases_are_reduced_before_they_are_rounded() -> None:
    field = HeatField.from_coefficients(
        np.zeros((1, 1, 3)), np.ones((1, 1, 1, 3)), np.full((1, 1, 1), 1000.0), np.ones((2, 1)), 0.0
    )
    assert np.abs(unpack(pack(field)).render(scale=1) - field.render(scale=1)).max() < 2e-3


@pytest.mark.parametrize("wrong", [{"c": MOST_COMPONENTS + 1}, {"channels": 1}])
def test_what_a_page_cannot_draw_is_refused(wrong: dict[str, int]) -> None:
    field = random_field(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="use an Air model"):
        pack(field)
