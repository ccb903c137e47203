"""Figures: what they show, not how they look."""

from itertools import combinations

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")

from thera.errors import ImageFileError, InvalidInput  # noqa: E402
from thera.evaluation.aliasing import (  # noqa: E402
    aliasing_markdown,
    folded_contrast,
    measure,
    shifted,
    turned,
)
from thera.evaluation.charts import (  # noqa: E402
    LEAST_ALIASING,
    alias_scale_figure,
    bank_figure,
    pareto_figure,
    psf_figure,
    psnr_scale_figure,
)
from thera.evaluation.figures import (  # noqa: E402
    aliasing_figure,
    busiest,
    crop,
    crops_figure,
    derivatives_figure,
    local_fields_figure,
    low_pass_figure,
    save,
    zone_plate,
    zoom_figure,
)
from thera.evaluation.fit import fit_grid, random_bank  # noqa: E402
from thera.evaluation.methods import Method, load_methods  # noqa: E402
from thera.evaluation.resize import resize  # noqa: E402


class FittedModel:
    """Cells of one pixel around which a random bank oscillates: every field a smooth one, no network."""

    name = "fitted"

    def encode(self, image):
        field = fit_grid(np.repeat(np.repeat(image, 2, 0), 2, 1), 2, random_bank(16), 0.03)
        return field

    def upscale(self, image, size, ensemble):
        return self.encode(image).render(size=size)


def panels(figure):
    return [axes.images[0].get_array() for axes in figure.axes]


def test_crops_show_input_bicubic_model_and_target(photograph):
    drawn = crops_figure([FittedModel()], photograph(120, 132), (0.5, 0.5), scale=6, side=96)
    assert [axes.get_title() for axes in drawn.axes] == ["input ×6", "bicubic", "fitted", "target"]
    assert all(panel.shape == (96, 96, 3) for panel in panels(drawn))
    np.testing.assert_allclose(panels(drawn)[-1], crop(photograph(120, 132), (0.5, 0.5), 96) / 255, atol=1e-6)


def test_local_fields_are_sharper_at_t_0_than_at_t_1(photograph):
    class Detailed(FittedModel):  # two by two values in every cell
        def encode(self, image):
            return fit_grid(photograph(80, 80) / 255, 2, random_bank(16), 0.03)

    drawn = local_fields_figure(Detailed(), photograph(40, 40), (0.5, 0.5), cells=4, zoom=10)
    titles = [axes.get_title() for axes in drawn.axes]
    assert titles == ["input pixels", "local fields, t = 0", "local fields, t = 1"]
    pixels, sharp, soft = panels(drawn)
    assert pixels.shape == sharp.shape == soft.shape == (40, 40, 3)
    cell = np.s_[:10, :10]
    assert pixels[cell].std(axis=(0, 1)).max() == 0
    assert soft[cell].std(axis=(0, 1)).max() < 0.9 * sharp[cell].std(axis=(0, 1)).max()


def test_the_heat_kernel_has_unit_weight_and_narrows_with_the_scale():
    drawn = psf_figure(0.03, "mine")
    lines = {line.get_label(): line.get_data() for line in drawn.axes[0].lines}
    for x, y in lines.values():
        assert np.trapezoid(y, x) == pytest.approx(1, abs=0.01)
    assert lines["×4: t = 0.0625"][1].max() == pytest.approx(4 * lines["×1: t = 1"][1].max())


def test_a_zoom_shows_the_same_point_ever_larger(photograph):
    drawn = zoom_figure(FittedModel(), photograph(60, 60), (0.5, 0.5), scales=(2.5, 7.3), side=50)
    assert [axes.get_title() for axes in drawn.axes] == ["×2.5", "×7.3"]
    first, second = panels(drawn)
    # The middle 50·2.5/7.3 ≈ 17 pixels of the first panel are the whole second one.
    middle = first[17:33, 17:33].mean((0, 1))
    np.testing.assert_allclose(second.mean((0, 1)), middle, atol=0.05)


def test_derivatives_of_a_field_are_those_of_its_rendering(photograph):
    drawn = derivatives_figure([FittedModel()], photograph(96, 96), scale=4, side=96)
    grid = np.array(drawn.axes).reshape(3, 3)
    assert grid[1, 1].images[0].get_array().shape == (96, 96)
    assert [grid[i, 0].get_ylabel() for i in range(3)] == ["signal Φ", "gradient |∇Φ|", "Laplacian ΔΦ"]


