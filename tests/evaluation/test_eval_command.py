"""`thera eval`, fit, inspect, bench and figures as a user calls them."""

import json

import pytest
from click.testing import CliRunner
from PIL import Image

from thera.cli import bench, eval, figures, fit, inspect
from thera.errors import ImageFileError, InvalidInput, ModelError, TheraError
from thera.evaluation.methods import Method, baseline


@pytest.fixture
def folder(tmp_path, photograph):
    path = tmp_path / "Set5"
    path.mkdir()
    for i in range(2):
        Image.fromarray(photograph(60, 66, seed=i)).save(path / f"{i}.png")
    return path


def call(command, *arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)


def test_one_command_turns_a_folder_into_tables(folder, tmp_path):
    out = tmp_path / "results" / "eval.jsonl"
    baselines = ["--baselines", "bicubic", "lanczos"]
    result = call(eval.command, "--data", folder, "--scales", 2, 3, 2.5, *baselines, "-o", out)
    assert result.exit_code == 0
    assert "**Set5, PSNR of Y, dB**" in result.output
    assert "|  | ×2 | ×3 | ×2.5 |" in result.output
    assert "| Thera Air (RDN), quoted | 38.18 | 34.75 | — |" in result.output
    assert len(out.read_text().splitlines()) == 2 * 2 * 3
    assert out.with_suffix(".csv").read_text().startswith("table,method,quoted")
    assert r"\begin{tabular}{lccc}" in out.with_suffix(".tex").read_text()
    assert out.with_suffix(".md").read_text() in result.output


@pytest.fixture
def refusing(monkeypatch):
    """`thera eval` measures bicubic, and srno, which refuses what is wider than 33 pixels."""
    bicubic = baseline("bicubic")

    def upscale(image, size):
        if image.shape[1] > 33:
            raise InvalidInput("It needs 40 GiB.")
        return bicubic.upscale(image, size)

    methods = [Method("srno", upscale, "1", "stub"), bicubic]
    monkeypatch.setattr("thera.evaluation.methods.load_methods", lambda *_, **options: methods)
    return methods


def test_tables_have_a_gap_where_a_method_refuses_a_picture_and_the_error_comes_after_them(
    folder, tmp_path, photograph, refusing
):
    Image.fromarray(photograph(60, 72)).save(folder / "wide.png")
    out = tmp_path / "results" / "eval.jsonl"
    command = ["--data", str(folder), "--scales", "2", "3", "-o", str(out)]
    for _ in range(2):  # what is refused is tried again, and the tables are there again
        result = CliRunner().invoke(eval.command, command)
        assert result.exit_code == 1 and isinstance(result.exception, TheraError)
        assert str(result.exception).endswith("not wide.png ×2 by srno: It needs 40 GiB.")
        assert (
            "| srno | — | " in result.output
            and "srno lacks 1 of 3 images, such as wide.png, at ×2" in result.output
        )
        assert out.with_suffix(".md").read_text() in result.output
        assert len(out.read_text().splitlines()) == 11
    assert call(eval.command, "--report", out.parent).exit_code == 0
    assert "| srno | — | " in (tmp_path / "results.md").read_text()
    assert call(figures.command, "psnr-scale", "--results", out, "-o", tmp_path).exit_code == 0


def test_where_all_is_refused_there_is_an_error_and_no_table(folder, tmp_path, photograph, refusing):
    del refusing[1]
    wide = tmp_path / "B100"
    wide.mkdir()
    Image.fromarray(photograph(60, 72)).save(wide / "wide.png")
    out = tmp_path / "eval.jsonl"
    with pytest.raises(TheraError, match=r"not wide\.png"):
        call(eval.command, "--data", wide, "--scales", 2, "-o", out)
    assert not out.with_suffix(".md").exists()
    with pytest.raises(TheraError, match=r"not wide\.png"):
        call(eval.command, "--data", wide, folder, "--scales", 2, "-o", out)
    assert "Set5" in out.with_suffix(".md").read_text()


def test_metrics_can_be_chosen_and_the_paper_left_out(folder, tmp_path):
    out = tmp_path / "eval.jsonl"
    options = ["--metrics", "ssim", "gmsd", "--no-paper", "--baselines", "nearest", "-o", out]
    result = call(eval.command, "--data", folder, "--scales", 2, *options)
    assert "**Set5, SSIM**" in result.output
    assert "**Set5, GMSD (lower is better)**" in result.output
    assert "quoted" not in result.output


def test_a_missing_folder_or_scale_is_a_usage_error(folder, tmp_path):
    assert "Missing option '--data'" in call(eval.command, "--scales", 2).output
    assert call(eval.command, "--data", folder, "--scales").exit_code == 2
    with pytest.raises(InvalidInput, match="No scale was given"):
        call(eval.command, "--data", folder, "--baselines", "bicubic", "-o", tmp_path / "e.jsonl")
    with pytest.raises(InvalidInput, match="1 or more, not -2"):
        call(
            eval.command,
            "--data",
            folder,
            "--baselines",
            "bicubic",
            "--scales",
            -2,
            "-o",
            tmp_path / "e.jsonl",
        )


def test_baselines_can_all_be_left_out(folder):
    with pytest.raises(InvalidInput, match="Nothing to evaluate"):
        call(eval.command, "--data", folder, "--scales", 2, "--baselines", "none")


def test_a_report_is_written_from_stored_results(folder, tmp_path):
    out = tmp_path / "stored" / "eval.jsonl"
    call(eval.command, "--data", folder, "--scales", 2, "--baselines", "bicubic", "-o", out)
    result = call(eval.command, "--report", out.parent)
    assert result.output == f"Wrote {tmp_path / 'stored.md'}.\n"
    assert "### Set5" in (tmp_path / "stored.md").read_text()


