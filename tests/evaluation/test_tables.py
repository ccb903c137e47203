"""Tables: means, deviations, ranks, and the difference between measured and quoted."""

import csv
import io

import pytest

from thera.errors import InvalidInput
from thera.evaluation.paper import paper, quoted_rows
from thera.evaluation.tables import (
    Cell,
    Row,
    Table,
    published_metric,
    summarise,
    to_csv,
    to_latex,
    to_markdown,
)


def record(method, image, scale, psnr, identity="", data="Set5", **more):
    return {
        "method": method,
        "identity": identity,
        "data": data,
        "image": image,
        "scale": scale,
        "psnr_y": psnr,
        "gmsd": 1 / psnr,
        **more,
    }


RECORDS = [
    record(method, image, scale, psnr + bonus - scale)
    for method, psnr in [("bicubic", 30), ("air+", 33), ("pro+", 33.004)]
    for image, bonus in [("a.png", 0), ("b.png", 1)]
    for scale in (2, 3)
]


def test_numbers_are_means_over_images_of_each_scale():
    table = summarise(RECORDS, "Set5", "psnr_y")
    assert table.columns == ["×2", "×3"]
    assert [[cell.value for cell in row.cells] for row in table.rows][:2] == [[28.5, 27.5], [31.5, 30.5]]


def test_best_is_bold_second_underlined_and_equal_when_printed_is_equal():
    text = to_markdown(summarise(RECORDS, "Set5", "psnr_y"))
    assert "| air+ | **31.50** | **30.50** |" in text
    assert "| pro+ | **31.50** | **30.50** |" in text
    assert "| bicubic | **28.50** | **27.50** |" in text  # one pass is ranked by itself
    assert "A plus marks the ensemble of four rotations" in text


def test_gmsd_is_better_when_lower():
    table = Table("t", ["×2"], [Row("a", [Cell(0.2)]), Row("b", [Cell(0.1)])], 4, higher_is_better=False)
    assert table.ranks(0) == {1: 1, 0: 2}


def test_several_checkpoints_give_mean_and_sample_deviation():
    records = [record("air", "a.png", 2, 30 + run, identity=str(run)) for run in range(3)]
    (row,) = summarise(records, "Set5", "psnr_y").rows
    assert row.cells == [Cell(31, 1)]
    text = to_markdown(summarise(records, "Set5", "psnr_y"))
    assert "**31.00** ± 1.000" in text
    assert "± is the standard deviation over a model's checkpoints." in text


def test_a_scale_without_results_is_a_gap_not_a_number():
    table = summarise(RECORDS, "Set5", "psnr_y", [2, 4])
    assert table.rows[0].cells[1] == Cell(None)
    assert "| bicubic | **28.50** | — |" in to_markdown(table)


def test_a_method_that_lacks_images_of_others_is_a_gap_and_a_note_says_so():
    late = [record("late", image, scale, 40) for image, scale in (("a.png", 2), ("a.png", 3), ("b.png", 3))]
    table = summarise([*RECORDS, *late], "Set5", "psnr_y")
    assert table.rows[-1].cells == [Cell(None), Cell(40)]
    assert table.rows[0].cells == [Cell(28.5), Cell(27.5)]  # of others, nothing is left out
    text = to_markdown(table)
    assert "| late | — | **40.00** |" in text
    assert "has no mean: late lacks 1 of 2 images, such as b.png, at ×2." in text
    assert "has no mean" not in to_markdown(summarise(RECORDS, "Set5", "psnr_y"))


def test_a_method_has_no_mean_if_one_of_its_checkpoints_lacks_images():
    records = [record("air", image, 2, 30, identity="first") for image in ("a.png", "b.png")]
    table = summarise([*records, record("air", "a.png", 2, 31, identity="second")], "Set5", "psnr_y")
    assert table.rows[0].cells == [Cell(None)]