def test_point_samples_of_a_zone_plate_alias_and_the_field_at_the_right_t_does_not():
    drawn = aliasing_figure(FittedModel(), scale=0.4, side=80)
    nearest, points, field, bicubic = (panel[..., 0] for panel in panels(drawn))
    corner = np.s_[:6, :6]  # frequencies there are beyond what the small image can hold
    assert points[corner].std() > 0.2
    assert nearest[corner].std() > 0.2
    assert field[corner].std() < 0.1
    assert bicubic[corner].std() < 0.1


def test_what_is_left_beyond_the_outputs_nyquist_frequency_is_aliasing():
    def nearest(image, size):
        return resize(image, size, "nearest")

    for scale in (0.3, 0.6):
        assert folded_contrast(nearest, scale, 128) > 0.9
        assert folded_contrast(resize, scale, 128) < 0.2
        assert folded_contrast(lambda image, size: np.full((*size, 3), 0.5), scale, 128) == 0


def test_what_an_enlargement_has_beyond_the_inputs_nyquist_frequency_is_not_in_the_picture():
    def nearest(image, size):
        return resize(image, size, "nearest")

    def smooth(image, size):  # a filter that leaves nothing so fine
        return resize(resize(image, (16, 16)), size, "lanczos")

    assert folded_contrast(nearest, 4) > 0.2
    assert folded_contrast(lambda image, size: resize(image, size, "lanczos"), 4) < 0.1
    assert folded_contrast(smooth, 4) < 0.01


def test_equivariance_is_found_and_its_lack_too(photograph):
    picture = photograph(80, 96)

    def one_sided(image, size):  # looks along rows only
        output = resize(image, size)
        return (output + np.roll(output, 1, axis=1)) / 2

    assert turned(resize, picture[::2, ::2]) > 100
    assert turned(one_sided, picture[::2, ::2]) < 60
    assert shifted(resize, picture) > shifted(lambda i, s: resize(i, s, "nearest"), picture) + 3


def test_aliasing_has_a_table_and_a_figure(photograph):
    methods = [*load_methods([], ["nearest", "bicubic"]), Method("mine", resize)]
    records = measure(methods, photograph(64, 64), scales=(0.5, 2.0))
    assert [record["method"] for record in records] == ["nearest", "bicubic", "mine"]
    assert records[0]["aliasing"]["0.5"] > 0.9
    drawn = alias_scale_figure(records)
    for panel in drawn.axes:  # below ×1, and above
        heights = {text.get_text(): text.xyann[1] for text in panel.texts}
        ends = {line.get_label(): line.get_ydata()[-1] for line in panel.lines}
        assert list(heights) == sorted(
            ends, key=lambda name: ends[name]
        )  # names are in the order of the ends
        assert np.diff(list(heights.values())).min() > 0.039  # and none hides another
    assert "| mine | " in aliasing_markdown(records)
    without_any = [{**record, "aliasing": dict.fromkeys(record["aliasing"], 0.0)} for record in records]
    low, high = alias_scale_figure(without_any).axes[0].get_ylim()
    assert 0 < low < LEAST_ALIASING < high  # what does not alias is drawn, too, though its logarithm is none
    with pytest.raises(InvalidInput, match="too small"):
        measure(methods, photograph(30, 64))


def test_stored_results_of_aliasing_are_kept_and_others_added(photograph):
    def measured(*methods, stored=()):
        return measure([Method(*method) for method in methods], photograph(64, 64), stored, scales=(0.5,))

    def nearest(image, size):
        return resize(image, size, "nearest")

    def never(image, size):
        raise AssertionError("It is stored.")

    first = measured(("mine", resize, "a"))
    both = measured(("mine", never, "a"), ("theirs", nearest), stored=first)
    assert both[:1] == first
    assert [record["method"] for record in both] == ["mine", "theirs"]
    anew = measured(("mine", nearest, "b"), stored=both)  # other weights of the same name
    assert [record["identity"] for record in anew] == ["b", ""]
    assert anew[0]["aliasing"] == both[1]["aliasing"]
    other = [*both, both[0] | {"pixels": "of another picture"}]
    for stored, scales in ((other, (0.6,)), ([other[-1]], (0.5,))):  # neither is compared with what is new
        (only,) = measure([Method("theirs", nearest)], photograph(64, 64), stored, scales)
        assert only["method"] == "theirs"


def test_a_zone_plate_reaches_the_nyquist_frequency_at_its_edges():
    row = zone_plate(64)[32, :, 0]
    assert (np.diff(np.sign(row[:6] - 0.5)) != 0).all()  # every pixel on the other side of grey
    assert np.abs(np.diff(row[30:34])).max() < 0.1