def test_results_are_neither_written_over_nor_read_from_what_holds_none(folder, tmp_path):
    picture, empty = folder / "0.png", tmp_path / "empty.jsonl"
    before = picture.read_bytes()
    options = ["--data", folder, "--scales", 2, "--baselines", "bicubic", "-o"]
    with pytest.raises(ImageFileError, match="could not be written: not a directory"):
        call(eval.command, *options, picture / "eval.jsonl")
    with pytest.raises(InvalidInput, match="holds no results"):
        call(eval.command, *options, picture)
    assert picture.read_bytes() == before
    with pytest.raises(InvalidInput, match=r"to their own table: end it in \.jsonl"):
        call(eval.command, *options, tmp_path / "eval.csv")
    empty.touch()
    for results, words in ((picture, "holds no results"), (empty, "holds no result of `thera eval`")):
        with pytest.raises(InvalidInput, match=words):
            call(figures.command, "psnr-scale", "--results", results, "-o", tmp_path)


def test_a_figure_that_cannot_be_written_is_refused_before_the_work(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("thera.models.load", None)
    monkeypatch.setattr("thera.evaluation.reconstruction.reconstruct", None)
    for name in ("bank.xyz", "bank"):
        with pytest.raises(InvalidInput, match=r"end it in \.png"):
            call(inspect.command, "edsr-air", "--figure", tmp_path / name)
        with pytest.raises(InvalidInput, match=r"end it in \.png"):
            call(fit.command, folder, "--low-pass", tmp_path / name)


def test_fit_prints_a_table_stores_it_and_draws(folder, tmp_path):
    out, picture = tmp_path / "fit.jsonl", tmp_path / "low-pass.png"
    options = ["--components", 32, "-o", out, "--low-pass", picture]
    result = call(fit.command, folder, "--cells", 3, 6, *options)
    assert "| data | bank | 3×3 | 6×6 |" in result.output
    assert {json.loads(line)["cell"] for line in out.read_text().splitlines()} == {3, 6}
    assert picture.exists()


def test_figures_say_what_they_need(tmp_path):
    for option, name in (("--model", "bank"), ("--image", "low-pass")):
        message = f"Missing option '{option}', which is needed for {name}"
        assert message in call(figures.command, name).output
    assert call(figures.command, "portrait").exit_code == 2


def test_figures_are_drawn_from_stored_results(folder, tmp_path):
    out = tmp_path / "eval.jsonl"
    call(eval.command, "--data", folder, "--scales", 2, 4, "--baselines", "bicubic", "nearest", "-o", out)
    result = call(figures.command, "psnr-scale", "--results", out, "-o", tmp_path / "drawn")
    assert result.output == f"Drew {tmp_path / 'drawn' / 'psnr-scale.png'}.\n"
    assert (tmp_path / "drawn" / "psnr-scale.png").stat().st_size > 5000


def test_figures_call_a_model_by_its_label(tmp_path, monkeypatch):
    from thera.evaluation import charts

    titles, own = [], charts.psf_figure
    monkeypatch.setattr(charts, "psf_figure", lambda kappa, title: titles.append(title) or own(kappa, title))
    for model in ("Mine=edsr-air", "edsr-air"):
        assert call(figures.command, "psf", "--model", model, "-o", tmp_path).exit_code == 0
    assert titles == ["Mine", "edsr-air"]
    with pytest.raises(InvalidInput, match="names 2 files, and a figure draws one"):
        call(figures.command, "psf", "--model", "Mine=a,b", "-o", tmp_path)


def test_inspect_draws_one_bank_only(tmp_path):
    assert "name one model" in call(inspect.command, "a", "b", "--figure", tmp_path / "bank.png").output


def test_bench_without_models_needs_installed_ones(monkeypatch):
    monkeypatch.setattr("thera.models.shipped", list)
    assert "name a model or a file" in call(bench.command).output


def test_bench_takes_an_engine_that_has_the_device_and_the_precision(monkeypatch):
    taken = []

    def measure_apart(case):
        taken.append(case.engine)
        raise TheraError("not measured")

    monkeypatch.setattr("thera.evaluation.bench.measure_apart", measure_apart)
    named = ("--engines", "onnx", "--device", "cpu")
    for options in ((), ("--device", "vulkan"), ("--precision", "bf16"), named):
        with pytest.raises(TheraError, match="not measured"):
            call(bench.command, "edsr-air", *options)
    assert taken == ["onnx", "auto", "auto", "onnx"]


def test_bench_of_all_devices_takes_no_names_of_some():
    assert "leave out what names some" in call(bench.command, "--devices", "--device", "cpu").output
    with pytest.raises(ModelError, match="no file or model 'nosuch'"):
        call(bench.command, "--devices", "nosuch")


def test_degraded_inputs_have_tables_and_records_of_their_own(folder, tmp_path):
    out = tmp_path / "results" / "eval.jsonl"
    options = ["--baselines", "bicubic", "--degrade", "none", "jpeg:30", "-o", out]
    result = call(eval.command, "--data", folder, "--scales", 2, *options)
    assert "**Set5, PSNR of Y, dB**" in result.output
    assert "**Set5 jpeg:30, PSNR of Y, dB**" in result.output
    records = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    clean, coded = ([r["psnr_y"] for r in records if r["data"] == name] for name in ("Set5", "Set5 jpeg:30"))
    assert len(clean) == len(coded) == 2
    assert sum(coded) < sum(clean) - 1