def test_a_scale_that_was_measured_on_fewer_images_is_noted():
    records = [r for r in RECORDS if (r["image"], r["scale"]) != ("b.png", 3)]
    text = to_markdown(summarise(records, "Set5", "psnr_y"))
    assert "mean over 2 of its 5 images (1 at ×3)." in text
    assert "has no mean" not in text  # all lack the same image


def test_methods_of_different_folders_are_refused():
    with pytest.raises(
        InvalidInput, match=r"were measured on different images of Set5, such as a\.png and c"
    ):
        summarise([*RECORDS, record("late", "c.png", 2, 30)], "Set5", "psnr_y")
    with pytest.raises(InvalidInput, match="two results for a"):
        summarise([*RECORDS, record("air+", "a.png", 2, 30)], "Set5", "psnr_y")


def test_a_data_set_without_results_is_refused():
    with pytest.raises(InvalidInput, match="No result for B100"):
        summarise(RECORDS, "B100", "psnr_y")


def test_conversions_are_said_under_the_table():
    records = [record("bicubic", "a.png", 2, 30, conversion="grey repeated")]
    assert "Converted on reading: a.png: grey repeated." in to_markdown(summarise(records, "Set5", "psnr_y"))


def test_quoted_rows_are_marked_and_not_ranked():
    table = summarise(RECORDS, "Set5", "psnr_y")
    table.rows += quoted_rows("Set5", "psnr_y", [2, 3])
    text = to_markdown(table)
    assert "| Thera Pro (RDN), quoted | 38.36 | 34.88 |" in text
    assert "| air+ | **31.50** |" in text


def test_latex_and_csv_hold_the_same_numbers():
    table = summarise(RECORDS, "Set5", "psnr_y")
    table.rows += quoted_rows("Set5", "psnr_y", [2, 3])
    latex = to_latex(table)
    assert r"air+ & \textbf{31.50} & \textbf{30.50} \\" in latex
    assert r"bicubic & \textbf{28.50} & \textbf{27.50} \\" in latex
    assert latex.index("quoted from the paper") < latex.index("LIIF (RDN) & 38.17")
    rows = list(csv.DictReader(io.StringIO(to_csv([table]))))
    assert (rows[4]["method"], rows[4]["column"], rows[4]["quoted"]) == ("pro+", "×2", "False")
    assert float(rows[4]["value"]) == pytest.approx(31.504)
    assert rows[-1]["quoted"] == "True"


def test_benchmark_sets_are_published_in_y_and_others_in_rgb():
    assert published_metric("B100") == "psnr_y"
    assert published_metric("photo20") == "psnr_rgb"


def test_the_papers_tables_are_complete():
    tables = paper()["tables"]
    for table in tables.values():
        assert all(len(row["values"]) == len(table["columns"]) for row in table["rows"])
    counts = {name: len(table["rows"]) for name, table in tables.items()}
    assert counts == {
        "div2k_psnr": 25,
        "benchmark_psnr": 11,
        "benchmark_psnr_ood": 11,
        "ssim": 7,
        "gmsd": 14,
        "div2k_psnr_std": 6,
        "ablation": 9,
        "compute": 10,
        "reconstruction": 4,
        "kappa": 7,
        "coz": 7,
    }


def test_quoted_rows_find_both_tables_of_a_data_set_and_none_of_an_unknown_one():
    rows = {row.label: [cell.value for cell in row.cells] for row in quoted_rows("B100", "psnr_y", [2, 8, 5])}
    assert rows["Thera Air (RDN)"] == [32.33, 24.99, None]
    rows = {row.label: row.cells[0].value for row in quoted_rows("DIV2K_valid_HR", "psnr_rgb", [2])}
    assert rows["Bicubic"] == 31.01
    assert rows["LIIF (EDSR-baseline)"] == 34.67
    assert "Fixed κ (EDSR-baseline)" not in rows
    assert quoted_rows("photo20", "psnr_rgb", [2]) == []
    assert quoted_rows("Set5", "psnr_rgb", [2]) == []
