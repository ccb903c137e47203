"""Methods are measured on pairs of pictures, as taken and aligned."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from thera.cli import eval
from thera.errors import InvalidInput, TheraError
from thera.evaluation.methods import Method, baseline
from thera.evaluation.pair_runs import fitted_map, pair_sets, pair_tables, run_pairs, warped
from thera.evaluation.report import report
from thera.evaluation.resize import imresize


def scene(height, width, seed=0):
    small = np.random.default_rng(seed).integers(20, 230, (height // 6, width // 6, 3), np.uint8)
    return np.array(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


@pytest.fixture
def folder(tmp_path):
    """Pairs at ×2: one that fits, one whose high picture is shifted by (4, 7) of its pixels."""
    path = tmp_path / "city"
    whole = scene(156, 180)
    for name, (down, across) in {"same": (0, 0), "shifted": (4, 7)}.items():
        low = imresize(whole[down : down + 144, across : across + 168], (72, 84))
        for kind, pixels in (("low", low), ("high", whole[:144, :168])):
            (path / kind).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path / kind / f"{name}.png")
    return path


def call(*arguments):
    return CliRunner().invoke(eval.command, [str(a) for a in arguments], catch_exceptions=False)


def test_a_shifted_pair_scores_better_aligned_and_one_that_fits_about_the_same(folder, tmp_path):
    records = run_pairs([baseline("bicubic")], pair_sets([folder]), tmp_path / "pairs.jsonl")
    found = {record["image"]: record for record in records}
    shifted, same = found["low/shifted.png"], found["low/same.png"]
    assert shifted["aligned"]["psnr_y"] > shifted["psnr_y"] + 10
    assert shifted["aligned"]["ssim"] > 0.9 > shifted["ssim"]
    assert same["aligned"]["psnr_y"] == pytest.approx(same["psnr_y"], abs=1)
    assert same["scale"] == 2


def test_the_fitted_map_is_the_one_that_was_applied():
    picture = scene(120, 150) / 255
    truth = np.array([[1.004, 0.003, 1.5], [-0.003, 0.996, -2.0]])
    found = fitted_map(picture, warped(picture, truth), np.zeros(2))
    assert found == pytest.approx(truth, abs=0.02)


def test_a_run_continues_and_refuses_other_pictures_of_the_same_name(folder, tmp_path, monkeypatch):
    out = tmp_path / "pairs.jsonl"
    call("--pairs", folder, "--baselines", "bicubic", "-o", out)
    first = out.read_text("utf-8")
    monkeypatch.setattr("thera.evaluation.pair_runs.fitted_map", None)  # nothing is measured again
    assert call("--pairs", folder, "--baselines", "bicubic", "-o", out).exit_code == 0
    assert out.read_text("utf-8") == first
    Image.fromarray(scene(144, 168, seed=3)).save(folder / "high" / "same.png")
    Image.fromarray(imresize(scene(144, 168, seed=3), (72, 84))).save(folder / "low" / "same.png")
    with pytest.raises(InvalidInput, match=r"another bicubic or another low/same\.png of city"):
        call("--pairs", folder, "--baselines", "bicubic", "-o", out)
    with pytest.raises(InvalidInput, match="version pairs 1 of the protocol"):
        call("--data", folder / "high", "--scales", 2, "--baselines", "bicubic", "-o", out)


def test_one_command_makes_tables_and_the_report_has_them_with_the_command(folder, tmp_path):
    out = tmp_path / "results" / "pairs.jsonl"
    result = call("--pairs", folder, "--baselines", "nearest", "bicubic", "-o", out)
    assert "**city, ×2: PSNR of Y, dB**" in result.output
    records = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    mean = np.mean([r["psnr_y"] for r in records if r["method"] == "bicubic"])
    row = next(r for r in pair_tables(records)[0].rows if r.label == "bicubic")
    assert row.cells[0].value == pytest.approx(mean)
    page = report(out.parent)
    assert "## Optical zoom" in page and f"{mean:.2f}" in page
    assert "--pairs city --baselines nearest bicubic" in page


def test_a_pair_that_a_method_refuses_is_a_gap_in_both_columns(folder, tmp_path, monkeypatch):
    def upscale(image, size):
        if next(refuses):
            raise InvalidInput("It needs 40 GiB.")
        return np.zeros((*size, 3), np.float32)

    refuses = iter([False, True])
    methods = [Method("srno", upscale, "1", "stub"), baseline("bicubic")]
    monkeypatch.setattr("thera.evaluation.methods.load_methods", lambda *_, **options: methods)
    options = ["--pairs", str(folder), "--workers", "1", "-o", str(tmp_path / "pairs.jsonl")]
    result = CliRunner().invoke(eval.command, options)
    assert isinstance(result.exception, TheraError) and "by srno: It needs 40 GiB." in str(result.exception)
    assert "| srno | — | — |" in result.output
    lacking = "srno lacks 1 of 2 images, such as low/shifted.png, at as taken, aligned"
    assert lacking in result.output


def test_bad_folders_and_options_get_a_sentence(tmp_path, folder):
    with pytest.raises(InvalidInput, match="is no folder of pairs"):
        call("--pairs", tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="holds no pairs"):
        call("--pairs", folder / "low")
    with pytest.raises(InvalidInput, match="Two folders are called city"):
        call("--pairs", folder, folder)
    assert "leave --data, --scales" in call("--pairs", folder, "--scales", 2).output
    Image.fromarray(scene(30, 30)).save(folder / "high" / "same.png")
    Image.fromarray(imresize(scene(30, 30), (15, 15))).save(folder / "low" / "same.png")
    with pytest.raises(InvalidInput, match=r"same\.png is too small to score"):
        call("--pairs", folder, "--baselines", "bicubic", "-o", tmp_path / "pairs.jsonl")