def test_the_low_pass_figure_states_how_close_field_and_filter_are(tmp_path, photograph):
    from PIL import Image

    Image.fromarray(photograph(40, 48)).save(tmp_path / "a.png")
    drawn = low_pass_figure(tmp_path / "a.png", side=32)
    gaussian, heat = panels(drawn)[:4], panels(drawn)[4:]
    for a, b in zip(gaussian, heat, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert "largest difference" in drawn.get_supxlabel()


def test_the_bank_is_drawn_in_polar_coordinates():
    bank = random_bank(40)
    drawn = bank_figure(bank, 0.03, "edsr-air")
    polar, radial, directional = drawn.axes
    angle, length = np.array(polar.collections[0].get_offsets()).T
    np.testing.assert_allclose(length * np.pi * np.sin(angle), bank[0], atol=1e-9)
    assert sum(patch.get_height() for patch in radial.patches) == 40
    assert sum(patch.get_height() for patch in directional.patches) == 40


def records():
    return [
        {"method": m, "identity": "", "data": "Set5", "image": "a", "scale": s, "psnr_y": v + 1 / s}
        for m, v in [("bicubic", 30.0), ("edsr-air+", 33.0)]
        for s in (2, 3, 4)
    ]


def test_quality_against_scale_is_drawn_above_bicubic():
    (axes,) = psnr_scale_figure(records(), "Set5").axes
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    np.testing.assert_allclose(lines["edsr-air+"], [3, 3, 3])
    np.testing.assert_allclose(lines["bicubic"], 0)


def test_one_pass_and_the_ensemble_of_a_method_have_one_colour():
    both = [*records(), *(r | {"method": "edsr-air"} for r in records() if r["method"] == "edsr-air+")]
    (axes,) = psnr_scale_figure(both, "Set5").axes
    lines = {line.get_label(): (line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert lines["edsr-air"][0] == lines["edsr-air+"][0]
    assert (lines["edsr-air"][1], lines["edsr-air+"][1]) == ("-", "--")


def test_quality_against_parameters_tells_measured_from_quoted():
    (axes,) = pareto_figure(records(), {"edsr-air": 8385}, "Set5").axes
    texts = [text.get_text() for text in axes.texts]
    assert "edsr-air+" in texts
    assert "LIIF" in texts
    assert "hollow quoted (RDN, trained on DIV2K)" in axes.get_title()
    points = {(line.get_xdata()[0], line.get_markerfacecolor()) for line in axes.lines}
    assert (8385, "#cf3866") in points
    assert (350000, "none") in points
    with pytest.raises(InvalidInput, match="No model with known parameters"):
        pareto_figure(records(), {}, "Set5")


def test_labels_of_measured_and_quoted_points_do_not_hide_each_other():
    like_msit = [
        {"method": "edsr-pro", "identity": "", "data": "Set14", "image": "a", "scale": s, "psnr_y": 31.34}
        for s in (2, 3, 4)
    ]
    (axes,) = pareto_figure(like_msit, {"edsr-pro": 4_630_699}, "Set14").axes
    axes.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


def test_where_the_paper_has_no_numbers_gains_over_bicubic_are_compared():
    other = [record | {"data": "photo20", "psnr_rgb": record["psnr_y"]} for record in records()]
    (axes,) = pareto_figure(other, {"edsr-air": 8385}, "photo20").axes
    heights = {line.get_xdata()[0]: line.get_ydata()[0] for line in axes.lines}
    assert heights[8385] == pytest.approx(3)
    # LIIF with EDSR-baseline: 34.67, 30.96, 29.00 against 31.01, 28.22, 26.66.
    assert heights[350000] == pytest.approx((34.67 + 30.96 + 29.00 - 31.01 - 28.22 - 26.66) / 3)
    assert axes.get_title().startswith(
        "filled measured here on photo20, hollow quoted on DIV2K (EDSR-baseline"
    )


def test_the_busiest_place_is_where_the_detail_is(photograph):
    picture = np.full((90, 120, 3), 128, np.uint8)
    picture[10:40, 80:110] = photograph(30, 30)
    row, column = busiest(picture, 30)
    assert abs(row - 25 / 90) < 0.05
    assert abs(column - 95 / 120) < 0.05
    assert crop(picture, (row, column), 30).std() > 30


def test_a_saved_figure_is_an_image(tmp_path):
    save(bank_figure(random_bank(8), 0.03, "x"), tmp_path / "new" / "bank.png")
    assert (tmp_path / "new" / "bank.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(ImageFileError, match="could not be written: not a directory"):
        save(bank_figure(random_bank(8), 0.03, "x"), tmp_path / "new" / "bank.png" / "bank.png")
